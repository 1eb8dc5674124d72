// bernoulli, a state of the twister at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace. Loops
// without branches over arrays: the compiler's vectorizer makes vectors of them.
#include "kernels/simd/bernoulli.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr int kApart = 397;

[[gnu::always_inline]] inline std::uint32_t twisted(std::uint32_t upper, std::uint32_t lower) {
  const std::uint32_t mixed = (upper & 0x80000000u) | (lower & 0x7fffffffu);
  return (mixed >> 1) ^ ((0u - (lower & 1u)) & 0x9908b0dfu);
}

void renew(std::uint32_t* state) {
  constexpr int kWrapped = kTwisterWords - kApart;
  // Each word is read, and its neighbour, before it is written; what lies 227 places back was written 14 vectors ago and more.
#pragma GCC ivdep
  for (int i = 0; i < kWrapped; ++i) state[i] = state[i + kApart] ^ twisted(state[i], state[i + 1]);
#pragma GCC ivdep
  for (int i = kWrapped; i < kTwisterWords - 1; ++i) state[i] = state[i - kWrapped] ^ twisted(state[i], state[i + 1]);
  state[kTwisterWords - 1] = state[kApart - 1] ^ twisted(state[kTwisterWords - 1], state[0]);
}

void temper(const std::uint32_t* __restrict from, std::uint32_t* __restrict to, int count) {
  for (int i = 0; i < count; ++i) {
    std::uint32_t y = from[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    to[i] = y ^ (y >> 18);
  }
}

template <typename Element>
void put(const std::uint32_t* __restrict words, Element* __restrict to, Element one, std::uint64_t limit, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    const std::uint64_t bits = static_cast<std::uint64_t>(words[2 * i] & 0x1fffffu) << 32 | words[2 * i + 1];
    to[i] = bits < limit ? one : Element{0};
  }
}

template <typename Element>
void fill(const BernoulliArgs& args, std::uint64_t limit, Twister* twister) {
  auto* to = static_cast<Element*>(args.to);
  std::uint32_t words[kTwisterWords + 1];
  int kept = 0;  // the first word of a pair whose second one comes with the next state
  std::int64_t wanted = 2 * args.count;
  while (wanted > 0) {
    int there = twister->left - 1;
    if (there == 0) {
      renew(twister->state);
      twister->next = 0;
      there = kTwisterWords;
    }
    const int taken = wanted < there ? static_cast<int>(wanted) : there;
    temper(twister->state + twister->next, words + kept, taken);
    twister->next += static_cast<std::uint32_t>(taken);
    twister->left = there - taken + 1;
    wanted -= taken;
    const int have = kept + taken;
    put(words, to, static_cast<Element>(args.one), limit, have / 2);
    to += have / 2;
    kept = have % 2;
    words[0] = words[have - 1];
  }
}

}  // namespace

void bernoulli(const BernoulliArgs& args, std::uint64_t limit, Twister* twister) {
  switch (args.element_bytes) {
    case 1:
      return fill<std::uint8_t>(args, limit, twister);
    case 2:
      return fill<std::uint16_t>(args, limit, twister);
    case 4:
      return fill<std::uint32_t>(args, limit, twister);
    default:
      return fill<std::uint64_t>(args, limit, twister);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
