// The AMX variant of linear_int4, see dispatch.h.
#pragma once

#include <cstddef>

#include "kernels/linear_int4.h"

namespace ipexrun::kernels::amx {

std::size_t int4_scratch_bytes(const LinearInt4Args& args);
void int4_blocks(const LinearInt4Args& args, std::int64_t begin, std::int64_t end, const float* sums, void* scratch);

}  // namespace ipexrun::kernels::amx
