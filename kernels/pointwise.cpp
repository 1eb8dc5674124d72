// Joins dimensions, cuts them into tiles and shares these among the workers. Compiled for the base instruction set.
#include "kernels/pointwise.h"

#include <cstring>

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Elements times instructions below which a call is shorter than waking a second worker.
constexpr std::int64_t kSerialWork = 1 << 17;
constexpr std::int64_t kVector = 16;  ///< variants compute whole vectors of any width up to this

std::int64_t bytes_of(PointType type) { return type == PointType::kF32 ? 4 : type == PointType::kBf16 ? 2 : 1; }

/// Strides of each operand, then of each result.
struct Walk {
  int dims = 0;
  std::int64_t sizes[kPointDims] = {};
  std::int64_t strides[2 * kPointSlots][kPointDims] = {};
};

/// Dimensions of size 1 go, and two that every tensor walks through as one are one.
Walk joined(const PointwiseArgs& args) {
  Walk walk;
  const int tensors = args.input_count + args.result_count;
  const auto stride = [&](int tensor, int dim) {
    return tensor < args.input_count ? args.inputs[tensor].strides[dim] : args.results[tensor - args.input_count].strides[dim];
  };
  for (int dim = 0; dim < args.dims; ++dim) {
    if (args.sizes[dim] == 1) continue;
    bool one = walk.dims > 0;
    for (int tensor = 0; one && tensor < tensors; ++tensor) {
      one = walk.strides[tensor][walk.dims - 1] == stride(tensor, dim) * args.sizes[dim];
    }
    if (!one) ++walk.dims;
    const int last = walk.dims - 1;
    walk.sizes[last] = one ? walk.sizes[last] * args.sizes[dim] : args.sizes[dim];
    for (int tensor = 0; tensor < tensors; ++tensor) walk.strides[tensor][last] = stride(tensor, dim);
  }
  if (walk.dims == 0) {
    walk.dims = 1;
    walk.sizes[0] = 1;
  }
  return walk;
}

/// One worker's tiles.
class Tiles {
 public:
  Tiles(const PointwiseArgs& args, const Walk& walk, const PointwiseVariant& variant, float* scratch)
      : args_(args), walk_(walk), variant_(variant), scratch_(scratch) {
    std::memset(scratch, 0,
                static_cast<std::size_t>(args.slots) * kPointTile * sizeof(float));  // what lies beyond a tile's end is computed, too
    for (int i = 0; i < args.constant_count; ++i) {
      for (int j = 0; j < kPointTile; ++j) own(args.input_count + i)[j] = args.constants[i];
    }
    for (int slot = 0; slot < args.slots; ++slot) slots_[slot] = own(slot);
  }

