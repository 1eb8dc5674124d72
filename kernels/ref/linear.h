// The reference variant of linear, see dispatch.h for what the functions mean.
#pragma once

#include "kernels/dispatch.h"

namespace ipexrun::kernels::ref {

std::size_t linear_scratch_bytes(const LinearArgs& args, const LinearBlock& block);
void linear(const LinearArgs& args, const LinearBlock& block, void* scratch);

/// The epilogue of a sum that belongs at (row, column), not rounded.
double finished(const Epilogue& epilogue, std::int64_t row, std::int64_t column, double sum);

}  // namespace ipexrun::kernels::ref
