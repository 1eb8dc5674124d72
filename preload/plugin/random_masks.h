// How many masks were drawn by our kernel, for report(). Registration: register.h.
#pragma once

#include <cstdint>

namespace ipexrun::preload {

/// Calls of bernoulli_ in this process that torch did not draw.
std::uint64_t random_masks_taken() noexcept;

}  // namespace ipexrun::preload
