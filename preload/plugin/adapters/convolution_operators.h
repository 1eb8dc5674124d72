// Stock's operators of oneDNN that convolutions call, with their weights reordered once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace ipexrun::preload {

using NoScalars = c10::List<std::optional<at::Scalar>>;

/// A torch that lacks one, or whose operator takes other arguments, leaves it empty.
struct ConvolutionOperators {
  using Reorder = at::Tensor(const at::Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t, at::OptionalIntArrayRef);
  using ReorderTransposed = at::Tensor(const at::Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t,
                                       at::OptionalIntArrayRef);
  using Pointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, at::IntArrayRef, at::IntArrayRef,
                               at::IntArrayRef, std::int64_t, c10::string_view, NoScalars, std::optional<c10::string_view>);
  using PointwiseBinary = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                     at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t, c10::string_view,
                                     const std::optional<at::Scalar>&, std::optional<c10::string_view>, NoScalars,
                                     std::optional<c10::string_view>);
  using PointwiseTransposed = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, at::IntArrayRef,
                                         at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t, c10::string_view, NoScalars,
                                         std::optional<c10::string_view>);

  std::optional<c10::TypedOperatorHandle<Reorder>> reorder;
  std::optional<c10::TypedOperatorHandle<ReorderTransposed>> reorder_transposed;
  std::optional<c10::TypedOperatorHandle<Pointwise>> pointwise;
  std::optional<c10::TypedOperatorHandle<PointwiseBinary>> pointwise_binary;
  std::optional<c10::TypedOperatorHandle<PointwiseTransposed>> pointwise_transposed;
  bool take_bf16 = true;  ///< on this CPU: below AVX-512 they raise, which no cap of instruction sets tells
};

/// Looked up once, by whoever asks first.
const ConvolutionOperators& convolution_operators();

}  // namespace ipexrun::preload
