// The truth of decode_attention: the formula in doubles over a whole sequence, one rounding to fp32 and, for bf16, one more.
#include "kernels/ref/decode_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {
namespace {

struct Row {
  const DecodeAttentionArgs& args;
  const DecodeUnit& unit;
  std::int64_t head;
  std::int64_t row;

  [[nodiscard]] double cached(const void* data, const KvStrides& strides, std::int64_t token, std::int64_t i) const {
    return get(data, args.cache.dtype, kv_place(args.cache, strides, unit.batch, token) + unit.kv_head * strides.head + i);
  }
  [[nodiscard]] double score(std::int64_t token) const {
    double sum = 0;
    for (std::int64_t i = 0; i < args.depth; ++i) {
      sum += get(args.q.data, args.dtype, unit.batch * args.q.batch_stride + head * args.q.head_stride + row * args.q.row_stride + i) *
             cached(args.cache.k, args.cache.k_strides, token, i);
    }
    sum *= static_cast<double>(args.scale);
    if (args.slopes != nullptr) {
      sum += static_cast<double>(args.slopes[head]) * static_cast<double>(token - (unit.length - args.rows + row));
    }
    const AttentionMask& mask = args.mask;
    if (mask.data == nullptr) return sum;
    return sum + get(mask.data, mask.dtype,
                     unit.batch * mask.batch_stride + head * mask.head_stride + row * mask.row_stride + token * mask.key_stride);
  }
};

void attend(const Row& row, double* sums) {
  const DecodeAttentionArgs& args = row.args;
  const std::int64_t visible = decode_visible(args, row.unit.length, row.row);
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t token = 0; token < visible; ++token) {
    const double score = row.score(token);
    largest = std::isnan(largest) || std::isnan(score) ? std::numeric_limits<double>::quiet_NaN() : std::max(largest, score);
  }
  const bool nothing = largest == -std::numeric_limits<double>::infinity();
  double sum = nothing ? 1 : 0;
  std::fill(sums, sums + args.depth, 0.0);
  for (std::int64_t token = 0; token < visible && !nothing; ++token) {
    const double weight = std::exp(row.score(token) - largest);
    sum += weight;
    for (std::int64_t i = 0; i < args.depth; ++i) sums[i] += weight * row.cached(args.cache.v, args.cache.v_strides, token, i);
  }
  const std::int64_t place = row.unit.batch * args.out_batch_stride + row.head * args.out_head_stride + row.row * args.out_row_stride;
  for (std::int64_t i = 0; i < args.depth; ++i) put(args.out, args.dtype, place + i, sums[i] / sum);
  if (args.logsumexp == nullptr) return;
  args.logsumexp[row.unit.batch * args.lse_batch_stride + row.head * args.lse_head_stride + row.row * args.lse_row_stride] =
      static_cast<float>((nothing ? 0 : largest) + std::log(sum));
}

}  // namespace

std::size_t decode_scratch_bytes(const DecodeAttentionArgs& args) { return static_cast<std::size_t>(args.depth) * sizeof(double); }

void decode_run(const DecodeAttentionArgs& args, const DecodeUnit& unit, void* scratch) {
  const std::int64_t group = args.heads / args.kv_heads;
  for (std::int64_t i = 0; i < decode_queries(args); ++i) {
    attend({args, unit, unit.kv_head * group + i / args.rows, i % args.rows}, static_cast<double*>(scratch));
  }
}

}  // namespace ipexrun::kernels::ref
