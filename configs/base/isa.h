// Which instruction sets this process may use: a set of bits, not a ladder (AMX and AVX512-FP16 are on no common one).
//
// Three questions are kept apart: what the CPU has (cpuid), what the operating system saves (XCR0), and, for AMX, what the
// kernel permits to this process (arch_prctl ARCH_REQ_XCOMP_PERM). A level is named as IPEX names it, see level_name().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ipexrun {

using IsaSet = std::uint32_t;

/// One bit a feature group; a group implies its parents only through the kLevel masks below.
enum IsaBit : IsaSet {
  kIsaAvx2 = 1u << 0,      ///< AVX2 + FMA + F16C + BMI
  kIsaAvx2Vnni = 1u << 1,  ///< AVX-VNNI
  kIsaAvx512 = 1u << 2,    ///< AVX512 F, BW, DQ, VL, CD
  kIsaAvx512Vnni = 1u << 3,
  kIsaAvx512Bf16 = 1u << 4,
  kIsaAmxBf16 = 1u << 5,  ///< AMX-TILE + AMX-BF16
  kIsaAmxInt8 = 1u << 6,  ///< AMX-TILE + AMX-INT8
  kIsaAvx512Fp16 = 1u << 7,
  kIsaAmxFp16 = 1u << 8,
};

/// The levels in IPEX's order; each is the mask of everything it implies.
inline constexpr IsaSet kLevelDefault = 0;
inline constexpr IsaSet kLevelAvx2 = kIsaAvx2;
inline constexpr IsaSet kLevelAvx2Vnni = kLevelAvx2 | kIsaAvx2Vnni;
inline constexpr IsaSet kLevelAvx512 = kLevelAvx2 | kIsaAvx512;
inline constexpr IsaSet kLevelAvx512Vnni = kLevelAvx512 | kIsaAvx512Vnni;
inline constexpr IsaSet kLevelAvx512Bf16 = kLevelAvx512Vnni | kIsaAvx512Bf16;
inline constexpr IsaSet kLevelAmx = kLevelAvx512Bf16 | kIsaAmxBf16 | kIsaAmxInt8;
inline constexpr IsaSet kLevelAvx512Fp16 = kLevelAmx | kIsaAvx512Fp16;
inline constexpr IsaSet kLevelAmxFp16 = kLevelAvx512Fp16 | kIsaAmxFp16;

constexpr bool isa_has(IsaSet have, IsaSet need) { return (have & need) == need; }

/// What cpuid and XCR0 say; AMX bits mean "the hardware and the OS can", not "this process may".
IsaSet isa_of_cpu();

/// Asks the kernel, once per process, for permission to use AMX tiles; true when granted (or granted before).
/// Call before worker threads exist. False on kernels before 5.16, under seccomp, or with a small sigaltstack.
bool request_amx_permission();

/// What this process may use: isa_of_cpu(), without AMX unless request_amx_permission() succeeds, capped by
/// ATEN_CPU_CAPABILITY and IPEXRUN_MAX_ISA (both take level names). Computed at the first call, then constant.
IsaSet isa_of_process();

/// "default", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx", "avx512_fp16", "amx_fp16": the highest
/// level contained in `isa`.
std::string_view level_name(IsaSet isa);

/// The mask of a level; nullopt for an unknown word (case matters, as in ATEN_CPU_CAPABILITY).
std::optional<IsaSet> level_from_name(std::string_view name);

/// All level names, lowest first.
const std::vector<std::string_view>& level_names();

}  // namespace ipexrun
