// The parts of batched made from simd/batched.cpp and simd/batched_pack.cpp, one namespace an instruction set; see dispatch.h.
#pragma once

#include "kernels/batched_variants.h"

namespace ipexrun::kernels::avx2 {
void batched_rows(const BatchedRows& args);
void batched_dots(const BatchedRows& args);
void batched_widen(const void* from, DType dtype, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t ld);
void batched_finish(const float* sums, std::int64_t ld, std::int64_t rows, std::int64_t columns, const BatchedPlace& to);
}  // namespace ipexrun::kernels::avx2
namespace ipexrun::kernels::avx512 {
void batched_rows(const BatchedRows& args);
void batched_dots(const BatchedRows& args);
void batched_widen(const void* from, DType dtype, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* to, std::int64_t ld);
void batched_finish(const float* sums, std::int64_t ld, std::int64_t rows, std::int64_t columns, const BatchedPlace& to);
}  // namespace ipexrun::kernels::avx512
namespace ipexrun::kernels::avx512_bf16 {
void batched_pack(const BatchedPanels& args);
}
