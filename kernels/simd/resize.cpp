// resize, a row of the output at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// A vector of outputs takes its elements out of two vectors of the input where they lie within that reach (whenever the image grows),
// else by gathering.
#include "kernels/simd/resize.h"

#include "kernels/dispatch.h"
#include "kernels/simd/element.h"
#include "kernels/simd/floats.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;
constexpr int kLanes = Lanes::kCount;

[[gnu::always_inline]] inline Vector load(const float* from) { return Floats::of_bits(Lanes::load(from)); }
[[gnu::always_inline]] inline void store(float* to, Vector value) { Lanes::store(to, Floats::bits_of(value)); }

struct Scratch {
  float* row;            ///< of the input, as fp32
  std::int32_t* places;  ///< of each tap and output column: in its two vectors when `near`, else in the row
  std::int32_t* begins;  ///< of each vector of outputs: where its two vectors begin
  float* stretched;      ///< rows at their place modulo kMaxResizeTaps
  float* result;
  bool near;
  std::int64_t tags[kMaxResizeTaps];  ///< which row of which plane is stretched there

  Scratch(const ResizeArgs& args, void* memory) {
    const ResizeAxis& axis = args.across;
    row = static_cast<float*>(memory);
    const std::int64_t row_floats = (axis.size + kResizePadding - 1) / kResizePadding * kResizePadding + 2 * kResizePadding;
    for (std::int64_t i = 0; i < row_floats; ++i) row[i] = 0;
    stretched = row + row_floats;
    result = stretched + kMaxResizeTaps * axis.pitch;
    begins = reinterpret_cast<std::int32_t*>(result + axis.pitch);
    places = begins + axis.pitch;
    near = true;
    for (std::int64_t x = 0; x < axis.pitch; x += kLanes) {
      std::int32_t low = axis.places[x];
      std::int32_t high = low;
      for (int t = 0; t < axis.taps; ++t) {
        for (int i = 0; i < kLanes; ++i) {
          const std::int32_t place = axis.places[t * axis.pitch + x + i];
          if (place < low) low = place;
          if (place > high) high = place;
        }
      }
      begins[x / kLanes] = low;
      near = near && high - low < 2 * kLanes;
    }
    for (int t = 0; t < axis.taps; ++t) {
      for (std::int64_t x = 0; x < axis.pitch; ++x) {
        places[t * axis.pitch + x] = axis.places[t * axis.pitch + x] - (near ? begins[x / kLanes] : 0);
      }
    }
    for (std::int64_t& tag : tags) tag = -1;
  }
};

/// Taps: 1 copies.
template <int Taps, bool Near>
[[gnu::always_inline]] inline void stretch_as(const ResizeAxis& axis, const Scratch& scratch, float* to) {
  for (std::int64_t x = 0; x < axis.outputs; x += kLanes) {
    const float* from = scratch.row + (Near ? scratch.begins[x / kLanes] : 0);
    const Vector low = Near ? load(from) : Floats::all(0.0f);
    const Vector high = Near ? load(from + kLanes) : low;
    Vector sum = low;
#pragma GCC unroll 4
    for (int t = 0; t < Taps; ++t) {
      const Lanes::Vector places = Lanes::load(scratch.places + t * axis.pitch + x);
      const Vector value = Near ? Floats::among(low, high, places) : Floats::gather(from, places);
      if (Taps == 1) {
        sum = value;
      } else {
        const Vector weight = load(axis.weights + t * axis.pitch + x);
        sum = t == 0 ? Floats::multiply(weight, value) : Floats::fma(weight, value, sum);
      }
    }
    store(to + x, sum);
  }
}

template <bool Near>
void stretch(const ResizeAxis& axis, const Scratch& scratch, float* to) {
  switch (axis.weights == nullptr ? 1 : axis.taps) {
    case 1:
      return stretch_as<1, Near>(axis, scratch, to);
    case 2:
      return stretch_as<2, Near>(axis, scratch, to);
    case 3:
      return stretch_as<3, Near>(axis, scratch, to);
    default:
      return stretch_as<4, Near>(axis, scratch, to);
  }
}

/// Row y of `plane`, stretched.
template <typename Element>
const float* stretched(const ResizeArgs& args, Scratch& scratch, std::int64_t plane, std::int64_t y) {
  const std::int64_t tag = plane * args.down.size + y;
  const std::int64_t slot = y % kMaxResizeTaps;
  float* to = scratch.stretched + slot * args.across.pitch;
  if (scratch.tags[slot] == tag) return to;
  scratch.tags[slot] = tag;
  const Element* from = static_cast<const Element*>(args.from) + tag * args.across.size;
  for (std::int64_t i = 0; i < args.across.size; ++i) scratch.row[i] = as_f32(from[i]);
  (scratch.near ? stretch<true> : stretch<false>)(args.across, scratch, to);
  return to;
}

template <typename Element>
void resize_rows(const ResizeArgs& args, std::int64_t row_begin, std::int64_t row_end, void* memory) {
  Scratch scratch(args, memory);
  const ResizeAxis& down = args.down;
  const std::int64_t width = args.across.outputs;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::int64_t plane = row / down.outputs;
    const std::int64_t y = row % down.outputs;
    const float* rows[kMaxResizeTaps];
    for (int t = 0; t < down.taps; ++t) rows[t] = stretched<Element>(args, scratch, plane, down.places[t * down.pitch + y]);
    const float* result = rows[0];
    if (down.weights != nullptr) {
      for (std::int64_t x = 0; x < width; x += kLanes) {
        Vector sum = Floats::multiply(Floats::all(down.weights[y]), load(rows[0] + x));
        for (int t = 1; t < down.taps; ++t) sum = Floats::fma(Floats::all(down.weights[t * down.pitch + y]), load(rows[t] + x), sum);
        store(scratch.result + x, sum);
      }
      result = scratch.result;
    }
    Element* to = static_cast<Element*>(args.to) + row * width;
    for (std::int64_t x = 0; x < width; ++x) put(to + x, result[x]);
  }
}

}  // namespace

void resize(const ResizeArgs& args, std::int64_t row_begin, std::int64_t row_end, void* scratch) {
  (args.dtype == DType::kF32 ? resize_rows<float> : resize_rows<std::uint16_t>)(args, row_begin, row_end, scratch);
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
