#include "configs/base/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "configs/contract/env.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ipexrun {
namespace {

// Source of the bit positions: Intel SDM vol. 2A, CPUID; XCR0 bits: vol. 1, 13.3.
#if defined(__x86_64__)
constexpr long kArchReqXcompPerm = 0x1023;
constexpr unsigned kXfeatureTileData = 18;

std::uint64_t xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

constexpr bool bit(std::uint32_t word, int n) { return ((word >> n) & 1u) != 0; }
#endif

constexpr std::array<std::pair<std::string_view, IsaSet>, 9> kLevels{{
    {"default", kLevelDefault},
    {"avx2", kLevelAvx2},
    {"avx2_vnni", kLevelAvx2Vnni},
    {"avx512", kLevelAvx512},
    {"avx512_vnni", kLevelAvx512Vnni},
    {"avx512_bf16", kLevelAvx512Bf16},
    {"amx", kLevelAmx},
    {"avx512_fp16", kLevelAvx512Fp16},
    {"amx_fp16", kLevelAmxFp16},
}};

/// Everything up to and including the named level in IPEX's order (so "avx512" also admits avx2_vnni).
std::optional<IsaSet> cap_from_name(std::string_view name) {
  IsaSet mask = 0;
  for (const auto& [level, bits] : kLevels) {
    mask |= bits;
    if (level == name) return mask;
  }
  return std::nullopt;
}

}  // namespace

IsaSet isa_of_cpu() {
#if defined(__x86_64__)
  static const IsaSet detected = [] {
    IsaSet isa = 0;
    std::uint32_t a = 0;
    std::uint32_t b = 0;
    std::uint32_t c = 0;
    std::uint32_t d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !bit(c, 27)) return isa;  // OSXSAVE
    const bool fma = bit(c, 12);
    const bool f16c = bit(c, 29);
    const std::uint64_t saved = xcr0();
    const bool ymm = (saved & 0x6) == 0x6;
    const bool zmm = ymm && (saved & 0xe0) == 0xe0;
    const bool tiles = (saved & 0x60000) == 0x60000;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return isa;
    const std::uint32_t b7 = b;
    const std::uint32_t c7 = c;
    const std::uint32_t d7 = d;
    std::uint32_t a71 = 0;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) a71 = a;
    if (ymm && fma && f16c && bit(b7, 5) && bit(b7, 3) && bit(b7, 8)) isa |= kIsaAvx2;
    if ((isa & kIsaAvx2) != 0 && bit(a71, 4)) isa |= kIsaAvx2Vnni;
    if (zmm && (isa & kIsaAvx2) != 0 && bit(b7, 16) && bit(b7, 17) && bit(b7, 28) && bit(b7, 30) && bit(b7, 31)) isa |= kIsaAvx512;
    if ((isa & kIsaAvx512) != 0) {
      if (bit(c7, 11)) isa |= kIsaAvx512Vnni;
      if (bit(a71, 5)) isa |= kIsaAvx512Bf16;
      if (bit(d7, 23)) isa |= kIsaAvx512Fp16;
      if (tiles && bit(d7, 24)) {
        if (bit(d7, 22)) isa |= kIsaAmxBf16;
        if (bit(d7, 25)) isa |= kIsaAmxInt8;
        if (bit(a71, 21)) isa |= kIsaAmxFp16;
      }
#ifdef IPEXRUN_SOFTWARE_TILES  // tests of kernels/amx on a CPU that has none (kernels/amx/software_tile.h)
      if ((isa & kIsaAvx512Bf16) != 0) isa |= kIsaAmxBf16 | kIsaAmxInt8;
#endif
    }
    return isa;
  }();
  return detected;
#else
  return 0;
#endif
}

bool request_amx_permission() {
#if defined(IPEXRUN_SOFTWARE_TILES)
  return true;
#elif defined(__x86_64__)
  static const bool granted = isa_has(isa_of_cpu(), kIsaAmxBf16) && syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
  return granted;
#else
  return false;
#endif
}

IsaSet isa_of_process() {
  static const IsaSet usable = [] {
    IsaSet isa = isa_of_cpu();
    for (const env::Id id : {env::Id::kAtenCpuCapability, env::Id::kMaxIsa}) {
      if (const auto text = env::get(id)) {
        if (const auto cap = cap_from_name(*text)) isa &= *cap;  // an unknown word is ignored, as torch and IPEX do
      }
    }
    constexpr IsaSet kTiles = kIsaAmxBf16 | kIsaAmxInt8 | kIsaAmxFp16;
    if ((isa & kTiles) != 0 && !request_amx_permission()) isa &= ~kTiles;
    return isa;
  }();
  return usable;
}

std::string_view level_name(IsaSet isa) {
  std::string_view best = "default";
  for (const auto& [name, mask] : kLevels) {
    if (isa_has(isa, mask)) best = name;
  }
  return best;
}

std::optional<IsaSet> level_from_name(std::string_view name) {
  for (const auto& [level, mask] : kLevels) {
    if (level == name) return mask;
  }
  return std::nullopt;
}

const std::vector<std::string_view>& level_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> out;
    for (const auto& [name, mask] : kLevels) out.push_back(name);
    return out;
  }();
  return names;
}

}  // namespace ipexrun
