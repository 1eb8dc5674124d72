// How products with small weights go over the variants of linear: a part of the columns is unpacked to panels of bf16 and multiplied, then
// the next. For sources that are compiled for the base instruction set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/packed.h"

namespace ipexrun::kernels {

struct UnpackedPart {
  std::int64_t panels;
  std::int64_t rows;  ///< that one call of linear multiplies
  std::size_t b_bytes;
  std::size_t products_bytes;  ///< scratch of linear
};

/// `shape`: M, K and dtypes of the whole, whose panels are shared by `workers` as begin_of() says. Parts lie in L2 where few rows use them;
/// of many rows they are as large as spares converting A once more a part.
inline UnpackedPart unpacked_part(const LinearVariant& products, LinearArgs shape, std::int64_t all_panels, std::int64_t workers) {
  constexpr std::int64_t kPartBytes = 512 << 10;
  constexpr std::int64_t kPartBytesOfManyRows = 4 << 20;
  constexpr std::int64_t kManyRows = 64;
  constexpr std::int64_t kRowBlock = 256;
  const std::int64_t all_rows = shape.m;
  const std::int64_t panel_bytes = steps_of(shape.k) * kStepBytes;
  const std::int64_t fit = (shape.m > kManyRows ? kPartBytesOfManyRows : kPartBytes) / panel_bytes;
  UnpackedPart part{};
  part.panels = std::min(std::max<std::int64_t>(fit, 1), ceil_div(all_panels, workers));
  part.rows = std::min(kRowBlock, shape.m);
  part.b_bytes = static_cast<std::size_t>(part.panels * panel_bytes);
  // What is left at an end may want more than a whole part: linear cuts it otherwise.
  for (const std::int64_t panels : {all_panels / workers, ceil_div(all_panels, workers)}) {
    for (const std::int64_t here : {std::min(part.panels, panels), panels % part.panels}) {
      for (const std::int64_t rows : {part.rows, all_rows % part.rows}) {
        if (here == 0 || rows == 0) continue;
        shape.m = rows;
        shape.n = here * kPanelColumns;
        part.products_bytes = std::max(part.products_bytes, products.scratch_bytes(shape, {0, rows, 0, here}));
      }
    }
  }
  return part;
}

}  // namespace ipexrun::kernels
