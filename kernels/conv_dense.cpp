// Packs the weights of dense convolutions, plans scratch and cuts calls. Compiled for the base instruction set.
#include "kernels/conv_dense.h"

#include <algorithm>
#include <numeric>

#include "kernels/bf16.h"
#include "kernels/caches.h"
#include "kernels/choose.h"
#include "kernels/conv_dense_call.h"
#include "kernels/share.h"
#include "kernels/shares.h"

namespace ipexrun::kernels {
namespace {

constexpr std::int64_t kPlaceBytes = 64;
constexpr std::int64_t kTilePlaces = 16;
/// Of the units of a worker: they share L2 with the weights of a chunk.
std::int64_t image_bytes() { return l2_bytes() / 8 * 3; }
std::int64_t chunk_bytes() { return l2_bytes() / 32 * 3; }
constexpr std::int64_t kUnitsMost = 64;
constexpr std::int64_t kLeastSegment = 64;
constexpr double kMostScratchBytes = 64 << 20;
/// Merging the taps of a row must save so much: steps without over steps with it.
constexpr double kMergeGain = 1.4;
/// Below this many multiply-adds a call is shorter than waking a second worker.
constexpr double kSerialProducts = 1 << 18;

DensePhases phases_of(const ConvAxis& axis) {
  DensePhases phases;
  phases.stride = axis.stride;
  phases.pad = axis.pad;
  phases.dilation = axis.dilation;
  phases.kernel = axis.kernel;
  phases.phases = std::min(axis.kernel, axis.stride / std::gcd(axis.stride, axis.dilation));
  return phases;
}

std::size_t reserve(DensePlan* plan, std::int64_t bytes) {
  const std::size_t at = plan->bytes;
  plan->bytes = (at + static_cast<std::size_t>(bytes) + 63) / 64 * 64;
  return at;
}

void plan_pitch(const ConvArgs& args, DensePlan* plan) {
  const ConvAxis& across = args.axes[2];
  plan->pitch = plan->segment;
  if (plan->shape.merged) {
    plan->across = {};
    return;
  }
  plan->across = phases_of(across);
  if (plan->segments > 1) {
    for (std::int64_t phase = 0; phase < plan->across.phases; ++phase) {
      plan->pitch = std::max(plan->pitch, plan->segment + plan->across.last_shift(phase));
    }
    return;
  }
  std::int64_t most = 0;
  for (std::int64_t phase = 0; phase < plan->across.phases; ++phase) {
    const std::int64_t origin = plan->across.input_of(phase, 0);
    const std::int64_t stride = plan->across.stride;
    const std::int64_t head = origin < 0 ? ceil_div(-origin, stride) : 0;
    const std::int64_t wanted = across.out + plan->across.last_shift(phase);
    const std::int64_t inside = across.in <= origin ? 0 : (across.in - 1 - origin) / stride + 1;
    plan->pitch = std::max({plan->pitch, std::min(wanted, inside), wanted - head});
    most = std::max(most, wanted);
  }
  plan->tail = std::max<std::int64_t>(most - plan->pitch, 0);
}

/// Rows of a plane behind those of a unit.
std::int64_t reach_of(const DensePhases& down) {
  std::int64_t shift = 0;
  for (std::int64_t phase = 0; phase < down.phases; ++phase) shift = std::max(shift, down.last_shift(phase));
  return shift;
}

/// In doubles, whether all that plan_of() counts stays within bounds.
bool countable(const ConvArgs& args) {
  double lines = 1;
  for (int i = 0; i < kConvAxes; ++i) {
    const ConvAxis& axis = args.axes[i];
    if (axis.pad > (std::int64_t{1} << 31)) return false;
    const double reach = static_cast<double>(axis.kernel) * static_cast<double>(axis.dilation) + static_cast<double>(axis.stride);
    lines *= i == 0 ? static_cast<double>(axis.kernel)
                    : reach + (i == 2 ? static_cast<double>(axis.out) * static_cast<double>(axis.stride) : 1.0);
  }
  const DenseShape shape =
      dense_shape(args.in_channels, args.out_channels, args.groups, {args.axes[0].kernel, args.axes[1].kernel, args.axes[2].kernel});
  return lines * static_cast<double>(shape.blocks) * static_cast<double>(kPlaceBytes) <= kMostScratchBytes;
}

DensePlan plan_of(const ConvArgs& args, std::int64_t segments, std::int64_t rows, std::int64_t panels) {
  DensePlan plan;
  plan.segment = ceil_div(args.axes[2].out, segments);
  plan.segments = ceil_div(args.axes[2].out, plan.segment);
  plan.shape =
      dense_shape(args.in_channels, args.out_channels, args.groups, {args.axes[0].kernel, args.axes[1].kernel, args.axes[2].kernel});
  plan.down = phases_of(args.axes[1]);
  plan_pitch(args, &plan);
  plan.planes = args.axes[0].kernel * plan.down.phases * plan.across.phases;
  const std::int64_t height = args.axes[1].out;
  const std::int64_t most = plan.segments > 1 ? 1 : std::min(height, rows);
  const std::int64_t reach = reach_of(plan.down);
  const std::int64_t behind = plan.tail + kTilePlaces;  // a tile may begin at the last output
  const std::int64_t places = image_bytes() / (plan.planes * plan.shape.blocks * kPlaceBytes) - behind;
  plan.rows = std::clamp<std::int64_t>(places / plan.pitch - reach, 1, most);
  plan.rows = ceil_div(most, ceil_div(most, plan.rows));
  plan.plane_bytes = ((plan.rows + reach) * plan.pitch + behind) * kPlaceBytes;
  plan.by_rows = plan.rows * ceil_div(plan.segment, kTilePlaces) <= ceil_div((plan.rows - 1) * plan.pitch + plan.segment, kTilePlaces);
  plan.down_first = plan.by_rows && reach > 0 && (reach + 1) * plan.pitch * plan.planes * plan.shape.blocks * kPlaceBytes > l1_bytes() / 2;
  plan.units = std::clamp<std::int64_t>(image_bytes() / plan.unit_bytes(), 1, std::min(kUnitsMost, ceil_div(rows, plan.rows) + 1));
  const std::int64_t chunk = std::clamp<std::int64_t>(chunk_bytes() / plan.shape.panel_bytes(), 1, plan.shape.panels);
  plan.chunk = ceil_div(plan.shape.panels, ceil_div(plan.shape.panels, chunk));
  plan.laid = reserve(&plan, DensePlan::kLaidBytes);
  plan.offsets = reserve(&plan, plan.shape.steps * 8);
  plan.stage = reserve(&plan, 2 * 4096);
  plan.bias = reserve(&plan, panels * kPanelColumns * 4);
  plan.image = reserve(&plan, plan.units * plan.unit_bytes());
  return plan;
}

/// Into how many segments rows are cut: as scratch wants it, and the workers where there is one row an image.
std::int64_t segments_of(const ConvArgs& args, const DenseShape& shape, std::int64_t rows, std::int64_t threads) {
  const std::int64_t width = args.axes[2].out;
  const std::int64_t row_places = args.axes[0].kernel * (shape.merged ? 1 : std::min(args.axes[2].stride, args.axes[2].kernel)) *
                                  ((args.axes[1].kernel - 1) * args.axes[1].dilation + 1) * shape.blocks;
  std::int64_t segments = ceil_div(width, std::max(image_bytes() / kPlaceBytes / row_places, kLeastSegment));
  if (args.axes[1].out == 1 && rows < 2 * threads && threads > 1) segments = std::max(segments, ceil_div(2 * threads, rows));
  return std::clamp<std::int64_t>(segments, 1, std::max<std::int64_t>(width / kLeastSegment, 1));
}

/// Of a row of outputs, or a segment of one.
double tiles_of(const ConvArgs& args, std::int64_t segments) {
  return static_cast<double>(args.axes[2].out) / kTilePlaces / static_cast<double>(segments);
}

/// Rows of the image that windows of neighbouring rows of outputs share, in rows of outputs.
double halo_of(const ConvArgs& args) {
  const ConvAxis& down = args.axes[1];
  return static_cast<double>((down.kernel - 1) * down.dilation) / static_cast<double>(down.stride);
}

/// The cut with the smallest estimate for the slowest worker; see choose_grid().
Grid grid_of(const ConvArgs& args, const DenseShape& shape, std::int64_t rows, std::int64_t segments, std::int64_t threads) {
  const std::int64_t panels = shape.slabs * shape.panels;
  const GridCosts costs;
  const double tiles = tiles_of(args, segments);
  const double halo = halo_of(args);
  Grid best{1, 1};
  double best_cost = -1;
  for (std::int64_t cut = 1; cut <= threads && cut <= rows; ++cut) {
    const std::int64_t columns = std::min(threads / cut, panels);
    const auto here = static_cast<double>(ceil_div(rows, cut));
    const auto width = static_cast<double>(ceil_div(panels, columns));
    const auto steps = static_cast<double>(shape.steps);
    const double cost =
        here * tiles * steps * width +
        costs.rows * (here + halo) * tiles * static_cast<double>(shape.blocks) * std::max(1.0, width / static_cast<double>(shape.panels)) +
        costs.panel * width * steps;
    if (best_cost < 0 || cost < best_cost) {
      best_cost = cost;
      best = {cut, columns};
    }
  }
  return best;
}

/// What of the parts is shared out, and how: a worker computes half of its part, then the rest in pieces, which others take that are done.
/// Panels, where a part has several and its rows lie in scratch at once: a worker lays them out for the first of its panels and they serve
/// all of them, so pieces cost nothing until another worker takes one. Else rows of outputs: a piece lays out its rows again where windows
/// of neighbouring outputs overlap, and reads weights again. The more workers there are, the likelier one of them is slow: few share long
/// calls by rows alone, and only what costs little (16 workers gained 6 to 11% in ResNet's blocks of one image, two lost as much).
Shares shares_of(const ConvArgs& args, const DensePlan& plan, const Grid& grid, std::int64_t items, bool tiled) {
  constexpr std::int64_t kMany = 8;
  constexpr std::int64_t kOfAPart = 8;
  constexpr double kCheap = 1.0 / 24;
  constexpr double kPiece = 150;             // the least product of a piece, in products of a tile: 2 microseconds
  constexpr std::int64_t kPanelsEnough = 4;  // of a part, for its pieces to be as fine as pieces of rows
  const DenseShape& shape = plan.shape;
  Shares shares;
  shares.grid = grid;
  shares.m = items;
  shares.n = shape.slabs * shape.panels * kPanelColumns;
  shares.unit = 1;
  shares.by_rows = true;
  const std::int64_t height = ceil_div(items, grid.rows);
  const std::int64_t width = ceil_div(shape.slabs * shape.panels, grid.panels);
  const double tiles = tiles_of(args, plan.segments);
  const double products = static_cast<double>(height * width * shape.steps) * tiles;
  if (!tiled || shares.parts() <= 1 || shares.parts() > Shares::kPartsMost) return shares;

  const bool many = shares.parts() >= kMany;
  const double least = many ? kPiece : 4000;    // of a part: 2 or 50 microseconds
  const double most = many ? 1.0 / 8 : kCheap;  // of the products, for doing things again
  const double halo = halo_of(args);
  const bool stays = width * shape.panel_bytes() <= l2_bytes() / 4;
  const auto rows_piece = ceil_div(height, kOfAPart);
  const std::int64_t rows_pieces = ceil_div(height - height / 2, rows_piece);
  const double again = 2 * halo * tiles * static_cast<double>(shape.blocks) + (stays ? 0 : 4 * static_cast<double>(width * shape.steps));
  const double again_share = again * static_cast<double>(rows_pieces) / products;
  const bool rows_pay = height >= 3 && products >= least && again_share <= most;

  const std::int64_t units = ceil_div(height, plan.rows) + (args.images * args.axes[0].out > 1 ? 1 : 0);
  const bool lie = shape.slabs == 1 && plan.segments == 1 && units <= plan.units;
  const double panel = products / static_cast<double>(width);
  const std::int64_t panels_piece = std::max(ceil_div(width, kOfAPart), static_cast<std::int64_t>(kPiece / panel) + 1);
  const bool panels_pay = lie && width >= 2 && width - width / 2 >= panels_piece;
  if (panels_pay && (width >= kPanelsEnough || !rows_pay || again_share > kCheap)) {
    shares.by_rows = false;
    shares.own = width / 2;
    shares.piece = panels_piece;
    shares.pieces = ceil_div(width - shares.own, panels_piece);
  } else if (rows_pay) {
    shares.own = height / 2;
    shares.piece = rows_piece;
    shares.pieces = rows_pieces;
  }
  return shares;
}

/// A variant with the plan of its call.
struct Planned {
  const DenseVariant& variant;
  const DensePlan& plan;

