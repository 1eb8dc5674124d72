// pointwise: a row of element-wise operations over tensors that broadcast, in one pass through memory. fp32 inside.
//
// Method: an interpreter of tiles. A tile of up to kPointTile elements goes through every instruction while it is in the first-level
// cache; what lies between two instructions never reaches memory. Operands are fp32, bf16 or bool (0 and 1); each result is rounded once to
// its type, where separate bf16 operations round after each.
// Errors of one instruction against ref/pointwise.cpp, in doubles: sums, products, quotients and roots are rounded once; exp, expm1, log,
// log1p and softplus are within 4 units in the last place, 0 instead of what lies below the smallest normal number; the others are those of
// activation.h. NaN stay NaN, also in kMaximum and kMinimum; comparisons with NaN are false but for kUnequal.
// The result of an element does not depend on where it lies or on the number of threads.
// Thread rule: may be called concurrently. Takes no memory but a thread's scratch; false where that was short.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

enum class Point : std::uint8_t {
  // of a
  kCopy,
  kNegative,
  kAbsolute,
  kRoot,
  kReciprocalRoot,
  kReciprocal,
  kExp,
  kExpLess1,
  kLog,
  kLog1Plus,
  kSoftplus,  ///< log(1 + e^a)
  kRelu,
  kTanh,
  kSigmoid,
  kSilu,
  kGelu,
  kGeluTanh,
  kNot,        ///< 1 where a is 0
  kRoundBf16,  ///< to the nearest bf16
  // of a and b
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMaximum,
  kMinimum,
  kGreater,  ///< comparisons are 0 or 1
  kGreaterEqual,
  kEqual,
  kUnequal,
  // of a, b and c
  kWhere,  ///< a is not 0: b, else c
};

enum class PointType : std::uint8_t { kF32, kBf16, kBool };

inline constexpr int kPointDims = 6;
inline constexpr int kPointSlots = 40;
inline constexpr int kPointTile = 256;

/// Reads and writes slots. Slots [0, inputs) hold the operands, then come constants, then what instructions write, each once.
struct PointInstruction {
  Point what = Point::kCopy;
  std::uint8_t to = 0;
  std::uint8_t a = 0;
  std::uint8_t b = 0;
  std::uint8_t c = 0;
};

struct PointOperand {
  const void* data = nullptr;
  PointType type = PointType::kF32;
  std::int64_t strides[kPointDims] = {};  ///< elements, 0 where it broadcasts
};

struct PointResult {
  void* data = nullptr;  ///< overlaps no operand and no other result
  PointType type = PointType::kF32;
  int slot = 0;
  std::int64_t strides[kPointDims] = {};
};

struct PointwiseArgs {
  int dims = 0;  ///< at most kPointDims, the fastest last
  std::int64_t sizes[kPointDims] = {};
  const PointOperand* inputs = nullptr;
  int input_count = 0;
  const float* constants = nullptr;
  int constant_count = 0;
  const PointInstruction* instructions = nullptr;
  int instruction_count = 0;
  const PointResult* results = nullptr;
  int result_count = 0;
  int slots = 0;  ///< at most kPointSlots
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool pointwise_supported(IsaSet isa);

/// Uses at most `isa`; falls back to slower variants down to the reference, so it is always right. False, with results undefined, when
/// memory for scratch was short.
bool pointwise(const PointwiseArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that pointwise() uses: "avx512", "avx2", "ref".
const char* pointwise_variant(IsaSet isa);

}  // namespace ipexrun::kernels
