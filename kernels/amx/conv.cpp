// Dense convolution on AMX: tiles of A are loaded from where the image lies in scratch, so no window is ever written out.
//
// A tile is 16 neighbouring places of a plane, 64 bytes each, and each tap of each block of channels is one product of it (conv_dense.h
// says why that needs no edges). Two tiles of outputs and a panel of 32 channels make a block of sums in four tiles, over all of K: the
// windows of two tiles overlap, so A stays in L1 though K is long, and B comes from L2. Loops, outermost first: units of outputs, chunks of
// panels, pairs of tiles, panels. A finished block is converted and written between the products of the next.
#include "kernels/amx/conv.h"

#include <immintrin.h>

#include "kernels/amx/rows.h"
#include "kernels/amx/tile.h"
#include "kernels/bf16.h"
#include "kernels/simd/conv_finish.h"

namespace ipexrun::kernels::amx {
namespace {

constexpr std::int64_t kTileBytes = 1024;
constexpr std::int64_t kTilePixels = 16;
constexpr std::int64_t kPlaceBytes = 64;
constexpr std::int64_t kStageBytes = 4 * kTileBytes;
constexpr std::int64_t kAheadBytes = 4096;

std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

/// Rows of outputs of one image and depth.
struct Unit {
  std::int64_t image;
  std::int64_t at[2];  ///< depth and first row
  std::int64_t rows;
};

Unit unit_of(const ConvArgs& args, const DensePlan& plan, std::int64_t row, std::int64_t end) {
  const std::int64_t height = args.axes[1].out;
  const std::int64_t depth = args.axes[0].out;
  Unit unit{};
  unit.image = row / height / depth;
  unit.at[0] = row / height % depth;
  unit.at[1] = row % height;
  unit.rows = smaller(smaller(height - unit.at[1], plan.rows), end - row);
  return unit;
}

/// Channels of a slab.
struct Slab {
  std::int64_t in_first;
  std::int64_t in;
  std::int64_t out_first;
  std::int64_t out;
};

Slab slab_of(const ConvArgs& args, const DenseShape& shape, std::int64_t index) {
  Slab slab{};
  slab.in_first = index * shape.slab_in;
  slab.in = smaller(args.in_channels - slab.in_first, shape.slab_in);
  slab.out_first = index * shape.slab_out;
  slab.out = smaller(args.out_channels - slab.out_first, shape.slab_out);
  return slab;
}

void lay_zeros(std::int64_t places, char* to) {
  for (std::int64_t i = 0; i < places; ++i) _mm512_store_si512(to + i * kPlaceBytes, _mm512_setzero_si512());
}

/// The largest magnitude of what was laid out, as bits: those above kFinite are not finite.
class Largest {
 public:
  [[gnu::always_inline]] __m512i operator()(__m512i values) {
    bits_ = _mm512_max_epu16(bits_, _mm512_and_si512(values, _mm512_set1_epi16(0x7fff)));
    return values;
  }
  [[nodiscard]] bool finite() const { return _mm512_cmpgt_epu16_mask(bits_, _mm512_set1_epi16(0x7f7f)) == 0; }