  [[nodiscard]] std::size_t scratch_bytes(const ConvArgs& /*args*/, const LinearBlock& /*block*/) const { return plan.bytes; }
  void run(const ConvArgs& args, const LinearBlock& block, void* scratch) const {
    variant.run(args, plan, {block.row_begin, block.row_end, block.panel_begin, block.panel_end, block.panel_ahead, block.same_rows},
                scratch);
  }
};

float weight_at(const ConvWeight& weight, std::int64_t offset) {
  return weight.dtype == DType::kF32 ? static_cast<const float*>(weight.data)[offset]
                                     : bf16_to_f32(static_cast<const std::uint16_t*>(weight.data)[offset]);
}

void pack_panel(const ConvWeight& weight, const DenseShape& shape, std::int64_t panel, std::uint16_t* to) {
  const std::int64_t slab = panel / shape.panels;
  const std::int64_t slab_in = std::min(weight.in_channels - slab * shape.slab_in, shape.slab_in);
  const std::int64_t first = slab * shape.slab_out + panel % shape.panels * kPanelColumns;
  const std::int64_t last = std::min({first + kPanelColumns, (slab + 1) * shape.slab_out, weight.out_channels});
  const std::int64_t width = shape.merged ? weight.kernel[2] : 1;
  const std::int64_t taps = shape.merged ? 1 : weight.kernel[2];
  std::fill_n(to, shape.steps * kStepElements, std::uint16_t{0});
  for (std::int64_t line = 0; line < weight.kernel[0] * weight.kernel[1]; ++line) {
    const std::int64_t line_at = line / weight.kernel[1] * weight.strides[0] + line % weight.kernel[1] * weight.strides[1];
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      for (std::int64_t row = 0; row < width * slab_in; ++row) {
        const std::int64_t in = row % slab_in;
        const std::int64_t group = slab * shape.slab_groups + in / shape.group_in;
        const std::int64_t at = line_at + (tap + row / slab_in) * weight.strides[2] + in % shape.group_in * weight.in_stride;
        const std::int64_t step = row / kStepK * shape.taps + line * taps + tap;
        std::uint16_t* tile = to + step * kStepElements + packed_offset(row % kStepK, 0);
        const std::int64_t begin = std::max(first, group * shape.group_out);
        const std::int64_t end = std::min(last, (group + 1) * shape.group_out);
        for (std::int64_t out = begin; out < end; ++out) {
          float value = weight_at(weight, out * weight.out_stride + at);
          if (weight.scale != nullptr) value *= weight.scale[out];
          tile[packed_offset(0, out - first)] = bf16_from_f32(value);
        }
      }
    }
  }
}

}  // namespace

