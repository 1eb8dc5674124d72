// bernoulli: ones with a given probability and zeros, drawn from a Mersenne twister (mt19937) as torch's CPU generator draws them: two
// words an element, the first one the upper, of which 53 bits are below the probability or not.
//
// Method, in simd/bernoulli.cpp: the 624 words of the twister's state are made anew vector by vector (a word needs its neighbour and one
// 397 or 227 places away: M. Matsumoto, T. Nishimura, 1998), tempered into a buffer, and compared as integers. Bits are those of one draw
// after the other, and so is the state that is left; there is one thread, since a state follows from the one before it. Thread rule: may be
// called concurrently on different states.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"

namespace ipexrun::kernels {

inline constexpr int kTwisterWords = 624;

/// As torch keeps it: `left` - 1 words from `next` on are still to be drawn; the state is made anew by the draw that finds 1.
struct Twister {
  std::uint32_t* state = nullptr;  ///< [kTwisterWords]
  int left = 1;
  std::uint32_t next = 0;
};

struct BernoulliArgs {
  void* to = nullptr;     ///< contiguous, aligned as its elements are
  int element_bytes = 4;  ///< 1, 2, 4 or 8
  std::uint64_t one = 0;  ///< bits of an element that is drawn; the others are 0
  std::int64_t count = 0;
  double p = 0;  ///< 0 to 1
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool bernoulli_supported(IsaSet isa);

/// Uses at most `isa`, down to the reference. `twister` moves on by 2 * count words.
void bernoulli(const BernoulliArgs& args, Twister* twister, IsaSet isa);

/// Name of the variant that it uses: "avx512", "avx2", "ref".
const char* bernoulli_variant(IsaSet isa);

}  // namespace ipexrun::kernels
