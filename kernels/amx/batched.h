// See batched.cpp.
#pragma once

#include "kernels/batched_variants.h"

namespace ipexrun::kernels::amx {
std::int64_t batched_tiles_bytes(std::int64_t k);
void batched_tiles_begin();
void batched_tiles_end();
void batched_tiles(const BatchedTiles& args);
}  // namespace ipexrun::kernels::amx
