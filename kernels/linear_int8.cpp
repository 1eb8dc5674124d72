// Chooses between dot products and unpacking, and cuts the columns among the workers. Compiled for the base instruction set.
#include "kernels/linear_int8.h"

#include <algorithm>
#include <string_view>

#include "kernels/bf16.h"
#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/share.h"
#include "kernels/unpacked.h"

namespace ipexrun::kernels {
namespace {

/// Below this many multiply-adds a call is shorter than waking a second worker.
constexpr std::int64_t kSerialProducts = 1 << 18;
/// Up to so many rows dot products take as long as reading B; of more, B would be converted again and again.
constexpr std::int64_t kFewRows = 4;
constexpr std::int64_t kLeastRowsOfTiles = 5;
constexpr std::int64_t kRowsOfTiles = 64;
constexpr std::int64_t kColumnUnit = 4;
constexpr std::int64_t kRowsBytes = 512 << 10;  // of A as fp32, which stays in L2

const LinearInt8Variant& variant_for(IsaSet isa) { return choose(linear_int8_variants(), isa); }
const LinearVariant& products_for(IsaSet isa) { return choose(linear_variants(), isa); }

bool takes_tiles(const LinearInt8Args& args, IsaSet isa) {
  return args.m >= kLeastRowsOfTiles && args.m <= kRowsOfTiles && args.k > 0 && args.a_dtype == DType::kBf16 &&
         variant_for(isa).columns != nullptr;
}

bool unpacks(const LinearInt8Args& args, IsaSet isa) {
  return !takes_tiles(args, isa) && args.m > kFewRows && args.k > 0 && args.a_dtype == DType::kBf16 && variant_for(isa).unpack != nullptr &&
         products_for(isa).native;
}

float scale_of(const LinearInt8Args& args, std::int64_t column) {
  return args.scales_dtype == DType::kF32 ? static_cast<const float*>(args.scales)[column]
                                          : bf16_to_f32(static_cast<const std::uint16_t*>(args.scales)[column]);
}

void* at_c(const LinearInt8Args& args, std::int64_t row, std::int64_t column) {
  return static_cast<char*>(args.c) + (row * args.ldc + column) * bytes_of(args.c_dtype);
}

// ---- dot products -----------------------------------------------------------------------------------------------------------------

std::int64_t padded(std::int64_t k) { return ceil_div(k, kStepK) * kStepK; }

std::int64_t rows_at_once(const LinearInt8Args& args) {
  const std::int64_t fit = kRowsBytes / (std::max<std::int64_t>(padded(args.k), 1) * 4) / kFewRows * kFewRows;
  return std::min(std::max(fit, kFewRows), args.m);
}

void as_floats(const LinearInt8Args& args, std::int64_t row, float* to) {
  if (args.a_dtype == DType::kF32) {
    const float* from = static_cast<const float*>(args.a) + row * args.lda;
    std::copy(from, from + args.k, to);
  } else {
    const std::uint16_t* from = static_cast<const std::uint16_t*>(args.a) + row * args.lda;
    for (std::int64_t i = 0; i < args.k; ++i) to[i] = bf16_to_f32(from[i]);
  }
  std::fill(to + args.k, to + padded(args.k), 0.0f);
}

/// Sums of `rows` rows from `row` on and of columns first, first + apart, ... to C.
void write_sums(const LinearInt8Args& args, const float* sums, std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t apart,
                std::int64_t columns) {
  for (std::int64_t c = 0; c < columns; ++c) {
    const float scale = scale_of(args, first + c * apart);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float value = sums[r * kColumnUnit + c] * scale;
      void* to = at_c(args, row + r, first + c * apart);
      if (args.c_dtype == DType::kF32) {
        *static_cast<float*>(to) = value;
      } else {
        *static_cast<std::uint16_t*>(to) = bf16_from_f32(value);
      }
    }
  }
}

/// Calls run(first, apart, columns) for columns first, first + apart, ... until all of [begin, end) had their turn. Those of a call lie a
/// quarter of the whole apart, so that each of them is a stream of its own through memory.
template <typename Run>
void walk_columns(std::int64_t begin, std::int64_t end, const Run& run) {
  const std::int64_t apart = (end - begin) / kColumnUnit;
  for (std::int64_t i = 0; i < apart; ++i) run(begin + i, apart, kColumnUnit);
  for (std::int64_t column = begin + apart * kColumnUnit; column < end; ++column) run(column, 1, 1);
}

/// Columns [begin, end) of all rows.
void dot_products(const LinearInt8Args& args, const LinearInt8Variant& variant, std::int64_t begin, std::int64_t end, void* scratch) {
  float sums[kFewRows * kColumnUnit];
  const std::int64_t length = padded(args.k);
  auto* a = static_cast<float*>(scratch);
  const std::int64_t block = rows_at_once(args);
  for (std::int64_t row = 0; row < args.m; row += block) {
    const std::int64_t rows = std::min(block, args.m - row);
    for (std::int64_t r = 0; r < rows; ++r) as_floats(args, row + r, a + r * length);
    walk_columns(begin, end, [&](std::int64_t first, std::int64_t apart, std::int64_t columns) {
      for (std::int64_t r = 0; r < rows; r += kFewRows) {
        const std::int64_t here = std::min(kFewRows, rows - r);
        variant.dot(a + r * length, length, here, args.b + first * args.ldb, apart * args.ldb, columns, args.k, sums);
        write_sums(args, sums, row + r, here, first, apart, columns);
      }
    });
  }
}

// ---- unpacked products ------------------------------------------------------------------------------------------------------------

LinearArgs products_of(const LinearInt8Args& args, std::int64_t row, std::int64_t rows, std::int64_t columns, std::int64_t width,
                       const void* b, float* sums) {
  LinearArgs products;
  products.a = static_cast<const std::uint16_t*>(args.a) + row * args.lda;
  products.a_dtype = DType::kBf16;
  products.lda = args.lda;
  products.packed_b = b;
  products.c = sums;
  products.ldc = width;
  products.m = rows;
  products.n = columns;
  products.k = args.k;
  return products;
}

std::int64_t sums_bytes(const UnpackedPart& part) { return part.rows * part.panels * kPanelColumns * 4; }
std::int64_t scales_bytes(const UnpackedPart& part) { return part.panels * kPanelColumns * 4; }
std::size_t bytes_of_part(const UnpackedPart& part) {
  return part.b_bytes + static_cast<std::size_t>(sums_bytes(part) + scales_bytes(part)) + part.products_bytes;
}

/// Panels [begin, end) of 32 columns, all rows.
void unpacked_products(const LinearInt8Args& args, IsaSet isa, const UnpackedPart& part, std::int64_t begin, std::int64_t end,
                       char* scratch) {
  const LinearInt8Variant& variant = variant_for(isa);
  char* b = scratch;
  auto* sums = reinterpret_cast<float*>(b + part.b_bytes);
  auto* scales = reinterpret_cast<float*>(b + part.b_bytes + sums_bytes(part));
  char* rest = reinterpret_cast<char*>(scales) + scales_bytes(part);
  for (std::int64_t first = begin; first < end; first += part.panels) {
    const std::int64_t panels = std::min(part.panels, end - first);
    const std::int64_t column = first * kPanelColumns;
    const std::int64_t columns = std::min(panels * kPanelColumns, args.n - column);
    for (std::int64_t p = 0; p < panels; ++p) {
      const std::int64_t at = p * kPanelColumns;
      variant.unpack(args.b + (column + at) * args.ldb, args.ldb, std::min(kPanelColumns, columns - at), args.k,
                     reinterpret_cast<std::uint16_t*>(b + p * steps_of(args.k) * kStepBytes));
    }
    for (std::int64_t i = 0; i < columns; ++i) scales[i] = scale_of(args, column + i);
    for (std::int64_t row = 0; row < args.m; row += part.rows) {
      const std::int64_t rows = std::min(part.rows, args.m - row);
      const std::int64_t width = panels * kPanelColumns;
      products_for(isa).run(products_of(args, row, rows, columns, width, b, sums), {0, rows, 0, panels}, rest);
      for (std::int64_t r = 0; r < rows; ++r) variant.finish(sums + r * width, scales, columns, args.c_dtype, at_c(args, row + r, column));
    }
  }
}

}  // namespace