DenseShape dense_shape(std::int64_t in_channels, std::int64_t out_channels, std::int64_t groups, const std::int64_t (&kernel)[kConvAxes]) {
  DenseShape shape;
  shape.group_in = in_channels / groups;
  shape.group_out = out_channels / groups;
  const std::int64_t widest = std::max(shape.group_in, shape.group_out);
  shape.slab_groups = std::clamp<std::int64_t>(widest == 0 ? 1 : kPanelColumns / widest, 1, groups);
  shape.slabs = ceil_div(groups, shape.slab_groups);
  shape.slab_in = shape.slab_groups * shape.group_in;
  shape.slab_out = shape.slab_groups * shape.group_out;
  shape.panels = panels_of(shape.slab_out);
  const std::int64_t apart = kernel[2] * steps_of(shape.slab_in);
  const std::int64_t merged = steps_of(kernel[2] * shape.slab_in);
  shape.merged = static_cast<double>(apart) >= kMergeGain * static_cast<double>(merged);
  shape.blocks = shape.merged ? merged : steps_of(shape.slab_in);
  shape.taps = kernel[0] * kernel[1] * (shape.merged ? 1 : kernel[2]);
  shape.steps = shape.blocks * shape.taps;
  return shape;
}

std::size_t dense_packed_bytes(const ConvWeight& weight) {
  const double taps = static_cast<double>(weight.kernel[0]) * static_cast<double>(weight.kernel[1]) * static_cast<double>(weight.kernel[2]);
  if (taps * static_cast<double>(weight.in_channels) * static_cast<double>(weight.out_channels) > 0x1p45) return 0;
  const DenseShape shape = dense_shape(weight.in_channels, weight.out_channels, weight.groups, weight.kernel);
  return static_cast<std::size_t>(shape.slabs * shape.panels * shape.panel_bytes());
}

