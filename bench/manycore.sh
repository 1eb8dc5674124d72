#!/usr/bin/env bash
# What only a larger machine can answer: builds shim, plugin and hook against the torch that is there, runs their tests on it, and
# measures one and several instances. Needs cmake, ninja, g++ and a python3 with torch, transformers and pytest. About 15 minutes.
#
#   bench/manycore.sh OUT_DIR [PREBUILT [PART...]]
#
# PREBUILT: a folder with bin/ipexrun (and the shared libraries it needs in deps/) for a machine without hwloc's headers; "" = build it.
# PART: build look tests compare instances quota; all of them by default. Ends with 1 if a part failed, after the others have run.
set -uo pipefail
out=$(mkdir -p "${1:?usage: manycore.sh OUT_DIR [PREBUILT [PART...]]}" && cd "$1" && pwd)
prebuilt=${2:-}
parts=("${@:3}")
[ ${#parts[@]} -gt 0 ] || parts=(build look tests compare instances quota)
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

# The launch configuration alone: stock against 1, 2, 4, ... instances and the planner's own choices.
instances() {
  fill_memory
  "$IPEXRUN_PYTHON" "$top/bench/instances.py" --rounds "${ROUNDS:-2}" --output "$out/instances.json" ${INSTANCES_ARGS:-} || fail "instances"
}

# A virtual machine may be given its memory as it is used: what is free at the start says too little.
fill_memory() {
  "$IPEXRUN_PYTHON" -c 'import mmap; m = mmap.mmap(-1, '"${FILL_GIB:-0}"' << 30 or 4096); [m.write(b"x" * (1 << 24)) for _ in range(len(m) >> 24)]'
  grep -E "MemTotal|MemAvailable" /proc/meminfo
}

# About 110 s a quota; QUOTA_SECONDS ends it in time with a table of what is there. QUOTA_ARGS="--model bert" for the other model.
quota() {
  timeout "${QUOTA_SECONDS:-0}" "$IPEXRUN_PYTHON" "$top/bench/quota.py" --quota ${QUOTAS:-0.5 1 1.5 2} --rounds "${QUOTA_ROUNDS:-15}" \
    --threads "$(nproc)" --output "$out/quota.json" ${QUOTA_ARGS:-} || fail "quota"
}

for part in "${parts[@]}"; do
  $part
  echo "== $part: $SECONDS s since the start"
done
[ ${#failed[@]} -eq 0 ] || { printf '== FAILED: %s\n' "${failed[@]}"; exit 1; }
echo "== all parts passed"
