// addmm, mm, bmm and baddbmm, functional, in place and into out=. The order of the tests matters: what declines most often and costs
// least stands first.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_addmm_activation_cpu_dispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/relu.h>

#include <array>
#include <cmath>

#include "preload/plugin/adapters.h"
#include "preload/plugin/adapters/linear_call.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"

namespace ipexrun::preload::adapters {
namespace {

/// Multiply-adds below which a call is left alone: stock needs a few microseconds there, about what looking a weight up and
/// checking it costs (bench/op_tier.py, field "declined").
constexpr std::int64_t kWorthwhileProducts = 32768;
constexpr std::int64_t kWorthwhileBatched = 1'000'000;  ///< without a weight the whole call is short: a check once a site has to pay
constexpr std::int64_t kWorthwhileLoops = 100'000;      ///< the same where stock loops over elements: 3 GFLOP/s
constexpr std::int64_t kProductsOfMatrix = 2000;        ///< that stock could do in the time it spends on each matrix of a batch
constexpr std::int64_t kFewMatrices = 128;
static_assert(kFewMatrices * kProductsOfMatrix + kWorthwhileProducts < kWorthwhileBatched);

/// Whether the sizes alone say that worthwhile() will find a product of float32 not to be. (With few matrices: of many, each costs stock
/// something.)
bool small_2d(const at::Tensor& x, const at::Tensor& w) {
  if (x.scalar_type() != at::kFloat || x.dim() != 2 || w.dim() != 2) return false;
  return x.numel() * w.sizes()[1] < kWorthwhileProducts;
}
bool small_3d(const at::Tensor& x, const at::Tensor& w) {
  if (x.scalar_type() != at::kFloat || x.dim() != 3 || w.dim() != 3 || x.sizes()[0] > kFewMatrices) return false;
  return x.numel() * w.sizes()[2] < kWorthwhileProducts;
}

/// Reads the last two dimensions of the right operand; false when they are neither row-major nor transposed, or overlap.
bool read_right(LinearCall* call, const at::Tensor& w) {
  const at::IntArrayRef sizes = w.sizes();
  const at::IntArrayRef strides = w.strides();
  const std::size_t at = sizes.size() - 2;
  call->k = sizes[at];
  call->n = sizes[at + 1];
  call->stride_k = strides[at];
  call->stride_n = strides[at + 1];
  if (call->stride_k == 1 && call->stride_n >= call->k) {
    call->w_layout = 't';
    return true;
  }
  call->w_layout = 'c';
  return call->stride_n == 1 && call->stride_k >= call->n;
}

bool read_left(LinearCall* call, const at::Tensor& x) {
  const at::IntArrayRef sizes = x.sizes();
  const at::IntArrayRef strides = x.strides();
  const std::size_t at = sizes.size() - 2;
  call->m = sizes[at];
  call->lda = strides[at];
  call->x_layout = call->lda == call->k ? 'c' : 's';
  return sizes[at + 1] == call->k && (strides[at + 1] == 1 || call->k == 1) && call->lda >= call->k;
}

/// The same of a transposed matrix.
bool read_left_transposed(LinearCall* call, const at::Tensor& x) {
  const at::IntArrayRef sizes = x.sizes();
  const at::IntArrayRef strides = x.strides();
  const std::size_t at = sizes.size() - 2;
  call->m = sizes[at];
  call->lda = strides[at];
  call->x_step = strides[at + 1];
  call->x_layout = 't';
  return sizes[at + 1] == call->k && call->lda == 1 && call->x_step >= call->m;
}

bool worthwhile(const LinearCall& call) {
  if (call.m <= 0 || call.n <= 0 || call.k <= 0) return false;
  const std::int64_t products = call.m * call.n * call.k;
  const bool loops = call.dtype != at::kFloat && !half_is_native(call.dtype, tier()->options.isa);
  const std::int64_t batched = loops ? kWorthwhileLoops : kWorthwhileBatched;
  if (call.batched ? call.batch * (products + kProductsOfMatrix) >= batched : products >= kWorthwhileProducts) return true;
  return tier()->forced.load(std::memory_order_relaxed) != kStock;  // tests compare the candidate, however small the call
}

bool describe_2d(LinearCall* call, const at::Tensor& x, const at::Tensor& w) {
  if (x.dim() != 2 || w.dim() != 2) return false;
  call->x = &x;
  call->w = &w;
  call->dtype = x.scalar_type();
  call->training = is_training(*call, x, w);
  if (!call->is(Declined::kDtype, product_dtype_fits(call->dtype) && w.scalar_type() == call->dtype) ||
      !call->is(Declined::kLayout, read_right(call, w) && (read_left(call, x) || (call->training && read_left_transposed(call, x)))) ||
      !call->is(Declined::kSmall, worthwhile(*call)) || !call->is(Declined::kKind, plain(x) && plain(w))) {
    return false;
  }
  if (call->training && !call->backward) call->steps = weight_steps(w);
  return true;
}

/// A right operand expanded over the batch is one matrix: the batch then belongs to the rows.
bool describe_3d(LinearCall* call, const at::Tensor& x, const at::Tensor& w) {
  if (x.dim() != 3 || w.dim() != 3 || x.size(0) != w.size(0) || x.size(0) == 0) return false;
  call->x = &x;
  call->w = &w;
  call->dtype = x.scalar_type();
  call->training = is_training(*call, x, w);
  if (!call->is(Declined::kDtype, product_dtype_fits(call->dtype) && w.scalar_type() == call->dtype)) return false;
  if (!call->is(Declined::kLayout, read_right(call, w))) return false;
  const std::int64_t batch = x.size(0);
  const bool by_rows = read_left(call, x);
  if (by_rows && (batch == 1 || w.stride(0) == 0) && (batch == 1 || x.stride(0) == call->m * call->lda)) {
    call->m *= batch;
  } else {
    call->batched = true;
    call->batch = batch;
    if (!call->is(Declined::kLayout, w.stride(0) > 0 && (by_rows || read_left_transposed(call, x)))) return false;
  }
  if (!call->is(Declined::kSmall, worthwhile(*call)) || !call->is(Declined::kKind, plain(x) && plain(w))) return false;
  if (call->training && !call->backward) call->steps = weight_steps(w);
  return true;
}

/// [M,N], or [B,M,N].
class ResultSizes {
 public:
  explicit ResultSizes(const LinearCall& call) : sizes_{call.x->size(0), call.x->size(1), call.n}, dim_(call.x->dim()) {
    if (dim_ == 2) sizes_[1] = call.n;
  }
  [[nodiscard]] at::IntArrayRef of_stock() const { return {sizes_.data(), static_cast<std::size_t>(dim_)}; }

