// dropout: elements kept with probability 1 - p and scaled by 1 / (1 - p), fp32 to fp32 or bf16 to bf16, and its gradient.
//
// The generator is Philox4x32-10 (Salmon and others, 2011), which makes any number of its sequence from its place alone: what an element
// gets follows from seed, offset and its index, whatever the instruction set and the number of threads. Element i of a call is decided by
// word i % 64 / 16 of counter offset + i / 64 * 16 + i % 16, the counter being 128 bits of which the upper half is 0, the key the seed. It
// is kept where that word, as a 32-bit number, is at least p * 2^32, rounded. y = x * (kept ? 1 / (1 - p) : 0), rounded once: NaN and inf
// give NaN where they are dropped, as stock's product with a mask does. With p = 0 all are kept, with p = 1 none is, and the scale is 0.
// Not stock's numbers: another generator, another sequence.
// Thread rule: may be called concurrently. Any alignment of whole elements will do. Takes no memory.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

struct DropoutArgs {
  const void* from = nullptr;
  void* to = nullptr;            ///< may be `from`, must not overlap it otherwise
  std::uint8_t* mask = nullptr;  ///< 1 where kept, else 0; null = not wanted
  DType dtype = DType::kF32;     ///< of both sides
  std::int64_t n = 0;
  double p = 0;  ///< of being dropped, in [0, 1]
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  ///< counters
};

struct DropoutGradArgs {
  const void* from = nullptr;  ///< gradient of the result
  void* to = nullptr;          ///< may be `from`, must not overlap it otherwise
  const std::uint8_t* mask = nullptr;
  DType dtype = DType::kF32;
  std::int64_t n = 0;
  double p = 0;
};

/// Counters that a call of n elements uses: the next call's offset is so much larger.
std::uint64_t dropout_counters(std::int64_t n);

/// True when `isa` has a variant that is worth offering: not the reference.
bool dropout_supported(IsaSet isa);

// Both use at most `isa`; all variants give the same bits. False, and nothing written, when p is not in [0, 1].
bool dropout(const DropoutArgs& args, const Parallel& parallel, IsaSet isa);

/// from * (mask ? 1 / (1 - p) : 0). Any mask but 0 counts as kept.
bool dropout_grad(const DropoutGradArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that both use: "avx512", "avx2", "ref".
const char* dropout_variant(IsaSet isa);

}  // namespace ipexrun::kernels
