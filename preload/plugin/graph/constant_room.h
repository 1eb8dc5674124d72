// How many bytes the graphs of one owner may keep of what they compute from numbers alone (fold_constants.cpp): where sizes change it has
// as many masks as there were sizes.
#pragma once

#include <cstdint>

namespace ipexrun::preload::graph {

/// While it lives what this thread's passes keep comes out of `left`, which outlives it. Does not nest.
class ConstantRoom {
 public:
  explicit ConstantRoom(std::int64_t* left) noexcept;
  ~ConstantRoom();
  ConstantRoom(const ConstantRoom&) = delete;
  ConstantRoom& operator=(const ConstantRoom&) = delete;

  /// False where that is more than is left.
  static bool take(std::int64_t bytes) noexcept;
};

}  // namespace ipexrun::preload::graph
