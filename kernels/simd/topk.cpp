// The scan of topk; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace. After the first few hundred
// elements hardly one passes the bar, so a vector is a load, its keys and a comparison.
#include "kernels/simd/topk.h"

#include "kernels/dispatch.h"
#include "kernels/simd/floats.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {

std::int64_t topk_collect(const float* from, std::int64_t begin, std::int64_t end, bool largest, std::int32_t bar, std::int64_t* kept,
                          std::int64_t limit, std::int64_t* count) {
  constexpr int kLanes = Lanes::kCount;
  static_assert(kLanes <= kTopkSlack);
  const Lanes::Vector bars = Lanes::all(bar);
  const Lanes::Vector flip = Lanes::all(largest ? 0 : -1);
  std::int64_t i = begin;
  while (i < end && *count < limit) {
    const std::int64_t rest = end - i;
    const Lanes::Vector bits = rest >= kLanes ? Lanes::load(from + i) : Lanes::load_part(from + i, Lanes::part(rest * 4));
    const Lanes::Vector keys = Lanes::exclusive_or(Floats::order_key(Floats::of_bits(bits)), flip);
    unsigned pass = Lanes::at_least(keys, bars);
    if (rest < kLanes) pass &= (1u << rest) - 1;
    if (pass != 0) {
      std::int32_t key[kLanes];
      Lanes::store(key, keys);
      for (; pass != 0; pass &= pass - 1) {
        const int lane = __builtin_ctz(pass);
        kept[(*count)++] = static_cast<std::int64_t>(key[lane]) * (std::int64_t{1} << 32) + (i + lane);
      }
    }
    i += kLanes;
  }
  return i < end ? i : end;
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
