// The variants made from simd/resize.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/resize.h"

#define IPEXRUN_DECLARE_RESIZE(isa)                                                                 \
  namespace ipexrun::kernels::isa {                                                                 \
  void resize(const ResizeArgs& args, std::int64_t row_begin, std::int64_t row_end, void* scratch); \
  }
IPEXRUN_DECLARE_RESIZE(avx2)
IPEXRUN_DECLARE_RESIZE(avx512)
#undef IPEXRUN_DECLARE_RESIZE
