// The variants made from simd/depthwise.cpp and simd/conv_put.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/conv_variants.h"

#define IPEXRUN_DECLARE_CONV_PUT(isa)                                                                                   \
  namespace ipexrun::kernels::isa {                                                                                     \
  void conv_put(const float* sums, std::int64_t pixels, std::int64_t channels, std::uint16_t* to, std::int64_t stride); \
  }
#define IPEXRUN_DECLARE_DEPTHWISE(isa)                                                                                  \
  namespace ipexrun::kernels::isa {                                                                                     \
  void depthwise(const ConvArgs& args, const DepthwisePlan& plan, std::int64_t begin, std::int64_t end, void* scratch); \
  }
IPEXRUN_DECLARE_CONV_PUT(avx2)
IPEXRUN_DECLARE_CONV_PUT(avx512)
IPEXRUN_DECLARE_CONV_PUT(avx512_bf16)
IPEXRUN_DECLARE_DEPTHWISE(avx2)
IPEXRUN_DECLARE_DEPTHWISE(avx512)
#undef IPEXRUN_DECLARE_DEPTHWISE
#undef IPEXRUN_DECLARE_CONV_PUT
