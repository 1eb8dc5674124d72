#!/usr/bin/env bash
# What only a larger machine can answer: builds shim, plugin and hook against the torch that is there, runs their tests on it, and
# measures one and several instances. Needs cmake, ninja, g++ and a python3 with torch, transformers and pytest. About 15 minutes.
#
#   bench/manycore.sh OUT_DIR [PREBUILT [PART...]]
#
# PREBUILT: a folder with bin/ipexrun (and the shared libraries it needs in deps/) for a machine without hwloc's headers; "" = build it.
# PART: build look tests compare scale; all of them by default. Ends with 1 if a part failed, after the others have run.
set -uo pipefail
out=$(mkdir -p "${1:?usage: manycore.sh OUT_DIR [PREBUILT [PART...]]}" && cd "$1" && pwd)
prebuilt=${2:-}
parts=("${@:3}")
[ ${#parts[@]} -gt 0 ] || parts=(build look tests compare scale)
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tree=$top/build/manycore
export IPEXRUN_PYTHON=${IPEXRUN_PYTHON:-$(command -v python3)} PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
export PATH=$tree/bin:$PATH IPEXRUN_BUILD_DIR=$tree
bert=("$IPEXRUN_PYTHON" "$top/examples/bert_encoder.py")
failed=()

fail() {
  echo "== FAILED: $1"
  failed+=("$1")
}

build() {
  local launcher=ON
  [ -z "$prebuilt" ] || launcher=OFF
  if ! {
    c++ --version && "$IPEXRUN_PYTHON" -c 'import sys, torch; print(sys.version, torch.__version__)' &&
      cmake -S "$top" -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DIPEXRUN_LAUNCHER=$launcher -DIPEXRUN_TORCH_TESTS=ON &&
      cmake --build "$tree" --target ipexrun_shim ipexrun_plugin ipexrun_hook
  } >"$out/build.log" 2>&1; then
    tail -n 60 "$out/build.log"
    echo "== FAILED: build; nothing else can run"
    exit 1
  fi
  # The victims' hosts may ask for more than a machine has (a static libc, sanitizers): the rest is still worth running.
  cmake --build "$tree" -- -k 0 >>"$out/build.log" 2>&1 || {
    grep -A 8 -E '^FAILED|error:' "$out/build.log" | head -n 40
    fail "build of the victims"
  }
  grep -i -A 6 warning: "$out/build.log" | head -n 40
  if [ -n "$prebuilt" ]; then
    mkdir -p "$tree/bin" && cp "$prebuilt/bin/ipexrun" "$tree/bin/" && cp -r "$prebuilt/deps" "$tree/" || fail "copy of the launcher"
  fi
  ls "$tree/lib/ipexrun" "$tree/lib/ipexrun/plugins" "$tree/lib/ipexrun/python"
}

look() {
  ipexrun --version || fail "ipexrun --version"
  ipexrun topology || fail "ipexrun topology"
  ipexrun doctor || fail "ipexrun doctor"
  ipexrun --dry-run --ninstances 4 "${bert[@]}" || fail "ipexrun --dry-run"
  ipexrun --require-shim "${bert[@]}" --layers 2 --calls 60 || fail "ipexrun with the plugin"
}

tests() {
  (cd "$tree" && ctest -j 4 --output-on-failure) >"$out/tests.log" 2>&1 || {
    grep -E '^(E  |FAILED |ERROR )' "$out/tests.log" | head -n 60
    fail "tests"
  }
  grep -E ' passed| failed|Test +#|tests passed' "$out/tests.log"
}

compare() {
  local batch calls
  for batch in 1 8; do
    calls=$((batch == 1 ? 200 : 80))
    echo "== BERT-base, batch $batch, one instance: stock, launch only, ipexrun"
    timeout 400 ipexrun --bench --bench-compare stock,launch --bench-pairs 4 --bench-output "$out/bert_b$batch.json" \
      "${bert[@]}" --batch-size $batch --calls $calls 2>"$out/bert_b$batch.txt" >/dev/null || fail "comparison of batch $batch"
    cat "$out/bert_b$batch.txt"
  done
}

# Everything runs for the same time, not for the same number of calls: one core is 16 times slower than 16.
scale() {
  local instances mode
  for instances in 1 2 4 8 16; do
    [ "$instances" -le "$(nproc)" ] || continue
    for mode in ipexrun launch; do
      local options=()
      [ $mode = ipexrun ] || options=(--no-optimize)
      timeout 60 ipexrun "${options[@]}" --ninstances "$instances" --bench --bench-warmup 10 --bench-seconds 4 --bench-stop \
        --bench-output "$out/scale_${instances}_$mode.json" "${bert[@]}" --batch-size 1 --calls 100000 \
        2>"$out/scale_${instances}_$mode.txt" >/dev/null || { tail -n 5 "$out/scale_${instances}_$mode.txt"; fail "$instances instances, $mode"; }
    done
  done
  "$IPEXRUN_PYTHON" - "$out" <<'PYTHON' || fail "table of the instances"
import json, sys

print("== BERT-base, batch 1: samples/s of all instances together")
print("instances  launch only  p50 ms  ipexrun  p50 ms  ratio")
for instances in (1, 2, 4, 8, 16):
    found = {}
    for mode in ("launch", "ipexrun"):
        try:
            with open(f"{sys.argv[1]}/scale_{instances}_{mode}.json", encoding="utf-8") as text:
                rows = json.load(text)["rows"]
        except FileNotFoundError:
            continue
        row = next((r for r in rows if r["instance"] == "all"), rows[0])
        found[mode] = (row["samples_per_s"], row["p50_ms"])
    if len(found) == 2:
        (launch, launch_ms), (ours, ours_ms) = found["launch"], found["ipexrun"]
        print(f"{instances:9}  {launch:11.1f}  {launch_ms:6.1f}  {ours:7.1f}  {ours_ms:6.1f}  {ours / launch:5.2f}")
PYTHON
}

for part in "${parts[@]}"; do
  $part
  echo "== $part: $SECONDS s since the start"
done
[ ${#failed[@]} -eq 0 ] || { printf '== FAILED: %s\n' "${failed[@]}"; exit 1; }
echo "== all parts passed"
