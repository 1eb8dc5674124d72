// addmm, mm and bmm. The order of the tests matters: what declines most often and costs least stands first.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>

#include "configs/contract/decision.h"
#include "preload/plugin/adapters.h"
#include "preload/plugin/linear_trial.h"
#include "preload/plugin/tier.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload::adapters {
namespace {

/// Multiply-adds below which a call is left alone: stock needs a few microseconds there, about what looking a weight up and
/// checking it costs (bench/op_tier.py, field "declined").
constexpr std::int64_t kWorthwhileProducts = 32768;
constexpr std::int64_t kWorthwhileBatched = 1'000'000;  ///< casting both operands has to pay as well

/// A plain dense CPU tensor: no conjugate or negative bit, no functorch, Python or quantized key.
bool plain(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kPlain(
      {c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU, c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::AutocastCPU});
  return (tensor.key_set().raw_repr() & ~kPlain.raw_repr()) == 0 && tensor.has_storage();
}

bool dtype_fits(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kBFloat16; }

bool is_one(const at::Scalar& scalar) { return !scalar.isComplex() && scalar.toDouble() == 1.0; }

/// Reads the last two dimensions of the right operand; false when they are neither row-major nor transposed, or overlap.
bool read_right(LinearCall* call, const at::Tensor& w) {
  const std::int64_t dim = w.dim();
  call->k = w.size(dim - 2);
  call->n = w.size(dim - 1);
  call->stride_k = w.stride(dim - 2);
  call->stride_n = w.stride(dim - 1);
  if (call->stride_k == 1 && call->stride_n >= call->k) {
    call->w_layout = 't';
    return true;
  }
  call->w_layout = 'c';
  return call->stride_n == 1 && call->stride_k >= call->n;
}

bool read_left(LinearCall* call, const at::Tensor& x) {
  const std::int64_t dim = x.dim();
  call->m = x.size(dim - 2);
  call->lda = x.stride(dim - 2);
  call->x_layout = call->lda == call->k ? 'c' : 's';
  return x.size(dim - 1) == call->k && (x.stride(dim - 1) == 1 || call->k == 1) && call->lda >= call->k;
}

bool worthwhile(const LinearCall& call) {
  if (call.m <= 0 || call.n <= 0 || call.k <= 0) return false;
  const std::int64_t products = call.batch * call.m * call.n * call.k;
  if (products >= (call.batched ? kWorthwhileBatched : kWorthwhileProducts)) return true;
  return tier()->forced.load(std::memory_order_relaxed) != kStock;  // tests compare the candidate, however small the call
}

/// Whether this thread runs a backward pass: left to stock, and a sign that weights are about to change. Asked before anything
/// else, because the products of a backward pass often have operands that would be declined for their layout.
bool in_backward(TierState& state) {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == -1) return false;
  if (state.last_backward.exchange(task, std::memory_order_relaxed) != task) state.weights.saw_backward();
  return true;
}

/// What concerns the process or the thread rather than the tensors.
/// Who switches oneDNN off, or asks for reproducible results, wants the plain kernels: every candidate replaces those.
bool allowed_here() {
  const at::Context& context = at::globalContext();
  return !context.deterministicAlgorithms() && context.userEnabledMkldnn() && !at::in_parallel_region();
}

SiteId site_id_of(const LinearCall& call) {
  SiteId id;
  id.op = static_cast<std::uint32_t>(call.op);
  id.form = static_cast<std::uint32_t>(call.dtype) | static_cast<std::uint32_t>(call.x_layout) << 8 |
            static_cast<std::uint32_t>(call.w_layout) << 16 | (call.bias != nullptr ? 1u << 24 : 0) | (call.batched ? 1u << 25 : 0);
  id.threads = at::get_num_threads();
  id.batch = call.batch;
  id.m = round_up_rows(call.m);
  id.n = call.n;
  id.k = call.k;
  return id;
}

std::string site_text(const LinearCall& call, const SiteId& id, const TierOptions& options) {
  const std::string dtype = call.dtype == at::kFloat ? "f32" : "bf16";
  SiteKey key;
  key.op = op_name(call.op);
  key.dtypes = dtype + ',' + dtype + (call.bias != nullptr ? ',' + dtype : "");
  key.layouts = {call.x_layout, call.folded() ? 'e' : call.w_layout};
  key.sizes = (call.batched ? "b=" + std::to_string(id.batch) + ',' : "") + "m=" + std::to_string(id.m) + ",n=" + std::to_string(id.n) +
              ",k=" + std::to_string(id.k);
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key.text();
}

