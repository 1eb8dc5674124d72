# Toolchain file: a build for 64-bit Arm on another machine, with Debian's g++-aarch64-linux-gnu; programs run under qemu-user.
#   cmake -B build/arm -G Ninja -DCMAKE_TOOLCHAIN_FILE=configs/cmake/aarch64-linux-gnu.cmake -DIPEXRUN_LAUNCHER=OFF -DIPEXRUN_PLUGIN=OFF
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
# Programs are the building machine's, libraries never: it may have the same ones for its own architecture.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
