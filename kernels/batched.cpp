// Chooses the variant and the method, cuts a batch among the workers and gives each its scratch. Compiled for the base instruction set.
#include "kernels/batched.h"

#include <algorithm>
#include <atomic>

#include "kernels/batched_variants.h"
#include "kernels/bf16.h"
#include "kernels/caches.h"
#include "kernels/choose.h"
#include "kernels/grid.h"
#include "kernels/ref/batched.h"
#include "kernels/scratch.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

constexpr std::int64_t kFewRows = 64;     // of A as fp32 at once
constexpr std::int64_t kFewColumns = 64;  // of B, where it has to be copied
constexpr std::int64_t kDotRows = 4;      // up to so many rows, and of at least kDotDepth, dot products cost less than turning B
constexpr std::int64_t kDotDepth = 16;
constexpr std::int64_t kPartRows = 256;  // that one call of linear multiplies

constexpr std::int64_t kShortDepth = 512;
constexpr std::int64_t kTinyElements = 48;  // a transpose of so few costs more than moving each

constexpr std::int64_t kTinyProducts = 4096;  // so few need no tiles
constexpr std::int64_t kFewRowsOfB = 4;       // nor do so few rows of A, whose B lies by rows

enum class Method { kReference, kFew, kShort, kTiles, kBlocks };

/// A call as it will be computed.
struct Plan {
  BatchedArgs args;
  const BatchedVariant* variant = nullptr;
  Method method = Method::kReference;
  std::int64_t row_parts = 1;
  std::int64_t column_parts = 1;
  bool a_copied = false;         // rows of A go through scratch
  bool b_copied = false;         // few rows: columns of B do
  bool dots = false;             // few rows: B lies by columns and stays where it is
  bool staged = false;           // sums go through scratch
  std::int64_t a_element = 4;    // bytes, as copied
  std::int64_t part_panels = 0;  // of B in scratch
  std::int64_t part_rows = 0;
  // Places in scratch, in bytes.
  std::size_t b = 0;
  std::size_t a = 0;
  std::size_t stage = 0;
  std::size_t products = 0;
  std::size_t bytes = 0;
};

std::size_t rounded(std::int64_t bytes) { return static_cast<std::size_t>(ceil_div(bytes, 64) * 64); }

const char* element(const BatchedMatrix& x, std::int64_t batch, std::int64_t row, std::int64_t column) {
  return static_cast<const char*>(x.data) + (batch * x.batch + row * x.row + column * x.column) * bytes_of(x.dtype);
}

/// Strides of dimensions that have one element become what suits; a column of results is computed as a row.
void normalize(BatchedArgs* args) {
  if (args->n == 1 && args->m > 1 && args->ldo == 1) {
    std::swap(args->a, args->b);
    std::swap(args->m, args->n);
    for (BatchedMatrix* x : {&args->a, &args->b, &args->c}) std::swap(x->row, x->column);
    args->ldo = args->n;
  }
  if (args->n == 1 && args->b.row != 1) args->b.column = 1;
  if (args->k == 1 && args->b.column != 1) args->b.row = 1;
  if (args->k == 1) args->a.column = 1;
  if (args->beta == 0) args->c.data = nullptr;
}

Method method_of(const BatchedArgs& args, const BatchedVariant& variant) {
  if (variant.needs == 0) return Method::kReference;
  const std::int64_t products = args.m * args.n * args.k;
  // Without AMX bf16 products of fp32 operands take longer than those in fp32.
  const bool inside = args.bf16_inside && variant.short_tiles != nullptr;
  if (variant.tiles != nullptr && (inside || args.a.dtype == DType::kBf16)) {
    // A matrix of one row is not worth packing; of few, only where B lies by columns.
    const bool few = products <= kTinyProducts || args.m <= (args.b.column == 1 ? kFewRowsOfB : 1);
    return few ? Method::kFew : variant.short_tiles != nullptr && args.k <= kShortDepth ? Method::kShort : Method::kTiles;
  }
  return args.m <= 8 || products <= 32768 ? Method::kFew : Method::kBlocks;
}

