// The AMX variant of linear_int8, see dispatch.h.
#pragma once

#include <cstddef>

#include "kernels/linear_int8.h"

namespace ipexrun::kernels::amx_avx512_fp16 {

std::size_t int8_scratch_bytes(const LinearInt8Args& args);
bool int8_columns(const LinearInt8Args& args, std::int64_t begin, std::int64_t end, void* scratch);

}  // namespace ipexrun::kernels::amx_avx512_fp16
