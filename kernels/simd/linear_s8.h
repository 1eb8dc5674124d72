// The variants made from simd/linear_s8.cpp, one namespace an instruction set, and what becomes of their sums, made from
// simd/linear_s8_finish.cpp; see linear_s8_variants.h for what the functions mean.
#pragma once

#include "kernels/linear_s8_variants.h"

#define IPEXRUN_DECLARE_LINEAR_S8(isa)                                                                      \
  namespace ipexrun::kernels::isa {                                                                         \
  std::size_t linear_s8_scratch_bytes(const LinearS8Args& args, const LinearBlock& block);                  \
  void linear_s8(const LinearS8Args& args, const LinearBlock& block, const PanelS8* panels, void* scratch); \
  }
IPEXRUN_DECLARE_LINEAR_S8(avx2)
IPEXRUN_DECLARE_LINEAR_S8(avx2_vnni)
IPEXRUN_DECLARE_LINEAR_S8(avx512_vnni)
#undef IPEXRUN_DECLARE_LINEAR_S8

/// Rows [row, row + rows) of a panel of C from their sums, 32 a row.
#define IPEXRUN_DECLARE_LINEAR_S8(isa)                                                                                                    \
  namespace ipexrun::kernels::isa {                                                                                                       \
  void linear_s8_finish(const LinearS8Args& args, std::int64_t panel, const PanelS8& columns, const std::int32_t* sums, std::int64_t row, \
                        std::int64_t rows);                                                                                               \
  }
IPEXRUN_DECLARE_LINEAR_S8(avx2)
IPEXRUN_DECLARE_LINEAR_S8(avx512)
#undef IPEXRUN_DECLARE_LINEAR_S8