/// What the products of a unit want, for the sizes that cutting it gives.
std::size_t products_bytes(const Plan& plan, std::int64_t unit_rows, std::int64_t unit_panels) {
  std::size_t most = 0;
  for (const std::int64_t panels : {std::min(plan.part_panels, unit_panels), unit_panels % plan.part_panels}) {
    for (const std::int64_t rows : {std::min(plan.part_rows, unit_rows), unit_rows % plan.part_rows}) {
      if (panels == 0 || rows == 0) continue;
      const LinearBlock block{0, rows, 0, panels, l2_bytes(), l1_bytes()};
      if (plan.method == Method::kTiles) {
        LinearArgs shape;
        shape.m = rows;
        shape.n = panels * kPanelColumns;
        shape.k = plan.args.k;
        most = std::max(most, plan.variant->tiles->scratch_bytes(shape, block));
      } else {
        LinearF32Args shape;
        shape.m = rows;
        shape.n = panels * kPanelColumns;
        shape.k = plan.args.k;
        most = std::max(most, plan.variant->blocks->scratch_bytes(shape, block));
      }
    }
  }
  return most;
}

void plan_few(Plan* plan) {
  const BatchedArgs& args = plan->args;
  plan->a_copied = args.a.dtype != DType::kF32 || args.a.column != 1;
  plan->dots = args.b.column != 1 && args.b.row == 1 && args.m <= kDotRows && args.k >= kDotDepth;
  plan->b_copied = args.b.column != 1 && !plan->dots;
  plan->a = plan->b_copied ? rounded(args.k * kFewColumns * 4) : 0;
  plan->bytes = plan->a + (plan->a_copied ? rounded(std::min(args.m, kFewRows) * args.k * 4) : 0);
}

void plan_panels(Plan* plan) {
  const std::int64_t part_bytes = l2_bytes() / 4;  // of packed B, in L2 beside what uses it
  constexpr std::int64_t kPartBytesOfManyRows = 4 << 20;
  constexpr std::int64_t kManyRows = 64;
  constexpr std::int64_t kStageBytes = 512 << 10;
  const BatchedArgs& args = plan->args;
  const bool tiles = plan->method != Method::kBlocks;
  const std::int64_t panel_bytes = tiles ? steps_of(args.k) * kStepBytes : panel_bytes_f32(args.k, false);
  const std::int64_t row_units = ceil_div(args.m, kRowUnit);
  const std::int64_t unit_rows = std::min(ceil_div(row_units, plan->row_parts) * kRowUnit, args.m);
  const std::int64_t unit_panels = ceil_div(panels_of(args.n), plan->column_parts);
  plan->a_copied = args.a.column != 1 || (!tiles && args.a.dtype != DType::kF32);
  plan->a_element = tiles ? 2 : 4;
  plan->staged = plan->method != Method::kShort && (args.alpha != 1 || args.c.data != nullptr || (!tiles && args.out_dtype != DType::kF32));
  plan->part_rows = std::min(kPartRows, unit_rows);
  std::int64_t fit = (unit_rows > kManyRows ? kPartBytesOfManyRows : part_bytes) / panel_bytes;
  if (plan->staged) fit = std::min(fit, kStageBytes / (plan->part_rows * kPanelColumns * 4));
  plan->part_panels = std::min(std::max<std::int64_t>(fit, 1), unit_panels);
  plan->a = rounded(plan->part_panels * panel_bytes);
  plan->stage = plan->a + (plan->a_copied ? rounded(plan->part_rows * args.k * plan->a_element) : 0);
  plan->products = plan->stage + (plan->staged ? rounded(plan->part_rows * plan->part_panels * kPanelColumns * 4) : 0);
  if (plan->method == Method::kShort) {
    plan->bytes = plan->products + rounded(plan->variant->short_tiles_bytes(args.k));
    return;
  }
  std::size_t most = 0;
  for (const std::int64_t panels : {unit_panels, panels_of(args.n) / plan->column_parts}) {
    // The last rows may be fewer than a whole unit of rows would be.
    for (const std::int64_t units : {ceil_div(row_units, plan->row_parts), row_units / plan->row_parts}) {
      const std::int64_t rows = std::min(units * kRowUnit, args.m);
      most = std::max(most, products_bytes(*plan, rows, panels));
      if (plan->row_parts == 1) break;
      most = std::max(most, products_bytes(*plan, rows - (row_units * kRowUnit - args.m), panels));
    }
    if (plan->column_parts == 1) break;
  }
  plan->bytes = plan->products + most;
}