  /// Elements [first, first + n) of the innermost dimension of row `row`; with `rows` > 1 these are whole rows, and so are those after it.
  void run(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t n) {
    const std::int64_t whole = (rows * n + kVector - 1) / kVector * kVector;
    for (int i = 0; i < args_.input_count; ++i) {
      const PointOperand& input = args_.inputs[i];
      const std::int64_t stride = inner(i);
      const auto* from = static_cast<const char*>(input.data) + (place(i, row) + first * stride) * bytes_of(input.type);
      slots_[i] = own(i);
      if (!as_one(i, rows)) {
        variant_.load(from, input.type, stride, n, next_row(i), rows, own(i));
      } else if (stride == 1 && input.type == PointType::kF32 && whole == rows * n) {
        slots_[i] = const_cast<float*>(reinterpret_cast<const float*>(from));  // only read: instructions write slots of their own
      } else {
        variant_.load(from, input.type, stride, rows * n, 0, 1, own(i));
      }
    }
    for (int i = 0; i < args_.result_count; ++i) {
      const PointResult& result = args_.results[i];
      const bool straight = direct(i) && as_one(args_.input_count + i, rows) && whole == rows * n;
      slots_[result.slot] = straight ? reinterpret_cast<float*>(to(i, row, first)) : own(result.slot);
    }
    variant_.run(args_.instructions, args_.instruction_count, slots_, whole);
    for (int i = 0; i < args_.result_count; ++i) {
      const PointResult& result = args_.results[i];
      if (slots_[result.slot] != own(result.slot)) continue;
      const int tensor = args_.input_count + i;
      char* there = to(i, row, first);
      if (as_one(tensor, rows)) {
        variant_.store(own(result.slot), result.type, inner(tensor), rows * n, there);
      } else {
        for (std::int64_t r = 0; r < rows; ++r) {
          variant_.store(own(result.slot) + r * n, result.type, inner(tensor), n, there + r * next_row(tensor) * bytes_of(result.type));
        }
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t inner(int tensor) const { return walk_.strides[tensor][walk_.dims - 1]; }
  [[nodiscard]] std::int64_t next_row(int tensor) const { return walk_.dims > 1 ? walk_.strides[tensor][walk_.dims - 2] : 0; }
  /// Elements of rows that follow one another are one stride apart.
  [[nodiscard]] bool as_one(int tensor, std::int64_t rows) const {
    return rows == 1 || next_row(tensor) == inner(tensor) * walk_.sizes[walk_.dims - 1];
  }
  float* own(int slot) { return scratch_ + static_cast<std::ptrdiff_t>(slot) * kPointTile; }

  /// The instruction may write to where the result goes: another result of the same slot would miss it.
  [[nodiscard]] bool direct(int i) const {
    const PointResult& result = args_.results[i];
    if (result.type != PointType::kF32 || inner(args_.input_count + i) != 1) return false;
    for (int other = 0; other < args_.result_count; ++other) {
      if (other != i && args_.results[other].slot == result.slot) return false;
    }
    return true;
  }

  [[nodiscard]] std::int64_t place(int tensor, std::int64_t row) const {
    std::int64_t at = 0;
    for (int dim = walk_.dims - 2; dim >= 0; --dim) {
      at += row % walk_.sizes[dim] * walk_.strides[tensor][dim];
      row /= walk_.sizes[dim];
    }
    return at;
  }

  [[nodiscard]] char* to(int i, std::int64_t row, std::int64_t first) const {
    const int tensor = args_.input_count + i;
    const PointResult& result = args_.results[i];
    return static_cast<char*>(result.data) + (place(tensor, row) + first * inner(tensor)) * bytes_of(result.type);
  }

  const PointwiseArgs& args_;
  const Walk& walk_;
  const PointwiseVariant& variant_;
  float* scratch_;
  float* slots_[kPointSlots] = {};
};

}  // namespace

bool pointwise(const PointwiseArgs& args, const Parallel& parallel, IsaSet isa) {
  std::int64_t count = 1;
  for (int dim = 0; dim < args.dims; ++dim) count *= args.sizes[dim];
  if (count <= 0) return true;
  const Walk walk = joined(args);
  const PointwiseVariant& variant = choose(pointwise_variants(), isa);
  const std::int64_t length = walk.sizes[walk.dims - 1];
  const std::int64_t tiles = ceil_div(length, kPointTile);
  // Short rows share a tile.
  const std::int64_t side = walk.dims > 1 ? walk.sizes[walk.dims - 2] : 1;
  const std::int64_t fitting = kPointTile / length;
  const std::int64_t rows_at_once = fitting < 1 ? 1 : fitting < side ? fitting : side;
  const std::int64_t groups = ceil_div(side, rows_at_once);
  const std::int64_t all = count / length / side * groups * tiles;
  const std::int64_t parts = parts_of(all, count > kSerialWork / (args.instruction_count + 1), parallel);
  const auto scratch_bytes = static_cast<std::size_t>(args.slots) * kPointTile * sizeof(float);
  return share(parts, scratch_bytes, parallel, [&](std::int64_t part, void* scratch) {
    Tiles worker(args, walk, variant, static_cast<float*>(scratch));
    const std::int64_t end = begin_of(all, part + 1, parts);
    for (std::int64_t tile = begin_of(all, part, parts); tile < end; ++tile) {
      const std::int64_t first = tile % tiles * kPointTile;
      const std::int64_t group = tile / tiles % groups;
      const std::int64_t row = group * rows_at_once;
      const std::int64_t rows = side - row < rows_at_once ? side - row : rows_at_once;
      worker.run(tile / tiles / groups * side + row, rows, first, length - first < kPointTile ? length - first : kPointTile);
    }
    return true;
  });
}

bool pointwise_supported(IsaSet isa) { return choose(pointwise_variants(), isa).needs != 0; }

const char* pointwise_variant(IsaSet isa) { return choose(pointwise_variants(), isa).name; }

}  // namespace ipexrun::kernels
