// The truth of attention: the formula in doubles, one rounding to fp32 and, for bf16, one more.
#include "kernels/ref/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {
namespace {

/// One row of one head.
struct Row {
  const AttentionArgs& args;
  std::int64_t batch;
  std::int64_t head;
  std::int64_t row;

  [[nodiscard]] double of(const Heads& heads, std::int64_t which, std::int64_t at, std::int64_t i) const {
    return get(heads.data, args.dtype, batch * heads.batch_stride + which * heads.head_stride + at * heads.row_stride + i);
  }
  [[nodiscard]] std::int64_t kv_head() const { return head / (args.heads / args.kv_heads); }
  [[nodiscard]] double score(std::int64_t key) const {
    double sum = 0;
    for (std::int64_t i = 0; i < args.depth; ++i) sum += of(args.q, head, row, i) * of(args.k, kv_head(), key, i);
    sum *= static_cast<double>(args.scale);
    const AttentionMask& mask = args.mask;
    if (mask.data == nullptr) return sum;
    return sum +
           get(mask.data, mask.dtype, batch * mask.batch_stride + head * mask.head_stride + row * mask.row_stride + key * mask.key_stride);
  }
  [[nodiscard]] std::int64_t keys() const { return args.causal ? std::min(args.keys, row + 1) : args.keys; }
};

void put(const Row& row, std::int64_t i, double value) {
  const AttentionArgs& args = row.args;
  const std::int64_t place = row.batch * args.out_batch_stride + row.head * args.out_head_stride + row.row * args.out_row_stride + i;
  ref::put(args.out, args.dtype, place, value);
}

void attend(const Row& row, double* weights) {
  const AttentionArgs& args = row.args;
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t key = 0; key < row.keys(); ++key) {
    weights[key] = row.score(key);
    largest = std::isnan(largest) || std::isnan(weights[key]) ? std::numeric_limits<double>::quiet_NaN() : std::max(largest, weights[key]);
  }
  const bool nothing = largest == -std::numeric_limits<double>::infinity();
  double sum = nothing ? 1 : 0;
  for (std::int64_t key = 0; key < row.keys(); ++key) sum += weights[key] = nothing ? 0.0 : std::exp(weights[key] - largest);
  for (std::int64_t i = 0; i < args.depth; ++i) {
    double value = 0;
    for (std::int64_t key = 0; key < row.keys(); ++key) value += weights[key] * row.of(args.v, row.kv_head(), key, i);
    put(row, i, value / sum);
  }
  if (args.logsumexp != nullptr) {
    args.logsumexp[row.batch * args.lse_batch_stride + row.head * args.lse_head_stride + row.row * args.lse_row_stride] =
        static_cast<float>((nothing ? 0 : largest) + std::log(sum));
  }
}

}  // namespace

void attention(const AttentionArgs& args, std::int64_t unit_begin, std::int64_t unit_end, float* scratch) {
  const std::int64_t group = args.heads / args.kv_heads;
  const std::int64_t queries = group * args.rows;
  const std::int64_t units = ceil_div(queries, kQueriesAtOnce);
  for (std::int64_t unit = unit_begin; unit < unit_end; ++unit) {
    const std::int64_t kv = unit / units;
    const std::int64_t first = unit % units * kQueriesAtOnce;
    for (std::int64_t i = first; i < std::min(queries, first + kQueriesAtOnce); ++i) {
      const std::int64_t head = kv % args.kv_heads * group + i / args.rows;
      attend({args, kv / args.kv_heads, head, i % args.rows}, reinterpret_cast<double*>(scratch));
    }
  }
}

}  // namespace ipexrun::kernels::ref
