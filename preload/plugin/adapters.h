// Kernels that take stock's place at the CPU key. Each returns what stock returns, or lets stock answer.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipexrun::preload::adapters {

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha);
at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2);
at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2);

}  // namespace ipexrun::preload::adapters
