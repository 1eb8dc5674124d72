// The reference variant of topk, see dispatch.h.
#pragma once

#include "kernels/topk.h"

namespace ipexrun::kernels::ref {

std::int64_t topk_collect(const float* from, std::int64_t begin, std::int64_t end, bool largest, std::int32_t bar, std::int64_t* kept,
                          std::int64_t limit, std::int64_t* count);

}  // namespace ipexrun::kernels::ref