 private:
  std::array<std::int64_t, 3> sizes_;
  std::int64_t dim_;
};

/// One element a column, nothing scaled: the form that kernels add themselves. (Batched products have no such kernel.)
bool is_bias(const LinearCall& call, const at::Tensor& self) {
  return !call.batched && self.dim() == 1 && self.size(0) == call.n && self.stride(0) == 1 && call.alpha == 1 && call.beta == 1;
}

bool describe_scalar(double* to, const at::Scalar& scalar) {
  if (scalar.isComplex() || scalar.isSymbolic()) return false;
  *to = scalar.toDouble();
  return std::isfinite(*to);
}

bool describe_addend(LinearCall* call, const at::Tensor& self, const at::Scalar& beta, const at::Scalar& alpha) {
  if (!call->is(Declined::kDtype, self.scalar_type() == call->dtype) || !call->is(Declined::kKind, plain(self))) return false;
  call->declined = Declined::kForm;
  if (!describe_scalar(&call->alpha, alpha) || !describe_scalar(&call->beta, beta)) return false;
  if (call->alpha == 0) return false;  // stock does not multiply then, so that NaN and infinities of the operands do not count
  if (is_bias(*call, self)) {
    call->bias = &self;
    return true;
  }
  if (!at::is_expandable_to(self.sizes(), ResultSizes(*call).of_stock())) return false;
  if (call->beta != 0) call->addend = &self;
  return true;
}

bool describe_out(LinearCall* call, const at::Tensor& out) {
  call->out = &out;
  return call->is(Declined::kForm,
                  can_be_filled(out, ResultSizes(*call).of_stock(), call->dtype) && apart(out, *call->x) && apart(out, *call->w));
}

/// What an in-place call adds to itself is read before anything is written.
bool describe_in_place(LinearCall* call, at::Tensor& self, const at::Scalar& beta, const at::Scalar& alpha) {
  return describe_addend(call, self, beta, alpha) && describe_out(call, self);
}

}  // namespace

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
  if (left_as_small(Op::kAddmm, small_2d(mat1, mat2))) return at::cpu::addmm(self, mat1, mat2, beta, alpha);
  return answer<LinearCall>(
             Op::kAddmm, [&](LinearCall* call) { return describe_2d(call, mat1, mat2) && describe_addend(call, self, beta, alpha); },
             [&]() -> Outputs { return at::cpu::addmm(self, mat1, mat2, beta, alpha); })
      .first;
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                      const at::Scalar& alpha, at::Tensor& out) {
  answer<LinearCall>(
      Op::kAddmmOut,
      [&](LinearCall* call) {
        return describe_2d(call, mat1, mat2) && describe_addend(call, self, beta, alpha) && describe_out(call, out) && apart(out, self);
      },
      [&]() -> Outputs { return at::cpu::addmm_outf(self, mat1, mat2, beta, alpha, out); },
      [&]() -> Outputs { return at::cpu::addmm(self, mat1, mat2, beta, alpha); });
  return out;
}

