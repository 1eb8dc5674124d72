// Lists of sizes in the arguments of convolutions, read as numbers.
#pragma once

#include <c10/core/SymIntArrayRef.h>

#include "preload/plugin/adapters/convolution_call.h"

namespace ipexrun::preload::adapters {

/// A symbolic list as numbers, the last spatial dimension last; one number stands for all dimensions.
inline bool read(Spatial* to, c10::SymIntArrayRef from, std::int64_t dims) {
  const auto count = static_cast<std::int64_t>(from.size());
  if (count != dims && count != 1) return false;
  for (std::int64_t i = 0; i < dims; ++i) {
    const auto value = from[static_cast<std::size_t>(count == 1 ? 0 : i)].maybe_as_int();
    if (!value) return false;
    (*to)[static_cast<std::size_t>(3 - dims + i)] = *value;
  }
  return true;
}

inline bool positive(const Spatial& sizes) { return sizes[0] > 0 && sizes[1] > 0 && sizes[2] > 0; }
inline bool not_negative(const Spatial& sizes) { return sizes[0] >= 0 && sizes[1] >= 0 && sizes[2] >= 0; }

}  // namespace ipexrun::preload::adapters
