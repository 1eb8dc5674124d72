#include "preload/plugin/graph/layout.h"

namespace ipexrun::preload::graph {
namespace {

bool has_strides_of(const at::Tensor& tensor, bool channels_last) {
  std::int64_t step = channels_last ? tensor.size(1) : 1;
  for (std::int64_t i = tensor.dim() - 1; i >= 0; --i) {
    if (channels_last && i == 1) continue;
    if (tensor.stride(i) != step) return false;
    step *= tensor.size(i);
  }
  return !channels_last || tensor.stride(1) == 1;
}

}  // namespace

Layout layout_of(const at::Tensor& tensor) {
  if (tensor.dim() < 3 || tensor.dim() > 5) return Layout::kUnknown;
  if (has_strides_of(tensor, false)) return Layout::kPlanar;
  return tensor.dim() > 3 && has_strides_of(tensor, true) ? Layout::kChannelsLast : Layout::kUnknown;
}

}  // namespace ipexrun::preload::graph
