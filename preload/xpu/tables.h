// One launch over the elements of many tensors: their addresses lie in a table in device memory, not in arguments.
//
// A table that was used before, with the same addresses, is used again; the device keeps the last ones (a ring of 1 MiB for each stream
// that asks). Work groups take chunks of kChunk elements, so that tensors of any size load the device evenly (TABLE of common.cl).
#pragma once

#include <array>
#include <vector>

#include "preload/xpu/grid.h"

namespace ipexrun::preload::xpu {

constexpr std::int64_t kChunk = 4096;  ///< CHUNK of common.cl

/// A tensor of each of up to six lists, and what belongs to them: Row of common.cl.
struct Row {
  std::array<std::uint64_t, 6> address{};
  std::int64_t elements = 0;
  std::uint64_t number = 0;  ///< the bits of a float or double
};

/// False: this device's kernels cannot follow addresses in memory; nothing was done. The kernel's first arguments are those of TABLE, then
/// come `rest`. All tensors are on the device of `on`.
bool launch_table(const at::Tensor& on, Kernel& kernel, const std::vector<Row>& rows, const std::vector<Argument>& rest);

/// Whether launch_table() can do anything there.
bool has_tables(const at::Tensor& on);

}  // namespace ipexrun::preload::xpu