void pack_dense(const ConvWeight& weight, void* to, const Parallel& parallel) {
  const DenseShape shape = dense_shape(weight.in_channels, weight.out_channels, weight.groups, weight.kernel);
  const std::int64_t panels = shape.slabs * shape.panels;
  const std::int64_t parts = parts_of(panels, static_cast<double>(panels * shape.steps) > 64, parallel);
  share(parts, 0, parallel, [&](std::int64_t part, void*) {
    for (std::int64_t panel = begin_of(panels, part, parts); panel < begin_of(panels, part + 1, parts); ++panel) {
      pack_panel(weight, shape, panel, static_cast<std::uint16_t*>(to) + panel * shape.steps * kStepElements);
    }
    return true;
  });
}

bool dense_supported(const ConvArgs& args, IsaSet isa) { return countable(args) && choose(dense_variants(), isa).needs != 0; }

const char* dense_variant(const ConvArgs& args, IsaSet isa) { return choose(dense_variants(), countable(args) ? isa : 0).name; }

bool dense(const ConvArgs& args, const Parallel& parallel, IsaSet isa) {
  const bool fits = countable(args);
  const DenseVariant& variant = choose(dense_variants(), fits ? isa : 0);
  const std::int64_t rows = args.images * args.axes[0].out * args.axes[1].out;
  const DenseShape shape =
      dense_shape(args.in_channels, args.out_channels, args.groups, {args.axes[0].kernel, args.axes[1].kernel, args.axes[2].kernel});
  const std::int64_t panels = shape.slabs * shape.panels;
  const double products =
      static_cast<double>(rows) * static_cast<double>(args.axes[2].out) * static_cast<double>(panels * shape.steps) * 1024;
  const std::int64_t threads = parallel.run != nullptr && products > kSerialProducts ? parallel.threads : 1;
  DensePlan plan;
  plan.shape = shape;
  plan.segment = args.axes[2].out;
  const std::int64_t segments = variant.needs != 0 ? segments_of(args, shape, rows, threads) : 1;
  const Grid grid = grid_of(args, shape, rows * segments, segments, threads);
  if (variant.needs != 0) plan = plan_of(args, segments, ceil_div(rows * segments, grid.rows), ceil_div(panels, grid.panels));
  const std::int64_t items = rows * plan.segments;  // rounded to whole outputs there may be fewer
  const DenseVariants table = dense_variants();
  plan.apart = table.first[table.count - 1].run;
  return run_blocks(args, Planned{variant, plan}, shares_of(args, plan, grid, items, variant.needs != 0), parallel);
}

}  // namespace ipexrun::kernels
