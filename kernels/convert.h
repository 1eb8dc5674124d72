// convert: numbers from one of fp32, bf16 and fp16 to another.
//
// Rounds to nearest even once; denormals of all three are kept; what rounds beyond the largest number becomes infinity; a NaN stays one,
// with its sign and the upper bits of its payload, and becomes quiet where its format changes (but bf16 to fp32 keeps all bits). Every
// variant gives the bits of ref/convert.cpp. Images that change their layout on the way: reorder.h. Thread rule: may be called
// concurrently. Any alignment of whole elements will do. Takes no memory and cannot fail.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

/// DType has what kernels compute with; fp16 is converted only.
enum class Format : int { kF32 = 0, kBf16 = 1, kF16 = 2 };

struct ConvertArgs {
  const void* from = nullptr;
  Format from_format = Format::kF32;
  void* to = nullptr;  ///< may be `from` where elements are as large, must not overlap it otherwise
  Format to_format = Format::kBf16;
  std::int64_t n = 0;
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool convert_supported(IsaSet isa);

/// Uses at most `isa`; falls back to slower variants down to the reference, so it is always right. The same format twice is a copy.
void convert(const ConvertArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that convert() uses: "avx512", "avx2", "ref".
const char* convert_variant(IsaSet isa);

}  // namespace ipexrun::kernels
