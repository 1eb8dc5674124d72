// The truth of batched, see batched.cpp.
#pragma once

#include "kernels/batched.h"

namespace ipexrun::kernels::ref {

/// Matrices [begin, end). Operands are rounded to bf16 where args.bf16_inside says so.
void batched(const BatchedArgs& args, std::int64_t begin, std::int64_t end);

}  // namespace ipexrun::kernels::ref