/// Parts of a matrix by rows and columns, those with the smallest estimate for the worker that has most: as in grid.h, with packing B.
void choose_parts(Plan* plan, std::int64_t threads) {
  const BatchedArgs& args = plan->args;
  if (threads <= 1 || args.batch >= 8 * threads) return;
  const std::int64_t row_units = ceil_div(args.m, kRowUnit);
  const std::int64_t panels = panels_of(args.n);
  const std::int64_t rows_most = plan->method == Method::kFew ? 1 : std::min(threads, row_units);
  double best = -1;
  for (std::int64_t rows = 1; rows <= rows_most; ++rows) {
    for (std::int64_t columns = 1; columns <= panels && rows * columns <= threads; ++columns) {
      const auto rounds = static_cast<double>(ceil_div(args.batch * rows * columns, threads));
      const auto units = static_cast<double>(ceil_div(row_units, rows));
      const auto width = static_cast<double>(ceil_div(panels, columns));
      const double cost = rounds * (units * width + units + 4.0 * width);
      if (best < 0 || cost < best * 0.98) {  // more parts have to pay
        best = cost;
        plan->row_parts = rows;
        plan->column_parts = columns;
      }
    }
  }
}

Plan plan_of(const BatchedArgs& args, const BatchedVariant& variant, const Parallel& parallel) {
  constexpr double kSerialProducts = 1 << 18;
  Plan plan;
  plan.args = args;
  normalize(&plan.args);
  plan.variant = &variant;
  plan.method = args.k > 0 ? method_of(plan.args, variant) : Method::kReference;
  const double each = static_cast<double>(args.m) * static_cast<double>(args.n) * static_cast<double>(args.k) + 512;
  const bool large = parallel.run != nullptr && each * static_cast<double>(args.batch) > kSerialProducts;
  if (plan.method != Method::kReference) choose_parts(&plan, large ? parallel.threads : 1);
  if (plan.method == Method::kFew) plan_few(&plan);
  if (plan.method == Method::kShort || plan.method == Method::kTiles || plan.method == Method::kBlocks) plan_panels(&plan);
  return plan;
}

BatchedPlace place_of(const BatchedArgs& args, std::int64_t batch, std::int64_t row, std::int64_t column) {
  BatchedPlace to;
  to.out = static_cast<char*>(args.out) + (batch * args.out_batch + row * args.ldo + column) * bytes_of(args.out_dtype);
  to.out_dtype = args.out_dtype;
  to.ldo = args.ldo;
  if (args.c.data != nullptr) to.c = element(args.c, batch, row, column);
  to.c_dtype = args.c.dtype;
  to.c_row = args.c.row;
  to.c_column = args.c.column;
  to.alpha = args.alpha;
  to.beta = args.beta;
  return to;
}

/// rows x columns elements of a matrix from (row, column) on to `to`, rows of adjacent elements `ld` apart, as fp32 or (2 bytes) bf16.
void copy(const BatchedVariant& variant, const BatchedMatrix& x, std::int64_t batch, std::int64_t row, std::int64_t rows,
          std::int64_t column, std::int64_t columns, void* to, std::int64_t ld, std::int64_t bytes) {
  const char* from = element(x, batch, row, column);
  if (x.column == 1 && bytes == 4) {
    variant.widen(from, x.dtype, x.row, rows, columns, static_cast<float*>(to), ld);
  } else if (x.row == 1 && rows * columns > kTinyElements) {
    variant.transpose({from, x.column, to, ld, columns, rows, x.dtype, bytes == 4 ? DType::kF32 : DType::kBf16});
  } else {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t at = r * x.row + j * x.column;
        const float value = x.dtype == DType::kF32 ? reinterpret_cast<const float*>(from)[at]
                                                   : bf16_to_f32(reinterpret_cast<const std::uint16_t*>(from)[at]);
        if (bytes == 4) {
          static_cast<float*>(to)[r * ld + j] = value;
        } else {
          static_cast<std::uint16_t*>(to)[r * ld + j] = bf16_from_f32(value);
        }
      }
    }
  }
}

