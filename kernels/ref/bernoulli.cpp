// The truth of bernoulli: one word after the other.
#include "kernels/ref/bernoulli.h"

#include <cstring>

namespace ipexrun::kernels::ref {
namespace {

constexpr std::uint32_t kUpper = 0x80000000u;
constexpr int kApart = 397;

std::uint32_t draw(Twister* twister) {
  std::uint32_t* state = twister->state;
  if (--twister->left == 0) {
    for (int i = 0; i < kTwisterWords; ++i) {
      const std::uint32_t mixed = (state[i] & kUpper) | (state[(i + 1) % kTwisterWords] & ~kUpper);
      state[i] = state[(i + kApart) % kTwisterWords] ^ (mixed >> 1) ^ ((mixed & 1u) != 0 ? 0x9908b0dfu : 0u);
    }
    twister->left = kTwisterWords;
    twister->next = 0;
  }
  std::uint32_t y = state[twister->next++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

}  // namespace

void bernoulli(const BernoulliArgs& args, std::uint64_t limit, Twister* twister) {
  auto* to = static_cast<char*>(args.to);
  for (std::int64_t i = 0; i < args.count; ++i) {
    const std::uint64_t upper = draw(twister);
    const std::uint64_t bits = (upper << 32 | draw(twister)) & ((std::uint64_t{1} << 53) - 1);
    const std::uint64_t element = bits < limit ? args.one : 0;
    std::memcpy(to + i * args.element_bytes, &element, static_cast<std::size_t>(args.element_bytes));  // little endian, as x86 is
  }
}

}  // namespace ipexrun::kernels::ref
