// Sites and the candidate of interpolation: our own vector code over tables made by torch's own inline functions, so that an output is
// made of the same elements with the same weights as stock's. No error of an output depends on other elements than its taps, so one
// check holds for the site.
#include "preload/plugin/adapters/resize_call.h"

#include <ATen/Parallel.h>
#include <ATen/native/UpSample.h>
#include <ATen/ops/empty_cpu_dispatch.h>
#include <ATen/ops/upsample_bilinear2d_cpu_dispatch.h>
#include <ATen/ops/zeros_compositeexplicitautograd_dispatch.h>

#include <bit>
#include <cmath>

#include "configs/contract/decision.h"
#include "preload/plugin/adapters/digest.h"
#include "preload/plugin/adapters/sampling.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"

namespace ipexrun::preload {
namespace {

std::int64_t bits_of(std::optional<double> scale) { return scale ? std::bit_cast<std::int64_t>(*scale) : 0; }

/// Whether torch's kernel, of the same inline functions, was compiled to scale and shift a place at once, as compilers do where there is an
/// instruction for it. Asked of stock itself: of 14 pixels that become 42, output 1 lies on pixel 0 if the product is rounded before.
bool stock_rounds_places_once() {
  static const bool once = [] {
    const at::Tensor pixels = at::compositeexplicitautograd::zeros({1, 1, 1, 14}, at::TensorOptions().dtype(at::kFloat));
    pixels.mutable_data_ptr<float>()[1] = 1;
    return at::cpu::upsample_bilinear2d(pixels, {1, 42}, false, std::nullopt, std::nullopt).const_data_ptr<float>()[1] != 0;
  }();
  return once;
}

/// Where in the image an output lies. Whether that is whole decides which pixels are met: an infinity or NaN among them shows.
float place_of(float ratio, std::int64_t out, bool align_corners, bool cubic) {
  if (align_corners || !stock_rounds_places_once()) {
    return at::native::area_pixel_compute_source_index<float>(ratio, out, align_corners, cubic);
  }
  const float place = std::fma(ratio, static_cast<float>(out) + 0.5f, -0.5f);
  return !cubic && place < 0 ? 0 : place;
}

std::string scale_text(char name, std::optional<double> scale) {
  return scale ? std::string(",s") + name + '=' + std::to_string(*scale) : "";
}

}  // namespace

kernels::ResizeAxis ResizeTable::axis() const {
  kernels::ResizeAxis axis;
  axis.size = size;
  axis.outputs = outputs;
  axis.pitch = pitch;
  axis.taps = taps;
  axis.places = places.data();
  axis.weights = weights.empty() ? nullptr : weights.data();
  return axis;
}

ResizeTable ResizeCall::table(std::int64_t size, std::int64_t outputs, std::optional<double> scale) const {
  ResizeTable table;
  table.size = size;
  table.outputs = outputs;
  table.pitch = (outputs + kernels::kResizePadding - 1) / kernels::kResizePadding * kernels::kResizePadding;
  table.taps = kind == ResizeKind::kCubic ? 4 : kind == ResizeKind::kLinear ? 2 : 1;
  table.places.resize(static_cast<std::size_t>(table.taps * table.pitch));
  if (table.taps > 1) table.weights.resize(table.places.size());
  const float ratio = table.taps > 1 ? at::native::area_pixel_compute_scale<float>(size, outputs, align_corners, scale) : 0;
  for (std::int64_t i = 0; i < table.pitch; ++i) {
    const std::int64_t out = std::min(i, outputs - 1);  // entries behind the last output must be places too
    const auto put = [&](int tap, std::int64_t place, float weight) {
      const auto at = static_cast<std::size_t>(tap * table.pitch + i);
      table.places[at] = static_cast<std::int32_t>(place);
      if (table.taps > 1) table.weights[at] = weight;
    };
    if (kind == ResizeKind::kNearest) {
      put(0, at::native::nearest_idx(out, size, outputs, scale), 1);
    } else if (kind == ResizeKind::kNearestExact) {
      put(0, at::native::nearest_exact_idx(out, size, outputs, scale), 1);
    } else if (kind == ResizeKind::kLinear) {
      std::int64_t place = out;
      float rest = 0;
      if (size != outputs) at::native::guard_index_and_lambda(place_of(ratio, out, align_corners, false), size, place, rest);
      put(0, place, 1 - rest);
      put(1, size != outputs && place < size - 1 ? place + 1 : place, rest);
    } else {
      std::int64_t place = 0;
      float rest = 0;
      float weights[4];
      at::native::guard_index_and_lambda(place_of(ratio, out, align_corners, true), size, place, rest);
      at::native::get_cubic_upsample_coefficients<float>(weights, rest);
      for (int tap = 0; tap < 4; ++tap) put(tap, std::clamp<std::int64_t>(place + tap - 1, 0, size - 1), weights[tap]);
    }
  }
  return table;
}

SiteId ResizeCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(x->scalar_type()) | (align_corners ? 1u << 8 : 0);
  id.threads = at::get_num_threads();
  id.batch = round_up_rows(x->size(0) * x->size(1));
  id.m = x->size(2);
  id.n = x->size(3);
  id.k = out_height;
  id.detail = digest_of({out_width, bits_of(scale_height), bits_of(scale_width)});
  return id;
}