at::Tensor& addmm_(at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
  answer<LinearCall>(
      Op::kAddmmInPlace, [&](LinearCall* call) { return describe_2d(call, mat1, mat2) && describe_in_place(call, self, beta, alpha); },
      [&]() -> Outputs { return at::cpu::addmm_(self, mat1, mat2, beta, alpha); },
      [&]() -> Outputs { return at::cpu::addmm(self, mat1, mat2, beta, alpha); });
  return self;
}

at::Tensor addmm_activation(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                            const at::Scalar& alpha, bool use_gelu) {
  if (!allowed_here()) return at::cpu::_addmm_activation(self, mat1, mat2, beta, alpha, use_gelu);
  at::Tensor result = at::addmm(self, mat1, mat2, beta, alpha);
  return use_gelu ? at::gelu(result) : at::relu_(result);
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2) {
  if (left_as_small(Op::kMm, small_2d(self, mat2))) return at::cpu::mm(self, mat2);
  return answer<LinearCall>(
             Op::kMm, [&](LinearCall* call) { return describe_2d(call, self, mat2); }, [&]() -> Outputs { return at::cpu::mm(self, mat2); })
      .first;
}

at::Tensor& mm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  answer<LinearCall>(
      Op::kMmOut, [&](LinearCall* call) { return describe_2d(call, self, mat2) && describe_out(call, out); },
      [&]() -> Outputs { return at::cpu::mm_outf(self, mat2, out); }, [&]() -> Outputs { return at::cpu::mm(self, mat2); });
  return out;
}

at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2) {
  if (left_as_small(Op::kBmm, small_3d(self, mat2))) return at::cpu::bmm(self, mat2);
  return answer<LinearCall>(
             Op::kBmm, [&](LinearCall* call) { return describe_3d(call, self, mat2); },
             [&]() -> Outputs { return at::cpu::bmm(self, mat2); })
      .first;
}

at::Tensor& bmm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  answer<LinearCall>(
      Op::kBmmOut, [&](LinearCall* call) { return describe_3d(call, self, mat2) && describe_out(call, out); },
      [&]() -> Outputs { return at::cpu::bmm_outf(self, mat2, out); }, [&]() -> Outputs { return at::cpu::bmm(self, mat2); });
  return out;
}

at::Tensor baddbmm(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  if (left_as_small(Op::kBaddbmm, small_3d(batch1, batch2))) return at::cpu::baddbmm(self, batch1, batch2, beta, alpha);
  return answer<LinearCall>(
             Op::kBaddbmm, [&](LinearCall* call) { return describe_3d(call, batch1, batch2) && describe_addend(call, self, beta, alpha); },
             [&]() -> Outputs { return at::cpu::baddbmm(self, batch1, batch2, beta, alpha); })
      .first;
}

at::Tensor& baddbmm_out(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
                        const at::Scalar& alpha, at::Tensor& out) {
  answer<LinearCall>(
      Op::kBaddbmmOut,
      [&](LinearCall* call) {
        return describe_3d(call, batch1, batch2) && describe_addend(call, self, beta, alpha) && describe_out(call, out) && apart(out, self);
      },
      [&]() -> Outputs { return at::cpu::baddbmm_outf(self, batch1, batch2, beta, alpha, out); },
      [&]() -> Outputs { return at::cpu::baddbmm(self, batch1, batch2, beta, alpha); });
  return out;
}

at::Tensor& baddbmm_(at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
                     const at::Scalar& alpha) {
  answer<LinearCall>(
      Op::kBaddbmmInPlace,
      [&](LinearCall* call) { return describe_3d(call, batch1, batch2) && describe_in_place(call, self, beta, alpha); },
      [&]() -> Outputs { return at::cpu::baddbmm_(self, batch1, batch2, beta, alpha); },
      [&]() -> Outputs { return at::cpu::baddbmm(self, batch1, batch2, beta, alpha); });
  return self;
}

}  // namespace ipexrun::preload::adapters
