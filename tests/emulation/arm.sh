#!/usr/bin/env bash
# arm.sh SOURCE BUILD TEST=FILTER...: kernels, some of their tests and the shim, built for 64-bit Arm and run under qemu-aarch64.
# Exit 77 = skipped, a tool is missing.
set -euo pipefail
source=$1 build=$2
shift 2
missing=()
command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
[ -d /usr/src/googletest ] || missing+=(googletest)
command -v ninja >/dev/null || missing+=(ninja-build)
if [ ${#missing[@]} -gt 0 ]; then
  echo "skipped: not installed: ${missing[*]} (Debian packages)"
  exit 77
fi

launcher=
command -v ccache >/dev/null && launcher=ccache
mkdir -p "$build"
log=$build/build.log
targets=(levels_here ipexrun_shim)
for one in "$@"; do targets+=("kernels_${one%%=*}_test"); done
{
  cmake -S "$source" -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$source/configs/cmake/aarch64-linux-gnu.cmake" \
    -DIPEXRUN_KERNEL_TESTS=ON -DIPEXRUN_WERROR=ON -DIPEXRUN_LAUNCHER=OFF -DIPEXRUN_PLUGIN=OFF \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
    -DCMAKE_C_COMPILER_LAUNCHER="$launcher" -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" &&
    ninja -C "$build" -j2 "${targets[@]}"
} >"$log" 2>&1 || { grep -B2 -A12 -E 'FAILED|error|Error' "$log" | head -80; echo "failed: the build for Arm, $log"; exit 1; }

here=$(dirname "${BASH_SOURCE[0]}")
emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
bash "$here/sample.sh" "$build/bin" "default default" "$@" -- "${emulator[@]}"
# The shim is inert on Arm: a program that has it preloaded runs as it does without.
seen=$("${emulator[@]}" -E LD_PRELOAD="$build/lib/ipexrun/libipexrun_shim.so" "$build/bin/levels_here" 2>&1)
[ "$seen" = "default default" ] || { echo "with the shim: $seen"; exit 1; }
echo "with the shim preloaded: runs as without"