SiteKey ResizeCall::site_key(const SiteId& id, const TierOptions& options) const {
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = x->scalar_type() == at::kFloat ? "f32" : "bf16";
  key.layouts = "c";
  key.sizes = "planes=" + std::to_string(id.batch) + ",h=" + std::to_string(id.m) + ",w=" + std::to_string(id.n) +
              ",to=" + std::to_string(out_height) + 'x' + std::to_string(out_width) + (align_corners ? ",corners=1" : "") +
              scale_text('h', scale_height) + scale_text('w', scale_width);
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> ResizeCall::candidates(const TierOptions& options) const {
  if (!kernels::resize_supported(options.isa)) return {};
  return {kOwnF32};
}

Outputs ResizeCall::run(int /*candidate*/, const Packs& /*packs*/, IsaSet isa) const {
  at::Tensor result = at::cpu::empty({x->size(0), x->size(1), out_height, out_width}, x->options());
  const ResizeTable down = table(x->size(2), out_height, scale_height);
  const ResizeTable across = table(x->size(3), out_width, scale_width);
  kernels::ResizeArgs args;
  args.from = x->const_data_ptr();
  args.to = result.mutable_data_ptr();
  args.dtype = kernel_dtype(*x);
  args.planes = x->size(0) * x->size(1);
  args.down = down.axis();
  args.across = across.axis();
  if (!kernels::resize(args, torch_pool(), isa)) return {};
  return result;
}

template <typename T>
bool ResizeCall::accurate_as(const at::Tensor& stock, const at::Tensor& candidate, Precision precision) const {
  const T* from = x->const_data_ptr<T>();
  const T* s = stock.const_data_ptr<T>();
  const T* c = candidate.const_data_ptr<T>();
  const std::int64_t count = stock.numel();
  if (kind == ResizeKind::kNearest || kind == ResizeKind::kNearestExact) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (s[i] != c[i] && (s[i] == s[i] || c[i] == c[i])) return false;
    }
    return true;
  }
  const ResizeTable down = table(x->size(2), out_height, scale_height);
  const ResizeTable across = table(x->size(3), out_width, scale_width);
  Samples samples;
  spread(count, std::min(count, kSampledElements), [&](std::int64_t i) {
    const auto column = static_cast<std::size_t>(i % out_width);
    const auto row = static_cast<std::size_t>(i / out_width % out_height);
    const T* plane = from + i / out_width / out_height * down.size * across.size;
    double sum = 0;
    for (std::size_t v = row; v < down.places.size(); v += static_cast<std::size_t>(down.pitch)) {
      for (std::size_t h = column; h < across.places.size(); h += static_cast<std::size_t>(across.pitch)) {
        sum += static_cast<double>(down.weights[v]) * static_cast<double>(across.weights[h]) *
               static_cast<double>(plane[down.places[v] * across.size + across.places[h]]);
      }
    }
    samples.add(sum, s[i], c[i]);
  });
  return samples.pass(1, s, c, count, precision);
}

bool ResizeCall::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  if (x->scalar_type() == at::kBFloat16) return accurate_as<at::BFloat16>(stock.first, result.first, Precision::kBf16Op);
  return accurate_as<float>(stock.first, result.first, Precision::kFloat32);
}

}  // namespace ipexrun::preload
