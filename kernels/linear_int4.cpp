// Chooses between dot products and unpacking, and cuts the columns among the workers. Compiled for the base instruction set.
#include "kernels/linear_int4.h"

#include <algorithm>

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/share.h"
#include "kernels/unpacked.h"

namespace ipexrun::kernels {
namespace {

/// Below this many multiply-adds a call is shorter than waking a second worker.
constexpr std::int64_t kSerialProducts = 1 << 18;
/// Unpacking takes as long as dot products of so many rows.
constexpr std::int64_t kFewRows = 12;
constexpr std::int64_t kRowsOfTiles = 256;  ///< of more, sharing unpacked W among tiles of rows saves more than its rounding costs
constexpr std::int64_t kRowsAtOnce = 4;

bool fits(const LinearInt4Args& args) {
  return args.m > 0 && args.n > 0 && args.k > 0 && args.group > 0 && args.n % kInt4Columns == 0 && args.group % kStepK == 0 &&
         args.k % args.group == 0;
}

bool takes_tiles(const LinearInt4Args& args, const LinearInt4Variant& variant) {
  return variant.blocks != nullptr && args.m <= kRowsOfTiles;
}

/// A multiple of 64.
std::size_t bytes_of_sums(const LinearInt4Args& args) {
  return static_cast<std::size_t>(ceil_div(args.m * (args.k / args.group) * 4, 64) * 64);
}

/// Blocks [begin, end) of 64 columns.
bool dot_products(const LinearInt4Args& args, const LinearInt4Variant& variant, std::int64_t begin, std::int64_t end, char* scratch) {
  auto* sums = reinterpret_cast<float*>(scratch);
  const bool plain = variant.group_sums != nullptr && variant.group_sums(args, sums);
  if (plain && takes_tiles(args, variant)) {
    variant.blocks(args, begin, end, sums, scratch + bytes_of_sums(args));
    return true;
  }
  const auto dot = plain ? variant.dot : linear_int4_variants().first[linear_int4_variants().count - 1].dot;
  const std::int64_t groups = args.k / args.group;
  for (std::int64_t block = begin; block < end; ++block) {
    for (std::int64_t row = 0; row < args.m; row += kRowsAtOnce)
      dot(args, block, row, std::min(kRowsAtOnce, args.m - row), sums + row * groups);
  }
  return true;
}

LinearArgs products_of(const LinearInt4Args& args, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                       const void* b) {
  LinearArgs products;
  products.a = args.a + row * args.lda;
  products.a_dtype = DType::kBf16;
  products.lda = args.lda;
  products.packed_b = b;
  products.c = args.c + row * args.ldc + column;
  products.c_dtype = DType::kBf16;
  products.ldc = args.ldc;
  products.m = rows;
  products.n = columns;
  products.k = args.k;
  return products;
}

/// Panels [begin, end) of 32 columns, all rows.
void unpacked_products(const LinearInt4Args& args, const LinearInt4Variant& variant, const LinearVariant& products,
                       const UnpackedPart& part, std::int64_t begin, std::int64_t end, char* scratch) {
  for (std::int64_t first = begin; first < end; first += part.panels) {
    const std::int64_t panels = std::min(part.panels, end - first);
    for (std::int64_t p = 0; p < panels; ++p)
      variant.unpack(args, first + p, reinterpret_cast<std::uint16_t*>(scratch + p * steps_of(args.k) * kStepBytes));
    for (std::int64_t row = 0; row < args.m; row += part.rows) {
      const std::int64_t rows = std::min(part.rows, args.m - row);
      products.run(products_of(args, row, rows, first * kPanelColumns, panels * kPanelColumns, scratch), {0, rows, 0, panels},
                   scratch + part.b_bytes);
    }
  }
}

}  // namespace

bool linear_int4_supported(const LinearInt4Args& args, IsaSet isa) { return fits(args) && choose(linear_int4_variants(), isa).needs != 0; }

const char* linear_int4_variant(IsaSet isa) { return choose(linear_int4_variants(), isa).name; }

bool linear_int4(const LinearInt4Args& args, const Parallel& parallel, IsaSet isa) {
  if (!fits(args)) return args.m <= 0 || args.n <= 0;
  const LinearInt4Variant& variant = choose(linear_int4_variants(), isa);
  const LinearVariant& products = choose(linear_variants(), isa);
  const bool large = args.m * args.n > kSerialProducts / args.k;
  if (args.m > kFewRows && !takes_tiles(args, variant) && variant.unpack != nullptr && products.native) {
    const std::int64_t panels = args.n / kPanelColumns;
    const std::int64_t parts = parts_of(panels, large, parallel);
    const UnpackedPart part = unpacked_part(products, products_of(args, 0, args.m, 0, args.n, nullptr), panels, parts);
    return share(parts, part.b_bytes + part.products_bytes, parallel, [&](std::int64_t index, void* scratch) {
      unpacked_products(args, variant, products, part, begin_of(panels, index, parts), begin_of(panels, index + 1, parts),
                        static_cast<char*>(scratch));
      return true;
    });
  }
  const std::int64_t blocks = args.n / kInt4Columns;
  const std::int64_t parts = parts_of(blocks, large, parallel);
  const std::size_t bytes = bytes_of_sums(args) + (takes_tiles(args, variant) ? variant.scratch_bytes(args) : 0);
  return share(parts, bytes, parallel, [&](std::int64_t index, void* scratch) {
    return dot_products(args, variant, begin_of(blocks, index, parts), begin_of(blocks, index + 1, parts), static_cast<char*>(scratch));
  });
}

}  // namespace ipexrun::kernels
