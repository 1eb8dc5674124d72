#include "preload/plugin/adapters/images.h"

#include <array>

#include "kernels/reorder.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"

namespace ipexrun::preload {
namespace {

kernels::ReorderArgs reorder_args(const at::Tensor& from, const at::Tensor& to) {
  kernels::ReorderArgs args;
  args.from = from.const_data_ptr();
  args.from_dtype = kernel_dtype(from);
  args.to = to.mutable_data_ptr();
  args.to_dtype = kernel_dtype(to);
  args.images = from.size(0);
  args.channels = from.size(1);
  args.pixels = from.numel() / (from.size(0) * from.size(1));
  return args;
}

/// Where sizes of 1 make both orders the same memory, strides still tell which of the two stock has.
at::Tensor with_strides_of(const at::Tensor& tensor, bool channels_last) {
  std::array<std::int64_t, 5> strides{};
  const std::int64_t dims = tensor.dim();
  std::int64_t step = channels_last ? tensor.size(1) : 1;
  for (std::int64_t i = dims - 1; i >= 0; --i) {
    if (channels_last && i == 1) continue;
    strides[static_cast<std::size_t>(i)] = step;
    step *= tensor.size(i);
  }
  if (channels_last) strides[1] = 1;
  const at::IntArrayRef wanted(strides.data(), static_cast<std::size_t>(dims));
  return tensor.strides() == wanted ? tensor : tensor.as_strided(tensor.sizes(), wanted);
}

}  // namespace

bool asks_for_channels_last(const at::Tensor& tensor) {
  const at::MemoryFormat format = (tensor.dim() == 3 ? tensor.unsqueeze(2) : tensor).suggest_memory_format();
  return format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d;
}

at::Tensor for_onednn(const at::Tensor& input, at::ScalarType inside, IsaSet isa) {
  const at::MemoryFormat last = last_format(input);
  if (!input.is_contiguous() || input.is_contiguous(last)) return input.to(inside);
  at::Tensor to = scratch_empty(input.sizes(), inside, last);
  kernels::to_channels_last(reorder_args(input, to), torch_pool(), isa);
  return to;
}

at::Tensor as_stock(const at::Tensor& result, at::ScalarType dtype, bool channels_last, IsaSet isa) {
  const at::MemoryFormat last = last_format(result);
  const at::MemoryFormat format = channels_last ? last : at::MemoryFormat::Contiguous;
  if (channels_last && result.scalar_type() == dtype && result.is_contiguous(last)) return with_strides_of(result, true);
  if (channels_last || result.is_contiguous() || !result.is_contiguous(last)) {
    return with_strides_of(result.to(result.options().dtype(dtype), false, false, format).contiguous(format), channels_last);
  }
  at::Tensor to = scratch_empty(result.sizes(), dtype);
  kernels::to_planar(reorder_args(result, to), torch_pool(), isa);
  return to;
}

at::Tensor with_channels_last(const at::Tensor& input, at::ScalarType inside, IsaSet isa) {
  if (input.size(1) == 1 || input.stride(1) == 1) return input;
  if (input.is_contiguous()) return for_onednn(input, inside, isa);
  return input.contiguous(last_format(input));
}

kernels::ConvStrides kernel_strides(const at::Tensor& tensor) {
  kernels::ConvStrides strides;
  strides.image = tensor.stride(0);
  const std::int64_t dims = tensor.dim() - 2;
  for (std::int64_t i = 0; i < dims; ++i) strides.axis[3 - dims + i] = tensor.stride(2 + i);
  return strides;
}

}  // namespace ipexrun::preload
