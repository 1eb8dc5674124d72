#include "preload/plugin/adapters/convolution_operators.h"

namespace ipexrun::preload {
namespace {

template <typename Schema>
void find(std::optional<c10::TypedOperatorHandle<Schema>>* to, const char* name, const char* overload = "") {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op) return;
  try {
    *to = op->typed<Schema>();
  } catch (const std::exception&) {  // a torch whose operator takes other arguments
  }
}

ConvolutionOperators find_all() {
  ConvolutionOperators found;
  find(&found.reorder, "mkldnn::_reorder_convolution_weight");
  find(&found.pointwise, "mkldnn::_convolution_pointwise");
  find(&found.pointwise_binary, "mkldnn::_convolution_pointwise", "binary");
  find(&found.reorder_transposed, "mkldnn::_reorder_convolution_transpose_weight");
  find(&found.pointwise_transposed, "mkldnn::_convolution_transpose_pointwise");
  std::optional<c10::TypedOperatorHandle<bool()>> take_bf16;
  find(&take_bf16, "mkldnn::_is_mkldnn_bf16_supported");
  if (take_bf16) found.take_bf16 = take_bf16->call();
  return found;
}

}  // namespace

const ConvolutionOperators& convolution_operators() {
  static const auto* found = new ConvolutionOperators(find_all());
  return *found;
}

}  // namespace ipexrun::preload
