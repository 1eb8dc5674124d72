// The variants made from simd/linear_int8.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

#define IPEXRUN_DECLARE_LINEAR_INT8(isa)                                                                                           \
  namespace ipexrun::kernels::isa {                                                                                                \
  void int8_dot(const float* a, std::int64_t lda, std::int64_t rows, const std::int8_t* b, std::int64_t ldb, std::int64_t columns, \
                std::int64_t k, float* sums);                                                                                      \
  void int8_finish(const float* sums, const float* scales, std::int64_t n, DType dtype, void* to);                                 \
  void int8_unpack(const std::int8_t* b, std::int64_t ldb, std::int64_t columns, std::int64_t k, std::uint16_t* panel);            \
  }
IPEXRUN_DECLARE_LINEAR_INT8(avx2)
IPEXRUN_DECLARE_LINEAR_INT8(avx512)
#undef IPEXRUN_DECLARE_LINEAR_INT8
