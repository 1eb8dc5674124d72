// The variants made from simd/normalize.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/normalize.h"

#define IPEXRUN_DECLARE_NORMALIZE(isa)                                                                             \
  namespace ipexrun::kernels::isa {                                                                                \
  void softmax(const SoftmaxArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);             \
  void layer_norm(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);             \
  void rms_norm(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);               \
  void group_norm(const GroupNormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);        \
  void scale_channels(const ChannelScaleArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch); \
  }
IPEXRUN_DECLARE_NORMALIZE(avx2)
IPEXRUN_DECLARE_NORMALIZE(avx512)
#undef IPEXRUN_DECLARE_NORMALIZE
