// The one rule by which every kernel picks its variant from a table of variants.cpp.
#pragma once

#include <cstddef>

#include "configs/base/isa.h"

namespace ipexrun::kernels {

/// The first variant of `table` that `isa` allows; the last one, the reference, needs nothing.
template <typename Table>
const auto& choose(const Table& table, IsaSet isa) {
  std::size_t i = 0;
  while (i + 1 < table.count && !isa_has(isa, table.first[i].needs)) ++i;
  return table.first[i];
}

}  // namespace ipexrun::kernels