/// Columns [begin, end) of one matrix.
void run_few(const Plan& plan, std::int64_t batch, std::int64_t begin, std::int64_t end, char* scratch) {
  const BatchedArgs& args = plan.args;
  const std::int64_t chunk = plan.b_copied ? kFewColumns : end - begin;
  BatchedRows part;
  part.k = args.k;
  for (std::int64_t column = begin; column < end; column += chunk) {
    part.columns = std::min(end - column, chunk);
    part.b = element(args.b, batch, 0, column);
    part.b_dtype = args.b.dtype;
    part.ldb = args.b.column == 1 ? args.b.row : args.b.column;
    if (plan.b_copied) {
      copy(*plan.variant, args.b, batch, 0, args.k, column, part.columns, scratch, kFewColumns, 4);
      part.b = scratch;
      part.b_dtype = DType::kF32;
      part.ldb = kFewColumns;
    }
    for (std::int64_t row = 0; row < args.m; row += kFewRows) {
      part.rows = std::min(args.m - row, kFewRows);
      part.a = reinterpret_cast<const float*>(element(args.a, batch, row, 0));
      part.lda = args.a.row;
      if (plan.a_copied) {
        auto* rows = reinterpret_cast<float*>(scratch + plan.a);
        copy(*plan.variant, args.a, batch, row, part.rows, 0, args.k, rows, args.k, 4);
        part.a = rows;
        part.lda = args.k;
      }
      part.to = place_of(args, batch, row, column);
      !plan.dots ? plan.variant->rows(part) : plan.variant->dots(part);
    }
  }
}

void pack_tiles(const Plan& plan, std::int64_t batch, std::int64_t column, std::int64_t columns, char* to) {
  const BatchedArgs& args = plan.args;
  const BatchedMatrix& b = args.b;
  const char* from = element(b, batch, 0, column);
  if (b.row == 1 || b.column == 1) {
    plan.variant->pack({from, b.dtype, b.row, b.column, args.k, columns, to});
  } else {
    pack_b({from, b.dtype, args.k, columns, b.row, b.column}, to, {}, kLevelDefault);
  }
}

void pack_blocks(const Plan& plan, std::int64_t batch, std::int64_t column, std::int64_t columns, char* to) {
  const std::int64_t panel_bytes = panel_bytes_f32(plan.args.k, false);
  for (std::int64_t first = 0; first < columns; first += kPanelColumns, to += panel_bytes) {
    const std::int64_t here = std::min(columns - first, kPanelColumns);
    if (here < kPanelColumns) std::fill(reinterpret_cast<float*>(to), reinterpret_cast<float*>(to + panel_bytes), 0.0f);
    copy(*plan.variant, plan.args.b, batch, 0, plan.args.k, column + first, here, to, kPanelColumns, 4);
  }
}

/// What of B a worker's scratch holds.
struct Held {
  const void* b = nullptr;
  std::int64_t column = -1;
};

/// Rows of one matrix by panels of its columns.
void run_panels(const Plan& plan, std::int64_t batch, const LinearBlock& unit, char* scratch, Held* held) {
  const BatchedArgs& args = plan.args;
  const bool tiles = plan.method != Method::kBlocks;
  for (std::int64_t panel = unit.panel_begin; panel < unit.panel_end; panel += plan.part_panels) {
    const std::int64_t panels = std::min(unit.panel_end - panel, plan.part_panels);
    const std::int64_t column = panel * kPanelColumns;
    const std::int64_t columns = std::min(args.n - column, panels * kPanelColumns);
    const void* from = element(args.b, batch, 0, 0);
    if (held->b != from || held->column != column) {
      tiles ? pack_tiles(plan, batch, column, columns, scratch) : pack_blocks(plan, batch, column, columns, scratch);
      *held = {from, column};
    }
    for (std::int64_t row = unit.row_begin; row < unit.row_end; row += plan.part_rows) {
      const std::int64_t rows = std::min(unit.row_end - row, plan.part_rows);
      const BatchedPlace to = place_of(args, batch, row, column);
      const void* a = element(args.a, batch, row, 0);
      std::int64_t lda = args.a.row;
      if (plan.a_copied) {
        copy(*plan.variant, args.a, batch, row, rows, 0, args.k, scratch + plan.a, args.k, plan.a_element);
        a = scratch + plan.a;
        lda = args.k;
      }
      if (plan.method == Method::kShort) {
        const DType dtype = plan.a_copied ? DType::kBf16 : args.a.dtype;
        plan.variant->short_tiles({a, dtype, lda, rows, args.k, scratch, columns, to, scratch + plan.products});
        continue;
      }
      void* c = plan.staged ? scratch + plan.stage : to.out;
      const std::int64_t ldc = plan.staged ? panels * kPanelColumns : args.ldo;
      const LinearBlock block{0, rows, 0, panels, l2_bytes(), l1_bytes()};
      if (tiles) {
        LinearArgs part;
        part.a = a;
        part.a_dtype = plan.a_copied ? DType::kBf16 : args.a.dtype;
        part.lda = lda;
        part.packed_b = scratch;
        part.c = c;
        part.c_dtype = plan.staged ? DType::kF32 : args.out_dtype;
        part.ldc = ldc;
        part.m = rows;
        part.n = columns;
        part.k = args.k;
        plan.variant->tiles->run(part, block, scratch + plan.products);
      } else {
        LinearF32Args part;
        part.a = a;
        part.lda = lda;
        part.packed_b = scratch;
        part.c = c;
        part.ldc = ldc;
        part.m = rows;
        part.n = columns;
        part.k = args.k;
        plan.variant->blocks->run(part, block, scratch + plan.products);
      }
      if (plan.staged) plan.variant->finish(static_cast<const float*>(c), ldc, rows, columns, to);
    }
  }
}

}  // namespace