bool linear_int8_supported(const LinearInt8Args& args, IsaSet isa) {
  return args.m > 0 && args.n > 0 && args.k > 0 && variant_for(isa).needs != 0;
}

const char* linear_int8_variant(const LinearInt8Args& args, IsaSet isa) {
  const LinearInt8Variant& variant = variant_for(isa);
  if (takes_tiles(args, isa)) return variant.name;
  if (!unpacks(args, isa)) return variant.columns == nullptr ? variant.name : "avx512";
  return std::string_view(products_for(isa).name) == "amx_bf16" ? "avx512+amx_bf16" : "avx512+avx512_bf16";
}

bool linear_int8(const LinearInt8Args& args, const Parallel& parallel, IsaSet isa) {
  if (args.m <= 0 || args.n <= 0) return true;
  const bool large = args.m * args.n > kSerialProducts / std::max<std::int64_t>(args.k, 1);
  if (unpacks(args, isa)) {
    const std::int64_t panels = panels_of(args.n);
    const std::int64_t parts = parts_of(panels, large, parallel);
    const UnpackedPart part =
        unpacked_part(products_for(isa), products_of(args, 0, args.m, args.n, args.n, nullptr, nullptr), panels, parts);
    return share(parts, bytes_of_part(part), parallel, [&](std::int64_t index, void* scratch) {
      unpacked_products(args, isa, part, begin_of(panels, index, parts), begin_of(panels, index + 1, parts), static_cast<char*>(scratch));
      return true;
    });
  }
  // Without a K there is nothing to multiply: the reference writes zeros.
  const LinearInt8Variants table = linear_int8_variants();
  const LinearInt8Variant& variant = args.k > 0 ? variant_for(isa) : table.first[table.count - 1];
  const bool tiles = takes_tiles(args, isa);
  const std::int64_t units = ceil_div(args.n, kColumnUnit);
  const std::int64_t parts = parts_of(units, large, parallel);
  auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(rows_at_once(args) * padded(args.k) * 4, 64));
  if (tiles) bytes = std::max(bytes, variant.scratch_bytes(args));
  return share(parts, bytes, parallel, [&](std::int64_t index, void* scratch) {
    const std::int64_t begin = begin_of(units, index, parts) * kColumnUnit;
    const std::int64_t end = std::min(begin_of(units, index + 1, parts) * kColumnUnit, args.n);
    if (!tiles || !variant.columns(args, begin, end, scratch)) dot_products(args, variant, begin, end, scratch);
    return true;
  });
}

}  // namespace ipexrun::kernels
