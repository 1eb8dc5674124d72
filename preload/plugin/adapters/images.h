// Images [N, C, height, width] or [N, C, depth, height, width] as the kernels of convolutions want them: channels last, in a dtype of
// choice.
#pragma once

#include <ATen/core/Tensor.h>

#include "configs/base/isa.h"
#include "kernels/conv.h"

namespace ipexrun::preload {

/// oneDNN's operators know two and three spatial dimensions: one more is put before a single one, as stock does.
inline at::Tensor widened(const at::Tensor& tensor) { return tensor.dim() == 3 ? tensor.unsqueeze(2) : tensor; }

/// Stock's rule for the result of a convolution is that the image or the weight asks for channels last. With one spatial dimension it asks
/// the tensor that has a second one in front of it.
bool asks_for_channels_last(const at::Tensor& tensor);

inline at::MemoryFormat last_format(const at::Tensor& tensor) {
  return tensor.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
}

/// In channels-last order and of type `inside`, which is what oneDNN works in: from planar images in one pass over them.
at::Tensor for_onednn(const at::Tensor& input, at::ScalarType inside, IsaSet isa);

/// A channels-last result in the type and order that stock returns.
at::Tensor as_stock(const at::Tensor& result, at::ScalarType dtype, bool channels_last, IsaSet isa);

/// Channels of a pixel are neighbours, which our kernel reads; how pixels lie is its strides'. What is copied anyway is of type `inside`.
at::Tensor with_channels_last(const at::Tensor& input, at::ScalarType inside, IsaSet isa);

kernels::ConvStrides kernel_strides(const at::Tensor& tensor);

}  // namespace ipexrun::preload
