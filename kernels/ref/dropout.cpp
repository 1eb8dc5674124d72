// The truth of dropout: Philox4x32-10 as its paper writes it, one counter after the other.
#include "kernels/ref/dropout.h"

#include "kernels/dropout_rule.h"
#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {

PhiloxWords philox(PhiloxWords c, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t a = std::uint64_t{kPhiloxFactor[0]} * c.word[0];
    const std::uint64_t b = std::uint64_t{kPhiloxFactor[1]} * c.word[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c.word[1] ^ key0, static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c.word[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += kPhiloxStep[0];
    key1 += kPhiloxStep[1];
  }
  return c;
}

void dropout(const DropoutArgs& args) {
  const std::uint64_t threshold = dropout_threshold(args.p);
  const float scale = dropout_scale(args.p);
  for (std::int64_t i = 0; i < args.n; ++i) {
    const std::uint64_t counter = args.offset + static_cast<std::uint64_t>(i / kDropoutBlock * kDropoutCounters + i % kDropoutCounters);
    const PhiloxWords words = philox({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
                                     static_cast<std::uint32_t>(args.seed), static_cast<std::uint32_t>(args.seed >> 32));
    const bool kept = words.word[i % kDropoutBlock / kDropoutCounters] >= threshold;
    put(args.to, args.dtype, i, get(args.from, args.dtype, i) * static_cast<double>(kept ? scale : 0.0f));
    if (args.mask != nullptr) args.mask[i] = kept ? 1 : 0;
  }
}

void dropout_grad(const DropoutGradArgs& args) {
  const float scale = dropout_scale(args.p);
  for (std::int64_t i = 0; i < args.n; ++i) {
    put(args.to, args.dtype, i, get(args.from, args.dtype, i) * static_cast<double>(args.mask[i] != 0 ? scale : 0.0f));
  }
}

}  // namespace ipexrun::kernels::ref