// docs/performance-kernels.md has the numbers behind each line.
bool batched_supported(const BatchedArgs& args, IsaSet isa) {
  constexpr std::int64_t kDeepest = 256;
  constexpr std::int64_t kLeastProducts = 100;
  constexpr std::int64_t kMostProducts = 1024;
  if (args.batch <= 0 || args.m <= 0 || args.n <= 0 || args.k <= 0) return false;
  const BatchedVariant& variant = choose(batched_variants(), isa);
  BatchedArgs shape = args;
  normalize(&shape);
  const Method method = method_of(shape, variant);
  const std::int64_t products = shape.m * shape.n * shape.k;
  if (method == Method::kReference) return false;
  if (shape.a.dtype == DType::kBf16) {
    if (variant.tiles == nullptr) return products > kLeastProducts * 4;  // stock's has no vectors there
    return method == Method::kFew || (method == Method::kShort && shape.k <= kDeepest);
  }
  if (shape.bf16_inside && variant.short_tiles != nullptr && method != Method::kFew) return true;
  if (method != Method::kFew) return false;
  return products >= kLeastProducts && products <= kMostProducts;
}

const char* batched_variant(const BatchedArgs&, IsaSet isa) { return choose(batched_variants(), isa).name; }

bool batched(const BatchedArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.batch <= 0 || args.m <= 0 || args.n <= 0) return true;
  const Plan plan = plan_of(args, choose(batched_variants(), isa), parallel);
  const std::int64_t units = plan.args.batch * plan.row_parts * plan.column_parts;
  const double products = static_cast<double>(args.m) * static_cast<double>(args.n) * static_cast<double>(args.k) + 512;
  const std::int64_t parts = parts_of(units, products * static_cast<double>(args.batch) > (1 << 18), parallel);
  const auto run = [&plan, units, parts](std::int64_t part, void* scratch) {
    const BatchedArgs& call = plan.args;
    const std::int64_t begin = begin_of(units, part, parts);
    const std::int64_t end = begin_of(units, part + 1, parts);
    if (plan.method == Method::kReference) {
      ref::batched(call, begin, end);
      return true;
    }
    const Grid grid{plan.row_parts, plan.column_parts};
    const std::int64_t each = grid.rows * grid.panels;
    Held held;
    if (plan.method == Method::kShort) plan.variant->short_tiles_begin();
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t batch = unit / each;
      const LinearBlock block = block_of(grid, static_cast<int>(unit % each), call.m, call.n);
      if (plan.method == Method::kFew) {
        run_few(plan, batch, block.panel_begin * kPanelColumns, std::min(block.panel_end * kPanelColumns, call.n),
                static_cast<char*>(scratch));
      } else {
        run_panels(plan, batch, block, static_cast<char*>(scratch), &held);
      }
    }
    if (plan.method == Method::kShort) plan.variant->short_tiles_end();
    return true;
  };
  return share(parts, plan.bytes, parallel, run);
}

}  // namespace ipexrun::kernels
