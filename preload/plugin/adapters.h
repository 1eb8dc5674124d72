// Kernels that take stock's place at the CPU key. Each returns what stock returns, or lets stock answer.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <tuple>

namespace ipexrun::preload::adapters {

/// Looks up the operators of stock that candidates call. What this torch lacks is not offered.
void find_operators();

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha);
at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                      const at::Scalar& alpha, at::Tensor& out);
/// Takes the product and the activation apart, each of which is then answered as any other call of it.
at::Tensor addmm_activation(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                            const at::Scalar& alpha, bool use_gelu);
at::Tensor& addmm_(at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha);
at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2);
at::Tensor& mm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out);
at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2);
at::Tensor& bmm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out);
at::Tensor baddbmm(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
                   const at::Scalar& alpha);
at::Tensor& baddbmm_out(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
                        const at::Scalar& alpha, at::Tensor& out);
at::Tensor& baddbmm_(at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta, const at::Scalar& alpha);
at::Tensor int_mm(const at::Tensor& self, const at::Tensor& mat2);
at::Tensor weight_int8pack_mm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scales);
at::Tensor weight_int4pack_mm(const at::Tensor& self, const at::Tensor& mat2, std::int64_t group, const at::Tensor& pairs);
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
                       c10::SymInt groups);
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                                                    const at::Tensor& weight, at::OptionalSymIntArrayRef bias_sizes,
                                                                    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                                                                    c10::SymIntArrayRef dilation, bool transposed,
                                                                    c10::SymIntArrayRef output_padding, c10::SymInt groups,
                                                                    std::array<bool, 3> output_mask);
at::Tensor gelu(const at::Tensor& self, c10::string_view approximate);
at::Tensor tanh(const at::Tensor& self);
at::Tensor sigmoid(const at::Tensor& self);
at::Tensor silu(const at::Tensor& self);
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> mkldnn_rnn_layer(
    const at::Tensor& input, const at::Tensor& weight0, const at::Tensor& weight1, const at::Tensor& weight2, const at::Tensor& weight3,
    const at::Tensor& hx, const at::Tensor& cx, bool reverse, at::IntArrayRef batch_sizes, std::int64_t mode, std::int64_t hidden_size,
    std::int64_t num_layers, bool has_biases, bool bidirectional, bool batch_first, bool train);
std::tuple<at::Tensor, at::Tensor> scaled_dot_product_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                                                double dropout_p, bool is_causal,
                                                                const std::optional<at::Tensor>& attn_mask, std::optional<double> scale);
std::tuple<at::Tensor, at::Tensor, at::Tensor> scaled_dot_product_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& out,
    const at::Tensor& logsumexp, double dropout_p, bool is_causal, const std::optional<at::Tensor>& attn_mask, std::optional<double> scale);
at::Tensor softmax(const at::Tensor& self, std::int64_t dim, bool half_to_float);
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                                                                 const std::optional<at::Tensor>& weight,
                                                                 const std::optional<at::Tensor>& bias, double eps);
std::tuple<at::Tensor, at::Tensor> max_pool2d_with_indices(const at::Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                                                           at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode);
at::Tensor avg_pool2d(const at::Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding, bool ceil_mode,
                      bool count_include_pad, std::optional<std::int64_t> divisor_override);
at::Tensor adaptive_avg_pool2d(const at::Tensor& self, c10::SymIntArrayRef output_size);
at::Tensor upsample_nearest2d(const at::Tensor& self, c10::SymIntArrayRef output_size, std::optional<double> scales_h,
                              std::optional<double> scales_w);
at::Tensor upsample_nearest_exact2d(const at::Tensor& self, c10::SymIntArrayRef output_size, std::optional<double> scales_h,
                                    std::optional<double> scales_w);
at::Tensor upsample_bilinear2d(const at::Tensor& self, c10::SymIntArrayRef output_size, bool align_corners, std::optional<double> scales_h,
                               std::optional<double> scales_w);
at::Tensor upsample_bicubic2d(const at::Tensor& self, c10::SymIntArrayRef output_size, bool align_corners, std::optional<double> scales_h,
                              std::optional<double> scales_w);
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_group_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                                                                 const std::optional<at::Tensor>& bias, c10::SymInt N, c10::SymInt C,
                                                                 c10::SymInt HxW, std::int64_t group, double eps);
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                                                                 const std::optional<at::Tensor>& bias,
                                                                 const std::optional<at::Tensor>& running_mean,
                                                                 const std::optional<at::Tensor>& running_var, bool training,
                                                                 double momentum, double eps);
std::tuple<at::Tensor, at::Tensor> topk(const at::Tensor& self, c10::SymInt k, std::int64_t dim, bool largest, bool sorted);
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> embedding_bag_forward_only(const at::Tensor& weight, const at::Tensor& indices,
                                                                                      const at::Tensor& offsets, bool scale_grad_by_freq,
                                                                                      std::int64_t mode, bool sparse,
                                                                                      const std::optional<at::Tensor>& per_sample_weights,
                                                                                      bool include_last_offset, std::int64_t padding_idx);
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> embedding_bag(const at::Tensor& weight, const at::Tensor& indices,
                                                                         const at::Tensor& offsets, bool scale_grad_by_freq,
                                                                         std::int64_t mode, bool sparse,
                                                                         const std::optional<at::Tensor>& per_sample_weights,
                                                                         bool include_last_offset, std::int64_t padding_idx);

}  // namespace ipexrun::preload::adapters
