#include "preload/plugin/graph/compare.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "preload/plugin/tier.h"

namespace ipexrun::preload::graph {
namespace {

bool same_face(const at::Tensor& stock, const at::Tensor& mine) {
  return stock.sizes() == mine.sizes() && stock.strides() == mine.strides() && stock.scalar_type() == mine.scalar_type();
}

/// [samples, elements of one] in double.
at::Tensor rows(const at::Tensor& tensor) {
  const std::int64_t samples = tensor.dim() > 1 && tensor.size(0) > 0 ? tensor.size(0) : 1;
  return tensor.to(at::kDouble).reshape({samples, -1});
}

void judge(const at::Tensor& stock, const at::Tensor& mine, Likeness* worst) {
  if (stock.numel() == 0) return;
  at::Tensor truth = rows(stock);
  at::Tensor found = rows(mine);
  const at::Tensor finite = truth.isfinite();
  if (!at::equal(finite, found.isfinite())) {
    worst->same_kind = false;
    return;
  }
  if (!finite.all().item<bool>()) {
    const at::Tensor no_number = finite.logical_not();
    const at::Tensor a = truth.masked_select(no_number);
    const at::Tensor b = found.masked_select(no_number);
    if (!at::equal(a.isnan(), b.isnan()) || !at::equal(a.nan_to_num(), b.nan_to_num())) {
      worst->same_kind = false;
      return;
    }
    const at::Tensor zero = at::zeros_like(truth);
    truth = at::where(finite, truth, zero);
    found = at::where(finite, found, zero);
  }
  const at::Tensor apart = (found - truth).square().sum(1);
  const at::Tensor size = truth.square().sum(1);
  const at::Tensor other = found.square().sum(1);
  const at::Tensor dot = (truth * found).sum(1);
  for (std::int64_t i = 0; i < size.size(0); ++i) {
    const double off = apart[i].item<double>();
    const double norm = size[i].item<double>();
    if (off == 0) continue;
    worst->error = std::max(worst->error, std::sqrt(off / norm));  // infinite where the truth is 0
    const double length = std::sqrt(norm * other[i].item<double>());
    worst->cosine = std::min(worst->cosine, length > 0 ? dot[i].item<double>() / length : 0);
  }
}

}  // namespace

Likeness compare(const std::vector<std::optional<at::Tensor>>& stock, const std::vector<std::optional<at::Tensor>>& mine) {
  const TierOff inner_calls_are_stock;
  const at::AutoDispatchBelowADInplaceOrView below;
  Likeness worst;
  worst.same_kind = stock.size() == mine.size();
  for (std::size_t i = 0; i < stock.size() && worst.same_kind; ++i) {
    if (stock[i].has_value() != mine[i].has_value()) {
      worst.same_kind = false;
    } else if (stock[i].has_value()) {
      if (!same_face(*stock[i], *mine[i])) {
        worst.same_kind = false;
      } else if (stock[i]->is_floating_point()) {
        judge(*stock[i], *mine[i], &worst);
      } else {
        worst.same_kind = at::equal(*stock[i], *mine[i]);
      }
    }
  }
  return worst;
}

}  // namespace ipexrun::preload::graph