 private:
  __m512i bits_ = _mm512_setzero_si512();
};

struct Unseen {
  [[gnu::always_inline]] __m512i operator()(__m512i values) const { return values; }
  static bool finite() { return true; }
};

/// `places` places of up to 32 channels, `stride` bytes apart.
template <typename See>
void lay_places(const char* from, DType dtype, std::int64_t stride, std::int64_t places, std::int64_t channels, char* to, See& see) {
  if (dtype == DType::kBf16) {
    if (channels >= kStepK) {
      for (std::int64_t i = 0; i < places; ++i, from += stride, to += kPlaceBytes) _mm512_store_si512(to, see(_mm512_loadu_si512(from)));
    } else {
      const __mmask32 mask = mask32(channels);
      for (std::int64_t i = 0; i < places; ++i, from += stride, to += kPlaceBytes) {
        _mm512_store_si512(to, see(_mm512_maskz_loadu_epi16(mask, from)));
      }
    }
    return;
  }
  for (std::int64_t i = 0; i < places; ++i, from += stride, to += kPlaceBytes) {
    _mm512_store_si512(to, see(load_step(from, DType::kF32, 0, channels)));
  }
}

/// The bits of [begin, end) of 32.
__mmask32 between(std::int64_t begin, std::int64_t end) { return mask32(end) & ~mask32(begin); }

/// 32 elements of which those in the mask are read.
template <bool kHalf>
[[gnu::always_inline]] inline __m512i load_masked(const char* from, __mmask32 mask) {
  if constexpr (kHalf) return _mm512_maskz_loadu_epi16(mask, from);
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
  const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + 64);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/// A block of merged taps whose elements are neighbours: for each output 32 elements from `first` of its window on.
template <bool kHalf, typename See>
void lay_windows(const ConvAxis& axis, const char* row, std::int64_t channels, std::int64_t first, char* to, See& see) {
  constexpr std::int64_t kElement = kHalf ? 2 : 4;
  const std::int64_t length = axis.kernel * channels;
  const std::int64_t step = axis.stride * channels * kElement;
  const char* from = row + (first - axis.pad * channels) * kElement;
  // Windows [inside, end) do not meet the padding.
  const std::int64_t inside = smaller(ceil_div(axis.pad, axis.stride), axis.out);
  const std::int64_t last = axis.in + axis.pad - axis.kernel;
  const std::int64_t end = smaller(larger(last < 0 ? 0 : last / axis.stride + 1, inside), axis.out);
  std::int64_t i = 0;
  const auto edge = [&](std::int64_t until) {
    for (; i < until; ++i, from += step, to += kPlaceBytes) {
      const std::int64_t start = i * axis.stride - axis.pad;
      const std::int64_t low = larger(-start * channels, 0);
      const std::int64_t high = smaller(length, (axis.in - start) * channels);
      _mm512_store_si512(to, see(load_masked<kHalf>(from, between(low - first, high - first))));
    }
  };
  edge(inside);
  const __mmask32 whole = mask32(length - first);
  for (; i < end; ++i, from += step, to += kPlaceBytes) _mm512_store_si512(to, see(load_masked<kHalf>(from, whole)));
  edge(axis.out);
}

/// A row of merged taps: for each output what it meets of the row, block b of it `block_stride` bytes after the one before.
template <typename See>
void lay_merged(const ConvArgs& args, const DensePlan& plan, const char* row, std::int64_t channels, std::int64_t block_stride, char* to,
                See& see) {
  const ConvAxis& axis = args.axes[2];
  const bool half = args.from_dtype == DType::kBf16;
  const std::int64_t pixel = args.from_strides.axis[2];
  if (pixel == channels && axis.dilation == 1) {
    for (std::int64_t b = 0; b < plan.shape.blocks; ++b, to += block_stride) {
      half ? lay_windows<true>(axis, row, channels, b * kStepK, to, see) : lay_windows<false>(axis, row, channels, b * kStepK, to, see);
    }
    return;
  }
  for (std::int64_t i = 0; i < axis.out; ++i, to += kPlaceBytes) {
    for (std::int64_t b = 0; b < plan.shape.blocks; ++b) _mm512_store_si512(to + b * block_stride, _mm512_setzero_si512());
    for (std::int64_t k = 0; k < axis.kernel; ++k) {
      const std::int64_t place = i * axis.stride - axis.pad + k * axis.dilation;
      if (place < 0 || place >= axis.in) continue;
      const char* from = row + place * pixel * (half ? 2 : 4);
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t at = k * channels + c;
        std::uint16_t value;
        if (half) {
          __builtin_memcpy(&value, from + c * 2, 2);
        } else {
          float wide;
          __builtin_memcpy(&wide, from + c * 4, 4);
          value = bf16_from_f32(wide);
        }
        __builtin_memcpy(to + at / kStepK * block_stride + at % kStepK * 2, &value, 2);
      }
    }
    for (std::int64_t b = 0; b < plan.shape.blocks; ++b) see(_mm512_load_si512(to + b * block_stride));
  }
}

/// Planes of a unit: those of a block after those of another. False where something is not finite, if `See` looks.
template <typename See>
bool lay_unit(const ConvArgs& args, const DensePlan& plan, const Unit& unit, const Slab& slab, char* to) {
  See see;
  const DenseShape& shape = plan.shape;
  const std::int64_t element = bytes_of(args.from_dtype);
  const std::int64_t block_stride = plan.planes * plan.plane_bytes;
  const std::int64_t pixel = args.from_strides.axis[2] * element;
  const char* image = static_cast<const char*>(args.from) + (unit.image * args.from_strides.image + slab.in_first) * element;
  for (std::int64_t deep = 0; deep < args.axes[0].kernel; ++deep) {
    const std::int64_t z = unit.at[0] * args.axes[0].stride - args.axes[0].pad + deep * args.axes[0].dilation;
    for (std::int64_t down = 0; down < plan.down.phases; ++down) {
      const std::int64_t rows = unit.rows + plan.down.last_shift(down);
      for (std::int64_t across = 0; across < plan.across.phases; ++across, to += plan.plane_bytes) {
        // Places [head, end) of a row are pixels.
        const std::int64_t origin = plan.across.input_of(across, 0);
        const std::int64_t stride = plan.across.stride;
        const std::int64_t head = smaller(origin < 0 ? (-origin + stride - 1) / stride : 0, plan.pitch);
        const std::int64_t wanted = args.axes[2].out + plan.across.last_shift(across);
        const std::int64_t end = larger(head, smaller(wanted, args.axes[2].in <= origin ? 0 : (args.axes[2].in - 1 - origin) / stride + 1));
        char* line = to;
        for (std::int64_t r = 0; r < rows; ++r, line += plan.pitch * kPlaceBytes) {
          const std::int64_t y = plan.down.input_of(down, unit.at[1] + r);
          if (z < 0 || z >= args.axes[0].in || y < 0 || y >= args.axes[1].in) {
            for (std::int64_t b = 0; b < shape.blocks; ++b) lay_zeros(plan.pitch, line + b * block_stride);
            continue;
          }
          const char* row = image + (z * args.from_strides.axis[0] + y * args.from_strides.axis[1]) * element;
          if (shape.merged) {
            lay_merged(args, plan, row, slab.in, block_stride, line, see);
            continue;
          }
          for (std::int64_t b = 0; b < shape.blocks; ++b) {
            char* block = line + b * block_stride;
            lay_zeros(head, block);
            lay_places(row + (origin + head * stride) * pixel + b * kStepK * element, args.from_dtype, pixel * stride, end - head,
                       slab.in - b * kStepK, block + head * kPlaceBytes, see);
            lay_zeros(plan.pitch - end, block + end * kPlaceBytes);
          }
        }
        for (std::int64_t b = 0; b < shape.blocks; ++b) lay_zeros(plan.tail, line + b * block_stride);
      }
    }
  }
  return see.finite();
}

/// Where A of each step lies, from that of an output's place on.
void lay_offsets(const ConvArgs& args, const DensePlan& plan, std::int64_t* to) {
  const std::int64_t width = plan.shape.merged ? 1 : args.axes[2].kernel;
  for (std::int64_t b = 0; b < plan.shape.blocks; ++b) {
    for (std::int64_t z = 0; z < args.axes[0].kernel; ++z) {
      for (std::int64_t y = 0; y < args.axes[1].kernel; ++y) {
        for (std::int64_t x = 0; x < width; ++x) {
          const std::int64_t phase = (z * plan.down.phases + y % plan.down.phases) * plan.across.phases + x % plan.across.phases;
          const std::int64_t place = plan.down.shift_of(y) * plan.pitch + plan.across.shift_of(x);
          *to++ = (b * plan.planes + phase) * plan.plane_bytes + place * kPlaceBytes;
        }
      }
    }
  }
}

/// 16 outputs, some of which may lie between two rows.
struct Tile {
  const char* a;
  char* to;
  std::int64_t residual;  ///< elements from the residual's begin
  std::int64_t x;
  std::int64_t count;
};

/// A finished block that waits to be written: its upper 16 rows, then its lower.
struct Pending {
  char* sums = nullptr;
  std::int64_t rows = 0;  ///< not yet written
  char* to = nullptr;
  std::int64_t x = 0;
  std::int64_t switch_at = 0;  ///< rows left when the lower tile begins
  char* lower = nullptr;
  char* lower_to = nullptr;
  std::int64_t lower_x = 0;
  __mmask32 columns = 0;
};

/// What all blocks of a call have in common.
struct Target {
  std::int64_t width;
  std::int64_t pitch;
  std::int64_t pixel;  ///< bytes
  std::int64_t wrap;   ///< bytes from behind a row's places to the next row
  bool half;
};

[[gnu::always_inline]] inline void drain(Pending& pending, std::int64_t count, const Target& target) {
  for (; count > 0 && pending.rows > 0; --count) {
    if (pending.x < target.width) {
      const __m512 left = _mm512_load_ps(pending.sums);
      const __m512 right = _mm512_load_ps(pending.sums + 64);
      if (target.half) {
        _mm512_mask_storeu_epi16(pending.to, pending.columns, (__m512i)_mm512_cvtne2ps_pbh(right, left));
      } else {
        _mm512_mask_storeu_ps(pending.to, static_cast<__mmask16>(pending.columns), left);
        _mm512_mask_storeu_ps(pending.to + 64, static_cast<__mmask16>(pending.columns >> 16), right);
      }
    }
    pending.sums += 128;
    pending.to += target.pixel;
    if (++pending.x == target.pitch) {
      pending.x = 0;
      pending.to += target.wrap;
    }
    if (--pending.rows == pending.switch_at) {
      pending.sums = pending.lower;
      pending.to = pending.lower_to;
      pending.x = pending.lower_x;
    }
  }
}

/// Lines that will be wanted, fetched into L2 a few at a time between products.
struct Ahead {
  const char* at = nullptr;
  std::int64_t lines = 0;
};

template <bool kFirst, bool kDrain>
void multiply_pair_of(const char* a0, const char* a1, const std::int64_t* offsets, const char* b, std::int64_t steps, const char* start,
                      char* stage, Pending pending, const Target& target, const Ahead& ahead) {
  const std::int64_t rows = ceil_div(pending.rows, steps);
  const std::int64_t each = ceil_div(ahead.lines, steps);
  const char* at = ahead.at;
  tile_load<0>(start, 0);
  tile_load<1>(start + 64, 0);
  tile_load<2>(start, 0);
  tile_load<3>(start + 64, 0);
  for (std::int64_t s = 0; s < steps; ++s, b += kStepBytes) {
    const std::int64_t offset = offsets[s];
    if constexpr (kFirst) {
      for (std::int64_t line = 0; line < kStepBytes; line += 64) _mm_prefetch(b + kAheadBytes + line, _MM_HINT_T0);
    }
    tile_load<4>(a0 + offset, 64);
    tile_stream<6>(b, 64);
    tile_multiply<0, 4, 6>();
    tile_load<5>(a1 + offset, 64);
    tile_multiply<2, 5, 6>();
    tile_stream<7>(b + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    tile_multiply<3, 5, 7>();
    if constexpr (kDrain) drain(pending, rows, target);
    for (std::int64_t i = 0; i < each; ++i, at += 64) _mm_prefetch(at, _MM_HINT_T1);
  }
  tile_store<0>(stage, 128);
  tile_store<1>(stage + 64, 128);
  tile_store<2>(stage + 2 * kTileBytes, 128);
  tile_store<3>(stage + 2 * kTileBytes + 64, 128);
}

void multiply_single(const char* a, const std::int64_t* offsets, const char* b, std::int64_t steps, const char* start, char* stage,
                     Pending pending, const Target& target) {
  const std::int64_t rows = ceil_div(pending.rows, steps);
  tile_load<0>(start, 0);
  tile_load<1>(start + 64, 0);
  for (std::int64_t s = 0; s < steps; ++s, b += kStepBytes) {
    for (std::int64_t line = 0; line < kStepBytes; line += 64) _mm_prefetch(b + kAheadBytes + line, _MM_HINT_T0);
    tile_load<4>(a + offsets[s], 64);
    tile_load<6>(b, 64);
    tile_multiply<0, 4, 6>();
    tile_load<7>(b + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    drain(pending, rows, target);
  }
  tile_store<0>(stage, 128);
  tile_store<1>(stage + 64, 128);
}

/// One worker's run.
struct Run {
  const ConvArgs& args;
  const DensePlan& plan;
  const DenseBlock& block;
  char* scratch;
  Target target{};
  Pending pending{};
  std::int64_t turn = 0;

  [[nodiscard]] const std::int64_t* offsets() const { return reinterpret_cast<const std::int64_t*>(scratch + plan.offsets); }
  [[nodiscard]] const char* panel(std::int64_t index) const {
    return static_cast<const char*>(args.packed) + index * plan.shape.panel_bytes();
  }
  [[nodiscard]] char* stage() const { return scratch + plan.stage + turn * kStageBytes; }
};

std::int64_t tiles_of(const Run& run, const Unit& unit) {
  const std::int64_t width = run.args.axes[2].out;
  return run.plan.by_rows ? unit.rows * ceil_div(width, kTilePixels) : ceil_div((unit.rows - 1) * run.plan.pitch + width, kTilePixels);
}

std::int64_t offset_of(const ConvStrides& strides, const Unit& unit, std::int64_t y, std::int64_t x) {
  return unit.image * strides.image + unit.at[0] * strides.axis[0] + (unit.at[1] + y) * strides.axis[1] + x * strides.axis[2];
}

Tile tile_of(const Run& run, const Unit& unit, const char* image, std::int64_t index, std::int64_t channel) {
  const DensePlan& plan = run.plan;
  const std::int64_t width = run.args.axes[2].out;
  std::int64_t y = 0;
  std::int64_t x = 0;
  std::int64_t count = kTilePixels;
  if (plan.by_rows) {
    const std::int64_t each = ceil_div(width, kTilePixels);
    y = index / each;
    x = index % each * kTilePixels;
    count = smaller(count, width - x);
  } else {
    y = index * kTilePixels / plan.pitch;
    x = index * kTilePixels % plan.pitch;
    count = smaller(count, (unit.rows - 1) * plan.pitch + width - index * kTilePixels);
  }
  const std::int64_t element = bytes_of(run.args.to_dtype);
  return {image + (y * plan.pitch + x) * kPlaceBytes,
          static_cast<char*>(run.args.to) + (offset_of(run.args.to_strides, unit, y, x) + channel) * element,
          offset_of(run.args.residual_strides, unit, y, x) + channel, x, count};
}

/// What follows the sums, in place.
void finish_tile(const Run& run, const Tile& tile, std::int64_t channels, std::int64_t channel, float* sums) {
  std::int64_t x = tile.x;
  std::int64_t residual = tile.residual + channel;
  for (std::int64_t i = 0; i < tile.count;) {
    const std::int64_t pixels = larger(smaller(tile.count - i, run.target.width - x), 0);
    if (pixels > 0) {
      if (run.args.to_dtype == DType::kF32) {
        finish_conv<InOrderF32>(run.args, residual, pixels, channels, sums + i * kPanelColumns);
      } else {
        finish_conv<InOrderBf16>(run.args, residual, pixels, channels, sums + i * kPanelColumns);
      }
    }
    const std::int64_t places = run.target.pitch - x;
    i += places;
    x = 0;
    residual +=
        places * run.args.residual_strides.axis[2] + run.args.residual_strides.axis[1] - run.plan.pitch * run.args.residual_strides.axis[2];
  }
}

/// What next stage holds is to be written. The block before it has been.
void queue(Run& run, const Tile& upper, const Tile* lower, std::int64_t channel, std::int64_t channels) {
  const std::int64_t bytes = channel * bytes_of(run.args.to_dtype);
  char* sums = run.stage();
  Pending& pending = run.pending;
  pending.sums = sums;
  pending.to = upper.to + bytes;
  pending.x = upper.x;
  pending.columns = mask32(channels);
  pending.rows = upper.count;
  pending.switch_at = -1;
  if (lower != nullptr) {
    pending.rows += lower->count;
    pending.switch_at = lower->count;
    pending.lower = sums + 2 * kTileBytes;
    pending.lower_to = lower->to + bytes;
    pending.lower_x = lower->x;
  }
  if (run.args.activation != ConvActivation::kNone || run.args.residual != nullptr) {
    finish_tile(run, upper, channels, channel, reinterpret_cast<float*>(sums));
    if (lower != nullptr) finish_tile(run, *lower, channels, channel, reinterpret_cast<float*>(sums + 2 * kTileBytes));
  }
  run.turn ^= 1;
}

/// Units [first, first + count) of scratch by panels [begin, end) of a slab; `ahead` is fetched meanwhile.
void run_chunk(Run& run, const Unit* units, std::int64_t count, const Slab& slab, std::int64_t slab_panel, std::int64_t begin,
               std::int64_t end, bool first, Ahead ahead) {
  const DensePlan& plan = run.plan;
  const char* image = run.scratch + plan.image;
  const std::int64_t steps = plan.shape.steps;
  std::int64_t total = 0;
  for (std::int64_t u = 0; u < count; ++u) total += tiles_of(run, units[u]);
  const std::int64_t each = ceil_div(ahead.lines, larger(total / 2, 1) * (end - begin));
  std::int64_t unit = 0;
  std::int64_t index = 0;
  const auto next = [&]() __attribute__((always_inline)) {
    if (index == tiles_of(run, units[unit])) {
      ++unit;
      index = 0;
    }
    return tile_of(run, units[unit], image + unit * plan.unit_bytes(), index++, slab.out_first);
  };
  for (std::int64_t done = 0; done < total; done += 2) {
    const Tile upper = next();
    const bool pair = done + 1 < total;
    const Tile lower = pair ? next() : upper;
    for (std::int64_t p = begin; p < end; ++p) {
      const char* b = run.panel(p);
      const char* start = run.scratch + plan.bias + (p - run.block.panel_begin) * kPanelColumns * 4;
      const Ahead part{ahead.at, smaller(each, ahead.lines)};
      ahead.at += part.lines * 64;
      ahead.lines -= part.lines;
      const bool drains = run.pending.rows > 0;
      if (!pair) {
        multiply_single(upper.a, run.offsets(), b, steps, start, run.stage(), run.pending, run.target);
      } else if (first && done == 0) {
        drains
            ? multiply_pair_of<true, true>(upper.a, lower.a, run.offsets(), b, steps, start, run.stage(), run.pending, run.target, part)
            : multiply_pair_of<true, false>(upper.a, lower.a, run.offsets(), b, steps, start, run.stage(), run.pending, run.target, part);
      } else {
        drains
            ? multiply_pair_of<false, true>(upper.a, lower.a, run.offsets(), b, steps, start, run.stage(), run.pending, run.target, part)
            : multiply_pair_of<false, false>(upper.a, lower.a, run.offsets(), b, steps, start, run.stage(), run.pending, run.target, part);
      }
      const std::int64_t channel = (p - slab_panel) * kPanelColumns;
      queue(run, upper, pair ? &lower : nullptr, channel, smaller(slab.out - channel, kPanelColumns));
    }
  }
}

void load_bias(const ConvArgs& args, const DensePlan& plan, std::int64_t panel, float* to) {
  const std::int64_t slab = panel / plan.shape.panels;
  const std::int64_t channel = panel % plan.shape.panels * kPanelColumns;
  const Slab channels = slab_of(args, plan.shape, slab);
  for (std::int64_t i = 0; i < kPanelColumns; ++i) {
    float value = 0;
    if (args.bias != nullptr && channel + i < channels.out) {
      const std::int64_t at = channels.out_first + channel + i;
      value = args.bias_dtype == DType::kF32 ? static_cast<const float*>(args.bias)[at]
                                             : bf16_to_f32(static_cast<const std::uint16_t*>(args.bias)[at]);
    }
    to[i] = value;
  }
}

}  // namespace

void dense_conv(const ConvArgs& args, const DensePlan& plan, const DenseBlock& block, void* memory) {
  constexpr std::int64_t kUnitsMost = 64;
  TileConfig config{};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = 16;
  }
  Run run{args, plan, block, static_cast<char*>(memory)};
  const std::int64_t element = bytes_of(args.to_dtype);
  run.target = {args.axes[2].out, plan.by_rows ? std::int64_t{1} << 40 : plan.pitch, args.to_strides.axis[2] * element,
                (args.to_strides.axis[1] - plan.pitch * args.to_strides.axis[2]) * element, args.to_dtype == DType::kBf16};
  lay_offsets(args, plan, reinterpret_cast<std::int64_t*>(run.scratch + plan.offsets));
  for (std::int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
    load_bias(args, plan, panel, reinterpret_cast<float*>(run.scratch + plan.bias) + (panel - block.panel_begin) * kPanelColumns);
  }
  tile_configure(config);
  for (std::int64_t panel = block.panel_begin; panel < block.panel_end;) {
    const std::int64_t index = panel / plan.shape.panels;
    const std::int64_t slab_end = smaller((index + 1) * plan.shape.panels, block.panel_end);
    const Slab slab = slab_of(args, plan.shape, index);
    bool first = true;
    for (std::int64_t row = block.row_begin; row < block.row_end;) {
      Unit units[kUnitsMost];
      std::int64_t count = 0;
      while (row < block.row_end && count < smaller(plan.units, kUnitsMost)) {
        units[count] = unit_of(args, plan, row, block.row_end);
        char* image = run.scratch + plan.image + count * plan.unit_bytes();
        const bool together = slab.in > plan.shape.group_in;
        const bool finite =
            together ? lay_unit<Largest>(args, plan, units[count], slab, image) : lay_unit<Unseen>(args, plan, units[count], slab, image);
        const std::int64_t next = row + units[count].rows;
        if (finite) {
          ++count;
        } else {  // what is not finite would reach the other groups' outputs through their zeros
          plan.apart(args, plan, {row, next, panel, slab_end}, nullptr);
        }
        row = next;
      }
      for (std::int64_t begin = panel; count > 0 && begin < slab_end;) {
        const std::int64_t end = smaller(begin + plan.chunk, slab_end);
        Ahead ahead;
        if (end < slab_end || row >= block.row_end) {
          ahead.at = run.panel(end);
          ahead.lines = (smaller(end + plan.chunk, block.panel_end) - end) * plan.shape.panel_bytes() / 64;
        } else if (begin != panel) {
          ahead.at = run.panel(panel);
          ahead.lines = smaller(plan.chunk, slab_end - panel) * plan.shape.panel_bytes() / 64;
        }
        run_chunk(run, units, count, slab, index * plan.shape.panels, begin, end, first && panel == block.panel_begin, ahead);
        first = false;
        begin = end;
      }
    }
    panel = slab_end;
  }
  drain(run.pending, run.pending.rows, run.target);
  tile_release();
}

}  // namespace ipexrun::kernels::amx
