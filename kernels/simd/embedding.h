// The variants made from simd/embedding.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/embedding.h"

#define IPEXRUN_DECLARE_EMBEDDING(isa)                                                             \
  namespace ipexrun::kernels::isa {                                                                \
  bool embedding_bags(const EmbeddingBagArgs& args, std::int64_t bag_begin, std::int64_t bag_end); \
  }
IPEXRUN_DECLARE_EMBEDDING(avx2)
IPEXRUN_DECLARE_EMBEDDING(avx512)
#undef IPEXRUN_DECLARE_EMBEDDING