Site* site_of(TierState& state, const LinearCall& call) noexcept {
  const SiteId id = site_id_of(call);
  if (Site* known = state.sites.find(id)) return known;
  try {
    auto site = std::make_unique<Site>();
    site->id = id;
    site->key = site_text(call, id, state.options);
    site->candidates = candidates_for(call, state.options);
    // bf16 moves half the bytes and multiplies at least twice as fast: where it wins clearly, fp32 products cannot win.
    site->needless_after_clear_win = 1u << kOnednnF32Packed;
    recall(state, *site);
    return state.sites.insert(std::move(site));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

at::Tensor run(TierState& state, const LinearCall& call, c10::function_ref<at::Tensor()> stock) {
  count_call(state);
  Site* site = site_of(state, call);
  if (site == nullptr || site->candidates.empty()) return stock();
  const int forced = state.forced.load(std::memory_order_relaxed);
  if (forced != kStock) {
    const auto& fitting = site->candidates;
    if (std::find(fitting.begin(), fitting.end(), forced) == fitting.end()) return stock();
    LinearTrial trial(state, call, *site, true, stock);
    state.selector.call_forced(*site, trial, forced);
    return std::move(trial).result();
  }
  LinearTrial trial(state, call, *site, false, stock);
  state.selector.call(*site, trial);
  return std::move(trial).result();
}

/// The tests that all three share; `describe` fills the call in and says whether it fits.
template <typename Describe>
at::Tensor answer(Describe describe, c10::function_ref<at::Tensor()> stock) {
  if (!tier_enabled()) return stock();
  TierState& state = *tier();
  LinearCall call;
  if (in_backward(state) || !describe(&call) || !allowed_here()) {
    state.declined.fetch_add(1, std::memory_order_relaxed);
    count_call(state);
    return stock();
  }
  return run(state, call, stock);
}

bool describe_2d(LinearCall* call, Op op, const at::Tensor& x, const at::Tensor& w) {
  if (x.dim() != 2 || w.dim() != 2) return false;
  call->op = op;
  call->x = &x;
  call->w = &w;
  call->dtype = x.scalar_type();
  return dtype_fits(call->dtype) && w.scalar_type() == call->dtype && read_right(call, w) && read_left(call, x) && worthwhile(*call) &&
         plain(x) && plain(w);
}

bool describe_bias(LinearCall* call, const at::Tensor& bias) {
  if (bias.dim() != 1 || bias.size(0) != call->n || bias.stride(0) != 1 || bias.scalar_type() != call->dtype || !plain(bias)) return false;
  call->bias = &bias;
  return true;
}

/// A right operand expanded over the batch is one matrix: the batch then belongs to the rows.
bool describe_bmm(LinearCall* call, const at::Tensor& x, const at::Tensor& w) {
  if (x.dim() != 3 || w.dim() != 3 || x.size(0) != w.size(0) || x.size(0) == 0) return false;
  call->op = Op::kBmm;
  call->x = &x;
  call->w = &w;
  call->dtype = x.scalar_type();
  if (!dtype_fits(call->dtype) || w.scalar_type() != call->dtype || !read_right(call, w) || !read_left(call, x)) return false;
  const std::int64_t batch = x.size(0);
  if ((batch == 1 || w.stride(0) == 0) && (batch == 1 || x.stride(0) == call->m * call->lda)) {
    call->m *= batch;
  } else {
    call->batched = true;
    call->batch = batch;
    if (x.stride(0) < 0 || w.stride(0) <= 0) return false;
  }
  return worthwhile(*call) && plain(x) && plain(w);
}

}  // namespace

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
  return answer(
      [&](LinearCall* call) {
        return describe_2d(call, Op::kAddmm, mat1, mat2) && describe_bias(call, self) && is_one(beta) && is_one(alpha);
      },
      [&] { return at::cpu::addmm(self, mat1, mat2, beta, alpha); });
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2) {
  return answer([&](LinearCall* call) { return describe_2d(call, Op::kMm, self, mat2); }, [&] { return at::cpu::mm(self, mat2); });
}

at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2) {
  return answer([&](LinearCall* call) { return describe_bmm(call, self, mat2); }, [&] { return at::cpu::bmm(self, mat2); });
}

}  // namespace ipexrun::preload::adapters
