#!/usr/bin/env bash
# What only a larger machine can answer, in one call: builds shim, plugin and hook against the torch that is there, runs the op tier's
# tests on it, and measures one and several instances. Needs cmake, ninja, g++ and a python3 with torch, transformers and pytest.
#
#   bench/manycore.sh OUT_DIR [PREBUILT]
#
# PREBUILT: a folder with bin/ipexrun (and the shared libraries it needs in deps/) for a machine without hwloc's headers.
set -uo pipefail
out=${1:?usage: manycore.sh OUT_DIR [PREBUILT]}
prebuilt=${2:-}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tree=$top/build/manycore
mkdir -p "$out"
export IPEXRUN_PYTHON=${IPEXRUN_PYTHON:-$(command -v python3)} PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1

launcher=ON
[ -n "$prebuilt" ] && launcher=OFF
{
  cmake -S "$top" -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DIPEXRUN_LAUNCHER=$launcher &&
    cmake --build "$tree"
} >"$out/build.log" 2>&1 || { tail -n 40 "$out/build.log"; exit 1; }
echo "== built in $SECONDS s"
if [ -n "$prebuilt" ]; then
  mkdir -p "$tree/bin"
  cp -r "$prebuilt/bin/ipexrun" "$tree/bin/"
  cp -r "$prebuilt/deps" "$tree/"
fi
export PATH=$tree/bin:$PATH IPEXRUN_BUILD_DIR=$tree
ipexrun --version
ipexrun topology
ipexrun doctor || true

echo "== op tier tests on the torch of this machine"
"$IPEXRUN_PYTHON" -m pytest -q -x -p no:cacheprovider "$top/tests/op_tier" >"$out/op_tier.log" 2>&1
tail -n 15 "$out/op_tier.log"

bert="$top/examples/bert_encoder.py"
for batch in 1 8; do
  echo "== BERT-base, batch $batch, one instance: stock, launch only, ipexrun"
  ipexrun --bench --bench-compare stock,launch --bench-pairs 3 --bench-output "$out/bert_b$batch.json" \
    python3 "$bert" --batch-size $batch --calls 60 2>&1 >/dev/null
done
for instances in 2 4 8 16; do
  [ "$instances" -le "$(nproc)" ] || continue
  echo "== BERT-base, batch 1, $instances instances"
  ipexrun --ninstances $instances --bench --bench-output "$out/bert_b1_x$instances.json" python3 "$bert" --batch-size 1 --calls 60 2>&1 >/dev/null
done
echo "== done in $SECONDS s"
