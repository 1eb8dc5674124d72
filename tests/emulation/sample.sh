#!/usr/bin/env bash
# sample.sh FOLDER LEVELS TEST=FILTER... [-- EMULATOR ARGS...]: checks what levels_here prints (CPU and process, "avx2 avx2"; * is any,
# | is or), then runs a part of each kernel test. Exit 77 = skipped, the emulator is missing.
set -euo pipefail
folder=$1 levels=$2
shift 2
tests=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  tests+=("$1")
  shift
done
[ $# -gt 0 ] && shift
emulator=("$@")
if [ $# -gt 0 ] && ! command -v "$1" >/dev/null; then
  echo "skipped: $1 is not installed (Debian: package qemu-user)"
  exit 77
fi

seen=$("${emulator[@]}" "$folder/levels_here" 2>/dev/null)
echo "levels of CPU and process: $seen"
IFS='|' read -ra allowed <<<"$levels"
found=
for one in "${allowed[@]}"; do
  # shellcheck disable=SC2053 # a pattern
  [[ $seen == $one ]] && found=1
done
[ -n "$found" ] || { echo "expected $levels"; exit 1; }
for one in "${tests[@]}"; do
  out=$("${emulator[@]}" "$folder/kernels_${one%%=*}_test" --gtest_brief=1 --gtest_filter="${one#*=}" 2>&1) || { echo "$out"; echo "failed: $one"; exit 1; }
  ran=$(sed -n 's/^\[==========\] \([0-9]*\) tests\? from .* ran.*/\1/p' <<<"$out")
  [ "${ran:-0}" -gt 0 ] || { echo "$out"; echo "no test matches $one"; exit 1; }
  echo "$one: $ran passed"
done
