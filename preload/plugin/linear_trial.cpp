#include "preload/plugin/linear_trial.h"

#include <new>

#include "preload/plugin/tier.h"
#include "preload/plugin/weight_use.h"
#include "preload/select/accuracy.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kSampledRows = 4;
constexpr std::int64_t kSampledProducts = 1'000'000;  ///< multiply-adds in fp64 that one check may cost: about a millisecond

/// Calls visit(index) for `count` indices spread evenly over [0, size), the first and the last included.
template <typename Visit>
void spread(std::int64_t size, std::int64_t count, Visit visit) {
  for (std::int64_t i = 0; i < count; ++i) visit(count == 1 ? 0 : i * (size - 1) / (count - 1));
}

/// Where row `row` of the (folded or batched) problem begins.
template <typename T>
struct Rows {
  const T* x;
  const T* w;
  const T* bias;
  const T* stock;
  const T* candidate;
};

template <typename T>
bool accurate_as(const LinearCall& call, const at::Tensor& stock, const at::Tensor& candidate, Precision precision) {
  const T* x = call.x->const_data_ptr<T>();
  const T* w = call.w->const_data_ptr<T>();
  const T* bias = call.bias == nullptr ? nullptr : call.bias->const_data_ptr<T>();
  const T* s = stock.const_data_ptr<T>();
  const T* c = candidate.const_data_ptr<T>();
  const std::int64_t rows = call.batch * call.m;
  const std::int64_t sampled_rows = std::min(rows, kSampledRows);
  const std::int64_t columns = std::clamp<std::int64_t>(kSampledProducts / (sampled_rows * call.k), 1, call.n);
  std::vector<double> truth;
  std::vector<double> stock_values;
  std::vector<double> candidate_values;
  spread(rows, sampled_rows, [&](std::int64_t row) {
    const std::int64_t batch = row / call.m;
    const T* x_row = call.batched ? x + batch * call.x->stride(0) + (row % call.m) * call.lda : x + row * call.lda;
    const T* w_batch = call.batched ? w + batch * call.w->stride(0) : w;
    spread(call.n, columns, [&](std::int64_t column) {
      const T* w_column = w_batch + column * call.stride_n;
      double sum = bias == nullptr ? 0 : static_cast<double>(bias[column]);
      for (std::int64_t i = 0; i < call.k; ++i) sum += static_cast<double>(x_row[i]) * static_cast<double>(w_column[i * call.stride_k]);
      truth.push_back(sum);
      stock_values.push_back(static_cast<double>(s[row * call.n + column]));
      candidate_values.push_back(static_cast<double>(c[row * call.n + column]));
    });
  });
  const Accuracy sampled = check_accuracy(truth, stock_values, candidate_values, static_cast<std::size_t>(sampled_rows), precision);
  if (!sampled.pass) return false;
  Agreement whole;
  whole.add_all(s, c, static_cast<std::size_t>(rows * call.n));
  return whole.holds(sampled.stock_error, precision);
}

}  // namespace

void LinearTrial::look_up() {
  if (looked_up_) return;
  looked_up_ = true;
  use_ = weight_use_of(call_, site_.stock_ns.load(std::memory_order_relaxed));
  weight_ = state_.weights.use(
      use_, [&] { return liveness_of(*call_.w); }, forced_);
}

std::uint64_t LinearTrial::weight() noexcept {
  if (call_.batched) return 0;
  try {
    look_up();
  } catch (const std::bad_alloc&) {
    state_.weights.drop_all();
  }
  return weight_.weight == nullptr ? kUnknownWeight : weight_.weight->id;
}

Readiness LinearTrial::verdict_of(int candidate) const {
  if (call_.batched) {
    const std::uint32_t bits = site_.verdicts.load(std::memory_order_relaxed);
    if ((bits >> (candidate + 16) & 1u) != 0) return Readiness::kNever;
    return (bits >> candidate & 1u) != 0 ? Readiness::kReady : Readiness::kUnverified;
  }
  switch (state_.weights.verdict(*weight_.weight, site_.number, candidate)) {
    case Verdict::kAccurate:
      return Readiness::kReady;
    case Verdict::kInaccurate:
      return Readiness::kNotNow;
    case Verdict::kUnknown:
      break;
  }
  return Readiness::kUnverified;
}

Readiness LinearTrial::prepare(int candidate) noexcept {
  try {
    if (call_.batched) return verdict_of(candidate);
    look_up();
    if (weight_.weight == nullptr) return Readiness::kNotNow;
    const Readiness verdict = verdict_of(candidate);
    if (verdict == Readiness::kNotNow) return verdict;
    auto& pack = weight_.packs[static_cast<std::size_t>(candidate)];
    if (pack == nullptr) {
      if (state_.weights.read_only() || !state_.weights.may_pack(*weight_.weight)) return Readiness::kNotNow;
      state_.weights.pin_bytes(*weight_.weight, use_);
      pack = pack_weight(call_, candidate);
      const bool racing = forced_ || site_.state.load(std::memory_order_relaxed) == SiteState::kExploring;
      if (!state_.weights.put(*weight_.weight, candidate, pack, racing)) {
        pack.reset();
        return Readiness::kNotNow;
      }
    }
    return verdict;
  } catch (const std::bad_alloc&) {
    state_.weights.drop_all();
  } catch (const std::exception&) {
    return Readiness::kNever;
  }
  return Readiness::kNotNow;
}

bool LinearTrial::run(int candidate) noexcept {
  try {
    const TierOff inner_calls_are_stock;
    const auto& pack = weight_.packs[static_cast<std::size_t>(candidate)];
    at::Tensor result = run_candidate(call_, candidate, static_cast<const TensorPack*>(pack.get()), state_.options.isa);
    const bool done = result.defined();
    results_[static_cast<std::size_t>(candidate)] = std::move(result);
    return done;
  } catch (const std::bad_alloc&) {
    state_.weights.drop_all();
  } catch (const std::exception&) {
    // Whatever a candidate raises, stock answers the call on intact inputs.
  }
  return false;
}

bool LinearTrial::accurate(const at::Tensor& result, int candidate) const {
  if (result.sizes() != stock_result_.sizes() || result.strides() != stock_result_.strides() ||
      result.scalar_type() != stock_result_.scalar_type() || !stock_result_.is_contiguous()) {
    return false;
  }
  if (call_.dtype == at::kBFloat16) return accurate_as<at::BFloat16>(call_, stock_result_, result, Precision::kBf16Op);
  return accurate_as<float>(call_, stock_result_, result, candidate_is_bf16(candidate) ? Precision::kBf16Op : Precision::kFloat32);
}

bool LinearTrial::verify(int candidate) noexcept {
  bool good = false;
  try {
    good = accurate(results_[static_cast<std::size_t>(candidate)], candidate);
    if (call_.batched) {
      site_.verdicts.fetch_or(1u << (good ? candidate : candidate + 16), std::memory_order_relaxed);
    } else if (weight_.weight != nullptr) {
      state_.weights.set_verdict(*weight_.weight, site_.number, candidate, good);
    }
  } catch (const std::exception&) {
    return false;
  }
  return good;
}

}  // namespace ipexrun::preload
