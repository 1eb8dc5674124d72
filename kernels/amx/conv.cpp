// Dense convolution on AMX: tiles of A are loaded from where the image lies in scratch, so no window is ever written out.
//
// A tile is 16 neighbouring places of a plane, 64 bytes each, and each tap of each block of channels is one product of it (conv_dense.h
// says why that needs no edges). Two tiles of outputs and a panel of 32 channels make a block of sums in four tiles, over all of K (on a
// shared core in two, one half of the channels after the other): the windows of two tiles overlap, so A stays in L1 though K is long, and B
// comes from L2. Loops, outermost first: units of outputs, chunks of panels, pairs of tiles, panels. A finished block is converted and
// written between the products of the next.
//
// One file, though long: laying images into scratch, multiplying and writing share a layout that nothing else knows.
#include "kernels/amx/conv.h"

#include <immintrin.h>

#include "kernels/amx/next_block.h"
#include "kernels/amx/rows.h"
#include "kernels/amx/shared_core.h"
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

/// Rows of outputs of one image and depth, or a segment of one.
struct Unit {
  std::int64_t image;
  std::int64_t at[2];  ///< depth and first row
  std::int64_t first;  ///< output of a row
  std::int64_t rows;
  std::int64_t width;
};

Unit unit_of(const ConvArgs& args, const DensePlan& plan, std::int64_t item, std::int64_t end) {
  const std::int64_t height = args.axes[1].out;
  const std::int64_t depth = args.axes[0].out;
  const std::int64_t row = item / plan.segments;
  Unit unit{};
  unit.image = row / height / depth;
  unit.at[0] = row / height % depth;
  unit.at[1] = row % height;
  unit.first = item % plan.segments * plan.segment;
  unit.rows = smaller(smaller(height - unit.at[1], plan.rows), end - item);
  unit.width = smaller(args.axes[2].out - unit.first, plan.segment);
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
  const std::int64_t inside = smaller(axis.pad > 0 ? ceil_div(axis.pad, axis.stride) : 0, axis.out);
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
void lay_merged(const ConvArgs& args, const DensePlan& plan, const Unit& unit, const char* row, std::int64_t channels,
                std::int64_t block_stride, char* to, See& see) {
  ConvAxis axis = args.axes[2];
  axis.pad -= unit.first * axis.stride;
  axis.out = unit.width;
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
        const std::int64_t origin = plan.across.input_of(across, unit.first);
        const std::int64_t stride = plan.across.stride;
        const std::int64_t head = smaller(origin < 0 ? (-origin + stride - 1) / stride : 0, plan.pitch);
        const std::int64_t wanted = unit.width + plan.across.last_shift(across);
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
            lay_merged(args, plan, unit, row, slab.in, block_stride, line, see);
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

/// Neighbouring outputs of a row among those of a pair of tiles.
struct Stretch {
  std::int64_t row;  ///< of the block
  std::int64_t count;
  char* to;
  const char* residual;
};

/// Those of a pair; what lies between two rows is in none.
struct Stretches {
  Stretch at[2 * kTilePixels + 1];  // the last is never used, but read
  std::int64_t count = 0;
  std::int64_t rows = 0;  ///< in all of them
};

/// What follows the sums while they are written: nothing (or it was done in the stage), a clamp, or the residual and then a clamp. A pass
/// over the stage of its own waits for tiles that were just stored, and its instructions lie between no products.
enum class Finish : std::uint8_t { kNothing, kClamp, kAddClamp };

/// A finished block that waits to be written.
struct Pending {
  const char* sums = nullptr;
  const Stretch* at = nullptr;
  std::int64_t rows = 0;      ///< not yet written; 0 = there is none
  std::int64_t channel = 0;   ///< bytes from where the stretches begin
  std::int64_t pixel = 0;     ///< bytes
  std::int64_t residual = 0;  ///< bytes between neighbouring outputs of it
  __mmask32 columns = 0;
  float low = 0;
  float high = 0;
  std::int64_t ahead = 0;  ///< bytes to outputs that will be written later
};

/// Writes a pending block row by row. Its state is kept in registers: what goes through memory between products is read again each time.
template <bool kHalf, Finish kFinish>
class Drain {
 public:
  [[gnu::always_inline]] explicit Drain(const Pending& pending)
      : base_(pending.sums),
        next_(pending.at),
        rows_(pending.rows),
        channel_(pending.channel),
        pixel_(pending.pixel),
        step_(pending.residual),
        columns_(pending.columns),
        ahead_(pending.ahead),
        low_(_mm512_set1_ps(pending.low)),
        high_(_mm512_set1_ps(pending.high)) {
    begin();
  }

  [[gnu::always_inline]] void write(std::int64_t count) {
    if (count > rows_) count = rows_;
    rows_ -= count;
    for (; count > 0; --count) {
      __m512 left = _mm512_load_ps(sums_);
      __m512 right = _mm512_load_ps(sums_ + 64);
      if constexpr (kFinish == Finish::kAddClamp) {
        add_residual(&left, &right);
        residual_ += step_;
      }
      if constexpr (kFinish != Finish::kNothing) {  // the bounds first: NaN is kept
        left = _mm512_min_ps(high_, _mm512_max_ps(low_, left));
        right = _mm512_min_ps(high_, _mm512_max_ps(low_, right));
      }
      if constexpr (kHalf) {
        _mm512_mask_storeu_epi16(to_, columns_, (__m512i)_mm512_cvtne2ps_pbh(right, left));
      } else {
        _mm512_mask_storeu_ps(to_, static_cast<__mmask16>(columns_), left);
        _mm512_mask_storeu_ps(to_ + 64, static_cast<__mmask16>(columns_ >> 16), right);
      }
      prefetch_to_write(to_ + ahead_);
      sums_ += 128;
      to_ += pixel_;
      if (--left_ == 0) begin();
    }
  }

 private:
  [[gnu::always_inline]] void begin() {
    sums_ = base_ + next_->row * 128;
    to_ = next_->to + channel_;
    if constexpr (kFinish == Finish::kAddClamp) residual_ = next_->residual + channel_;
    left_ = next_->count;
    ++next_;
  }

  /// It has the dtype of the result.
  [[gnu::always_inline]] void add_residual(__m512* left, __m512* right) const {
    if constexpr (kHalf) {
      const __m512i both = _mm512_maskz_loadu_epi16(columns_, residual_);
      *left = _mm512_add_ps(*left, widened(_mm512_castsi512_si256(both)));
      *right = _mm512_add_ps(*right, widened(_mm512_extracti64x4_epi64(both, 1)));
    } else {
      *left = _mm512_add_ps(*left, _mm512_maskz_loadu_ps(static_cast<__mmask16>(columns_), residual_));
      *right = _mm512_add_ps(*right, _mm512_maskz_loadu_ps(static_cast<__mmask16>(columns_ >> 16), residual_ + 64));
    }
  }

  const char* base_;
  const Stretch* next_;
  std::int64_t rows_;
  std::int64_t channel_;
  std::int64_t pixel_;
  std::int64_t step_;
  __mmask32 columns_;
  std::int64_t ahead_;
  __m512 low_;
  __m512 high_;
  const char* sums_;
  char* to_;
  const char* residual_ = nullptr;
  std::int64_t left_;
};

struct NoDrain {
  explicit NoDrain(const Pending& /*pending*/) {}
  void write(std::int64_t /*count*/) {}
};

/// One block of sums: where A of the upper and lower tile lies, B, what it starts from and where it goes; meanwhile `pending` is written
/// and `ahead` fetched into L2.
struct Block {
  const char* upper;
  const char* lower;
  const std::int64_t* offsets;
  const char* b;
  std::int64_t steps;
  const char* start;
  char* stage;
  Pending pending;
  const char* ahead;
  std::int64_t ahead_lines;
};

[[gnu::always_inline]] inline void prefetch_tile(const char* b) {
  for (std::int64_t line = 0; line < kTileBytes; line += 64) _mm_prefetch(b + kAheadBytes + line, _MM_HINT_T0);
}

/// kFirst: B was not fetched before. Not inlined: the loop wants all registers.
template <bool kFirst, typename Writer>
[[gnu::noinline]] void multiply_pair(const Block& block) {
  const std::int64_t steps = block.steps;
  const std::int64_t rows = ceil_div(block.pending.rows, steps);
  const std::int64_t each = ceil_div(block.ahead_lines, steps);
  const char* at = block.ahead;
  const char* upper = block.upper;
  const std::int64_t down = block.lower - upper;
  const std::int64_t* offset = block.offsets;
  const std::int64_t* end = offset + steps;
  const char* b = block.b;
  Writer writer(block.pending);
  tile_load<0>(block.start, 0);
  tile_load<1>(block.start + 64, 0);
  tile_load<2>(block.start, 0);
  tile_load<3>(block.start + 64, 0);
  for (; offset != end; ++offset, b += kStepBytes) {
    const char* a = upper + *offset;
    if constexpr (kFirst) prefetch_tile(b);
    if constexpr (kFirst) prefetch_tile(b + kTileBytes);
    tile_load<4>(a, 64);
    tile_stream<6>(b, 64);
    tile_multiply<0, 4, 6>();
    tile_load<5>(a + down, 64);
    tile_multiply<2, 5, 6>();
    tile_stream<7>(b + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    tile_multiply<3, 5, 7>();
    writer.write(rows);
    for (std::int64_t i = 0; i < each; ++i, at += 64) _mm_prefetch(at, _MM_HINT_T1);
  }
  tile_store<0>(block.stage, 128);
  tile_store<1>(block.stage + 64, 128);
  tile_store<2>(block.stage + 2 * kTileBytes, 128);
  tile_store<3>(block.stage + 2 * kTileBytes + 64, 128);
}

/// The same, one half of the channels after the other, on a core that is shared (shared_core.h).
template <bool kFirst, typename Writer>
[[gnu::noinline]] void multiply_halves(const Block& block) {
  const std::int64_t steps = block.steps;
  const std::int64_t rows = ceil_div(block.pending.rows, 2 * steps);
  const std::int64_t each = ceil_div(block.ahead_lines, 2 * steps);
  const char* at = block.ahead;
  const char* upper = block.upper;
  const std::int64_t down = block.lower - upper;
  const std::int64_t* const end = block.offsets + steps;
  Writer writer(block.pending);
  for (std::int64_t half = 0; half < 2; ++half) {
    const char* b = block.b + half * kTileBytes;
    tile_load<0>(block.start + half * 64, 0);
    tile_load<1>(block.start + half * 64, 0);
    for (const std::int64_t* offset = block.offsets; offset != end; ++offset, b += kStepBytes) {
      const char* a = upper + *offset;
      if constexpr (kFirst) prefetch_tile(b);
      tile_stream<6>(b, 64);
      tile_load<4>(a, 64);
      tile_multiply<0, 4, 6>();
      tile_load<4>(a + down, 64);
      tile_multiply<1, 4, 6>();
      writer.write(rows);
      for (std::int64_t i = 0; i < each; ++i, at += 64) _mm_prefetch(at, _MM_HINT_T1);
    }
    tile_store<0>(block.stage + half * 64, 128);
    tile_store<1>(block.stage + half * 64 + 2 * kTileBytes, 128);
  }
}

/// The upper tile alone.
template <typename Writer>
[[gnu::noinline]] void multiply_single(const Block& block) {
  const std::int64_t rows = ceil_div(block.pending.rows, block.steps);
  const char* b = block.b;
  Writer writer(block.pending);
  tile_load<0>(block.start, 0);
  tile_load<1>(block.start + 64, 0);
  for (std::int64_t s = 0; s < block.steps; ++s, b += kStepBytes) {
    prefetch_tile(b);
    prefetch_tile(b + kTileBytes);
    tile_load<4>(block.upper + block.offsets[s], 64);
    tile_load<6>(b, 64);
    tile_multiply<0, 4, 6>();
    tile_load<6>(b + kTileBytes, 64);
    tile_multiply<1, 4, 6>();
    writer.write(rows);
  }
  tile_store<0>(block.stage, 128);
  tile_store<1>(block.stage + 64, 128);
}

template <typename Writer>
void multiply(const Block& block, bool first, bool shared) {
  if (block.lower == nullptr) {
    multiply_single<Writer>(block);
  } else if (shared) {
    first ? multiply_halves<true, Writer>(block) : multiply_halves<false, Writer>(block);
  } else {
    first ? multiply_pair<true, Writer>(block) : multiply_pair<false, Writer>(block);
  }
}

/// What scratch holds from one block to the next: all units of its rows, laid out for a slab, every number of them finite.
struct Laid {
  bool whole = false;
  std::int64_t slab = 0;
};
static_assert(sizeof(Laid) <= DensePlan::kLaidBytes);

/// One worker's run.
struct Run {
  const ConvArgs& args;
  const DensePlan& plan;
  const DenseBlock& block;
  char* scratch;
  Finish finish;  ///< while a block is written
  bool in_stage;  ///< what follows is done before
  bool half;
  std::int64_t pixel;        ///< bytes between neighbouring outputs
  bool shared;               ///< the core (shared_core.h)
  Stretches stretches[2]{};  ///< of a pair and of the one before it, whose last block is pending
  std::int64_t pair = 0;
  Pending pending{};
  std::int64_t turn = 0;

  [[nodiscard]] const std::int64_t* offsets() const { return reinterpret_cast<const std::int64_t*>(scratch + plan.offsets); }
  [[nodiscard]] const char* panel(std::int64_t index) const {
    return static_cast<const char*>(args.packed) + index * plan.shape.panel_bytes();
  }
  [[nodiscard]] char* stage() const { return scratch + plan.stage + turn * kStageBytes; }
  [[nodiscard]] float low() const { return args.activation == ConvActivation::kClamp ? args.low : -__builtin_inff(); }
  [[nodiscard]] float high() const { return args.activation == ConvActivation::kClamp ? args.high : __builtin_inff(); }
};

/// What of a call is done while blocks are written. Nothing: what follows, if anything, is done in the stage.
Finish finish_of(const ConvArgs& args) {
  const bool none = args.activation == ConvActivation::kNone;
  if (!none && args.activation != ConvActivation::kClamp) return Finish::kNothing;
  if (args.residual == nullptr) return none ? Finish::kNothing : Finish::kClamp;
  return none || !args.residual_after ? Finish::kAddClamp : Finish::kNothing;
}

std::int64_t tiles_of(const Run& run, const Unit& unit) {
  return run.plan.by_rows ? unit.rows * ceil_div(unit.width, kTilePixels)
                          : ceil_div((unit.rows - 1) * run.plan.pitch + unit.width, kTilePixels);
}

std::int64_t offset_of(const ConvStrides& strides, const Unit& unit, std::int64_t y, std::int64_t x) {
  return unit.image * strides.image + unit.at[0] * strides.axis[0] + (unit.at[1] + y) * strides.axis[1] +
         (unit.first + x) * strides.axis[2];
}

/// 16 outputs from `index` on, some of which may lie between two rows.
struct Tile {
  std::int64_t y;
  std::int64_t x;
  std::int64_t count;
};

Tile tile_of(const Run& run, const Unit& unit, std::int64_t index) {
  const std::int64_t width = unit.width;
  const std::int64_t pitch = run.plan.pitch;
  if (run.plan.by_rows) {
    const std::int64_t each = run.plan.down_first ? unit.rows : ceil_div(width, kTilePixels);
    const std::int64_t y = run.plan.down_first ? index % each : index / each;
    const std::int64_t x = (run.plan.down_first ? index / each : index % each) * kTilePixels;
    return {y, x, smaller(kTilePixels, width - x)};
  }
  const std::int64_t place = index * kTilePixels;
  return {place / pitch, place % pitch, smaller(kTilePixels, (unit.rows - 1) * pitch + width - place)};
}

/// Where the outputs of a tile, the rows of a block from `row` on, go.
void add_stretches(const Run& run, const Unit& unit, Tile tile, std::int64_t channel, std::int64_t row, Stretches* to) {
  while (tile.count > 0) {
    const std::int64_t count = smaller(tile.count, unit.width - tile.x);
    if (count > 0) {
      const std::int64_t element = bytes_of(run.args.to_dtype);
      const std::int64_t at = offset_of(run.args.to_strides, unit, tile.y, tile.x) + channel;
      const char* residual = nullptr;
      if (run.finish == Finish::kAddClamp) {
        residual =
            static_cast<const char*>(run.args.residual) + (offset_of(run.args.residual_strides, unit, tile.y, tile.x) + channel) * element;
      }
      to->at[to->count++] = {row, count, static_cast<char*>(run.args.to) + at * element, residual};
      to->rows += count;
    }
    const std::int64_t places = run.plan.pitch - tile.x;
    row += places;
    tile = {tile.y + 1, 0, tile.count - places};
  }
}

/// What follows the sums of a tile, in place.
void finish_tile(const Run& run, const Unit& unit, Tile tile, std::int64_t channels, std::int64_t channel, float* sums) {
  while (tile.count > 0) {
    const std::int64_t count = smaller(tile.count, unit.width - tile.x);
    if (count > 0) {
      const std::int64_t residual = offset_of(run.args.residual_strides, unit, tile.y, tile.x) + channel;
      run.half ? finish_conv<InOrderBf16>(run.args, residual, count, channels, sums)
               : finish_conv<InOrderF32>(run.args, residual, count, channels, sums);
    }
    const std::int64_t places = run.plan.pitch - tile.x;
    sums += places * kPanelColumns;
    tile = {tile.y + 1, 0, tile.count - places};
  }
}

/// Calls `with` with the kind of writer that the pending block takes, as a null pointer.
template <typename With>
void with_writer(const Run& run, const With& with) {
  const auto of_dtype = [&]<Finish kFinish>() {
    run.half ? with(static_cast<Drain<true, kFinish>*>(nullptr)) : with(static_cast<Drain<false, kFinish>*>(nullptr));
  };
  switch (run.finish) {
    case Finish::kNothing:
      return of_dtype.template operator()<Finish::kNothing>();
    case Finish::kClamp:
      return of_dtype.template operator()<Finish::kClamp>();
    case Finish::kAddClamp:
      return of_dtype.template operator()<Finish::kAddClamp>();
  }
}

void write_pending(Run& run) {
  if (run.pending.rows == 0) return;
  with_writer(run, [&]<typename Writer>(Writer*) { Writer(run.pending).write(run.pending.rows); });
  run.pending.rows = 0;
}

/// Bytes from the outputs of a pair of tiles to about those of the next.
std::int64_t outputs_ahead(const Run& run) {
  const ConvStrides& to = run.args.to_strides;
  return (run.plan.down_first ? 2 * to.axis[1] : 2 * kTilePixels * to.axis[2]) * bytes_of(run.args.to_dtype);
}

/// Lines that will be wanted.
struct Ahead {
  const char* at = nullptr;
  std::int64_t lines = 0;
};

/// `count` units in scratch by panels [begin, end), of a slab that begins with `slab_panel`; `ahead` is fetched meanwhile.
void run_chunk(Run& run, const Unit* units, std::int64_t count, const Slab& slab, std::int64_t slab_panel, std::int64_t begin,
               std::int64_t end, bool first, Ahead ahead) {
  const DensePlan& plan = run.plan;
  std::int64_t total = 0;
  for (std::int64_t u = 0; u < count; ++u) total += tiles_of(run, units[u]);
  const std::int64_t each = ceil_div(ahead.lines, larger(total / 2, 1) * (end - begin));
  std::int64_t unit = 0;
  std::int64_t index = 0;
  for (std::int64_t done = 0; done < total; done += 2) {
    const std::int64_t tiles = smaller(total - done, 2);
    const char* a[2] = {nullptr, nullptr};
    const Unit* owners[2];
    Tile pair[2];
    run.pair ^= 1;
    Stretches& stretches = run.stretches[run.pair];
    stretches.count = stretches.rows = 0;
    for (std::int64_t i = 0; i < tiles; ++i, ++index) {
      if (index == tiles_of(run, units[unit])) {
        ++unit;
        index = 0;
      }
      owners[i] = &units[unit];
      pair[i] = tile_of(run, units[unit], index);
      a[i] = run.scratch + plan.image + unit * plan.unit_bytes() + (pair[i].y * plan.pitch + pair[i].x) * kPlaceBytes;
      add_stretches(run, units[unit], pair[i], slab.out_first, i * kTilePixels, &stretches);
    }
    for (std::int64_t p = begin; p < end; ++p) {
      char* stage = run.stage();
      const Block block{a[0],
                        a[1],
                        run.offsets(),
                        run.panel(p),
                        plan.shape.steps,
                        run.scratch + plan.bias + (p - run.block.panel_begin) * kPanelColumns * 4,
                        stage,
                        run.pending,
                        ahead.at,
                        smaller(each, ahead.lines)};
      ahead.at += block.ahead_lines * 64;
      ahead.lines -= block.ahead_lines;
      const bool unfetched = first && done == 0;
      if (run.pending.rows == 0) {
        multiply<NoDrain>(block, unfetched, run.shared);
      } else {
        with_writer(run, [&]<typename Writer>(Writer*) { multiply<Writer>(block, unfetched, run.shared); });
      }
      const std::int64_t channel = (p - slab_panel) * kPanelColumns;
      const std::int64_t channels = smaller(slab.out - channel, kPanelColumns);
      for (std::int64_t i = 0; run.in_stage && i < tiles; ++i) {
        finish_tile(run, *owners[i], pair[i], channels, slab.out_first + channel, reinterpret_cast<float*>(stage + i * 2 * kTileBytes));
      }
      run.pending = {stage,
                     stretches.at,
                     stretches.rows,
                     channel * bytes_of(run.args.to_dtype),
                     run.pixel,
                     run.args.residual_strides.axis[2] * bytes_of(run.args.to_dtype),
                     mask32(channels),
                     run.low(),
                     run.high(),
                     done + 4 <= total ? outputs_ahead(run) : 0};
      run.turn ^= 1;
    }
  }
}

void load_bias(const ConvArgs& args, const DensePlan& plan, std::int64_t panel, float* to) {
  const std::int64_t slab = panel / plan.shape.panels;
  const std::int64_t channel = panel % plan.shape.panels * kPanelColumns;
  const Slab channels = slab_of(args, plan.shape, slab);
  if (args.bias != nullptr && args.bias_dtype == DType::kF32 && channel + kPanelColumns <= channels.out) {
    __builtin_memcpy(to, static_cast<const float*>(args.bias) + channels.out_first + channel, kPanelColumns * 4);
    return;
  }
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
  const Finish finish = finish_of(args);
  Run run{args,
          plan,
          block,
          static_cast<char*>(memory),
          finish,
          finish == Finish::kNothing && (args.activation != ConvActivation::kNone || args.residual != nullptr),
          args.to_dtype == DType::kBf16,
          args.to_strides.axis[2] * bytes_of(args.to_dtype),
          core_is_shared()};
  if (!block.same_rows) lay_offsets(args, plan, reinterpret_cast<std::int64_t*>(run.scratch + plan.offsets));
  for (std::int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
    load_bias(args, plan, panel, reinterpret_cast<float*>(run.scratch + plan.bias) + (panel - block.panel_begin) * kPanelColumns);
  }
  auto* laid = reinterpret_cast<Laid*>(run.scratch + plan.laid);
  if (!block.same_rows) *laid = Laid();
  const std::int64_t panel_ahead = larger(block.panel_ahead, block.panel_end);
  tile_configure(whole_tiles());
  for (std::int64_t panel = block.panel_begin; panel < block.panel_end;) {
    const std::int64_t index = panel / plan.shape.panels;
    const std::int64_t slab_end = smaller((index + 1) * plan.shape.panels, block.panel_end);
    const Slab slab = slab_of(args, plan.shape, index);
    const bool lie = laid->whole && laid->slab == index;
    laid->whole = true;
    laid->slab = index;
    bool first = true;
    for (std::int64_t row = block.row_begin; row < block.row_end;) {
      Unit units[kUnitsMost];
      std::int64_t count = 0;
      while (row < block.row_end && count < smaller(plan.units, kUnitsMost)) {
        units[count] = unit_of(args, plan, row, block.row_end);
        char* image = run.scratch + plan.image + count * plan.unit_bytes();
        const bool together = slab.in > plan.shape.group_in;
        const bool finite = lie || (together ? lay_unit<Largest>(args, plan, units[count], slab, image)
                                             : lay_unit<Unseen>(args, plan, units[count], slab, image));
        const std::int64_t next = row + units[count].rows;
        if (finite) {
          ++count;
        } else {  // what is not finite would reach the other groups' outputs through their zeros
          plan.apart(args, plan, {row, next, panel, slab_end}, nullptr);
          laid->whole = false;
        }
        row = next;
      }
      laid->whole = laid->whole && row >= block.row_end && first;  // one batch of units was enough
      for (std::int64_t begin = panel; count > 0 && begin < slab_end;) {
        const std::int64_t end = smaller(begin + plan.chunk, slab_end);
        Ahead ahead;
        if (end < slab_end || row >= block.row_end) {
          ahead.at = run.panel(end);
          ahead.lines = (smaller(end + plan.chunk, panel_ahead) - end) * plan.shape.panel_bytes() / 64;
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
  write_pending(run);
  tile_release();
}

}  // namespace ipexrun::kernels::amx
