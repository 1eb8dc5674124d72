// The reference variant of pointwise, see dispatch.h.
#pragma once

#include "kernels/pointwise.h"

namespace ipexrun::kernels::ref {

/// One instruction on one element, not rounded.
double point_of(Point what, double a, double b, double c);
void point_load(const void* from, PointType type, std::int64_t stride, std::int64_t n, std::int64_t next_row, std::int64_t rows, float* to);
void point_run(const PointInstruction* instructions, int count, float* const* slots, std::int64_t n);
void point_store(const float* from, PointType type, std::int64_t stride, std::int64_t n, void* to);

}  // namespace ipexrun::kernels::ref
