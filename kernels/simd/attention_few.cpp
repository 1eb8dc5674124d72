// attention of few rows of Q: K and V are walked where they lie, for packing them would take longer than the products. All in fp32.
#include "kernels/simd/attention.h"

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
#include "kernels/simd/floats_avx512.h"
#include "kernels/simd/halves_avx512.h"
#else
#include "kernels/simd/floats_avx2.h"
#include "kernels/simd/halves_avx2.h"
#endif
// In this order: each needs the ones before it.
#include "kernels/simd/attention_load.h"
#include "kernels/simd/exp2.h"
//
#include "kernels/simd/attention_weigh.h"
#include "kernels/simd/products_f32.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;

/// q K^T of N keys; q in whole vectors, zeros behind its depth.
template <int N, typename Element>
[[gnu::always_inline]] inline void dots(const float* q, const Element* k, std::int64_t stride, std::int64_t depth, float* to) {
  Vector sums[N];
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) sums[n] = Floats::all(0.0f);
  std::int64_t i = 0;
  for (; i + kLanes <= depth; i += kLanes) {
    const Vector x = Floats::of_bits(Lanes::load(q + i));
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[n] = Floats::fma(x, Floats::of_bits(load_some(k + n * stride + i, kLanes)), sums[n]);
  }
  if (i < depth) {
    const Vector x = Floats::of_bits(Lanes::load(q + i));
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[n] = Floats::fma(x, Floats::of_bits(load_some(k + n * stride + i, depth - i)), sums[n]);
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) to[n] = Floats::sum(sums[n]);
}

/// V vectors of the sum of weights times rows of V, times `factor`; of the last vector `rest` elements. Even and odd keys have sums of
/// their own, so that an addition need not wait for the one before it.
template <int V, typename Element>
void weighted(const float* weights, std::int64_t keys, const Element* v, std::int64_t stride, std::int64_t rest, float factor,
              Element* to) {
  Vector sums[2][V];
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) sums[0][i] = sums[1][i] = Floats::all(0.0f);
  const auto add = [&](Vector(&to_sums)[V], std::int64_t key) __attribute__((always_inline)) {
    const Vector weight = Floats::all(weights[key]);
    const Element* row = v + key * stride;
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
      to_sums[i] = Floats::fma(weight, Floats::of_bits(load_some(row + i * kLanes, i + 1 < V ? kLanes : rest)), to_sums[i]);
    }
  };
  std::int64_t key = 0;
  for (; key + 2 <= keys; key += 2) {
    add(sums[0], key);
    add(sums[1], key + 1);
  }
  if (key < keys) add(sums[0], key);
#pragma GCC unroll 4
  for (int i = 0; i < V; ++i) {
    const Vector sum = Floats::multiply(Floats::add(sums[0][i], sums[1][i]), Floats::all(factor));
    store_some(to + i * kLanes, Floats::bits_of(sum), i + 1 < V ? kLanes : rest);
  }
}

template <typename Element>
void attend(const AttentionArgs& args, const Head& head, std::int64_t row, float* q, float* scores) {
  const std::int64_t keys = args.causal ? least(args.keys, row + 1) : args.keys;
  const Element* from = q_row<Element>(args, head, row);
  for (std::int64_t i = 0; i < args.depth; i += kLanes) Lanes::store(q + i, load_some(from + i, args.depth - i));
  const Element* k = k_row<Element>(args, head, 0);
  std::int64_t key = 0;
  for (; key + 4 <= keys; key += 4) dots<4>(q, k + key * args.k.row_stride, args.k.row_stride, args.depth, scores + key);
  for (; key < keys; ++key) dots<1>(q, k + key * args.k.row_stride, args.k.row_stride, args.depth, scores + key);
  Seen seen{kNothing, 0.0f};
  weigh<Products>(scores, keys, keys, args.scale, mask_row(args.mask, head, row, 0), &seen);
  const float factor = finish(seen, lse_of(args, head, row));
  const Element* v = v_row<Element>(args, head, 0);
  Element* out = out_row<Element>(args, head, row);
  for (std::int64_t i = 0; i < args.depth;) {
    const std::int64_t left = args.depth - i;
    if (left > 3 * kLanes) {
      weighted<4>(scores, keys, v + i, args.v.row_stride, left - 3 * kLanes, factor, out + i);
      i += 4 * kLanes;
    } else {
      weighted<1>(scores, keys, v + i, args.v.row_stride, left, factor, out + i);
      i += kLanes;
    }
  }
}

template <typename Element>
void heads_of(const AttentionArgs& args, std::int64_t head_begin, std::int64_t head_end, float* scratch) {
  float* q = scratch;
  float* scores = q + (args.depth + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t head = head_begin; head < head_end; ++head) {
    for (std::int64_t row = 0; row < args.rows; ++row) attend<Element>(args, Head(args, head), row, q, scores);
  }
}

}  // namespace

void attention_few(const AttentionArgs& args, std::int64_t head_begin, std::int64_t head_end, float* scratch) {
  (args.dtype == DType::kF32 ? heads_of<float> : heads_of<std::uint16_t>)(args, head_begin, head_end, scratch);
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
