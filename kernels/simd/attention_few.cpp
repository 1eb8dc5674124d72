// attention of few rows of Q: K and V are walked where they lie, for packing them would take longer than the products. Up to four rows, of
// the same head or of heads that share K and V, walk them together. All in fp32.
#include "kernels/simd/attention.h"

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
#include "kernels/simd/floats_avx512.h"
#include "kernels/simd/halves_avx512.h"
#include "kernels/simd/sums_avx512.h"
#else
#include "kernels/simd/floats_avx2.h"
#include "kernels/simd/halves_avx2.h"
#include "kernels/simd/sums_avx2.h"
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

constexpr int kQueries = static_cast<int>(kQueriesAtOnce);
constexpr int kVectors = Products::kVectors;  ///< of V at once

/// One row of Q on its way.
struct Query {
  Head head;
  std::int64_t row;
  std::int64_t keys;  ///< that it sees
  float* q;           ///< in whole vectors, zeros behind the depth
  float* scores;
  float factor;
};

/// Scores of one row with N keys.
template <int N, typename Element>
[[gnu::always_inline]] inline void dots(const Query& query, std::int64_t key, const Element* k, std::int64_t stride, std::int64_t depth) {
  Vector sums[N];
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) sums[n] = Floats::all(0.0f);
  const auto step = [&](std::int64_t i, std::int64_t left) __attribute__((always_inline)) {
    const Vector x = Floats::of_bits(Lanes::load(query.q + i));
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[n] = Floats::fma(x, Floats::of_bits(load_some(k + n * stride + i, left)), sums[n]);
  };
  std::int64_t i = 0;
  for (; i + kLanes <= depth; i += kLanes) step(i, kLanes);
  if (i < depth) step(i, depth - i);
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) query.scores[key + n] = Floats::sum(sums[n]);
}

/// Scores of kQueries rows with Sums::kKeys keys.
template <typename Element>
[[gnu::always_inline]] inline void dots_of_all(const Query* queries, std::int64_t key, const Element* k, std::int64_t stride,
                                               std::int64_t depth) {
  Vector sums[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) sums[i] = Floats::all(0.0f);
  const auto step = [&](std::int64_t i, std::int64_t left) __attribute__((always_inline)) {
    Vector x[kQueries];
#pragma GCC unroll 4
    for (int q = 0; q < kQueries; ++q) x[q] = Floats::of_bits(Lanes::load(queries[q].q + i));
#pragma GCC unroll 4
    for (int n = 0; n < Sums::kKeys; ++n) {
      const Vector y = Floats::of_bits(load_some(k + n * stride + i, left));
#pragma GCC unroll 4
      for (int q = 0; q < kQueries; ++q) sums[Sums::place(q, n)] = Floats::fma(x[q], y, sums[Sums::place(q, n)]);
    }
  };
  std::int64_t i = 0;
  for (; i + kLanes <= depth; i += kLanes) step(i, kLanes);
  if (i < depth) step(i, depth - i);
  float all[kLanes];
  Lanes::store(all, Floats::bits_of(Sums::of(sums)));
#pragma GCC unroll 4
  for (int q = 0; q < kQueries; ++q) __builtin_memcpy(queries[q].scores + key, all + q * Sums::kKeys, Sums::kKeys * sizeof(float));
}

/// Sums of weights times rows of V for Q rows: V vectors from column `at` on, of the last vector `rest` elements. With one row, even and
/// odd keys have sums of their own, so that an addition need not wait for the one before it.
template <int Q, int V, typename Element>
void weighted(const AttentionArgs& args, const Query* queries, std::int64_t keys, std::int64_t at, std::int64_t rest) {
  constexpr int kParts = Q == 1 ? 2 : 1;
  Vector sums[kParts][Q][V];
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[part][q][v] = Floats::all(0.0f);
    }
  }
  const Element* from = v_row<Element>(args, queries[0].head, 0) + at;
  const auto add = [&](Vector(&to)[Q][V], std::int64_t key) __attribute__((always_inline)) {
    const Element* row = from + key * args.v.row_stride;
    Vector y[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) y[v] = Floats::of_bits(load_some(row + v * kLanes, v + 1 < V ? kLanes : rest));
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
      const Vector weight = Floats::all(queries[q].scores[key]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) to[q][v] = Floats::fma(weight, y[v], to[q][v]);
    }
  };
  std::int64_t key = 0;
  for (; key + kParts <= keys; key += kParts) {
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) add(sums[part], key + part);
  }
  if (key < keys) add(sums[0], key);
#pragma GCC unroll 4
  for (int q = 0; q < Q; ++q) {
    Element* to = out_row<Element>(args, queries[q].head, queries[q].row) + at;
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const Vector sum = kParts == 1 ? sums[0][q][v] : Floats::add(sums[0][q][v], sums[kParts - 1][q][v]);
      store_some(to + v * kLanes, Floats::bits_of(Floats::multiply(sum, Floats::all(queries[q].factor))), v + 1 < V ? kLanes : rest);
    }
  }
}

/// Q rows (1 or kQueries) that share a head of K and V.
template <int Q, typename Element>
void attend(const AttentionArgs& args, Query* queries) {
  std::int64_t keys = 0;
  for (int q = 0; q < Q; ++q) {
    const Element* from = q_row<Element>(args, queries[q].head, queries[q].row);
    for (std::int64_t i = 0; i < args.depth; i += kLanes) Lanes::store(queries[q].q + i, load_some(from + i, args.depth - i));
    if (queries[q].keys > keys) keys = queries[q].keys;
  }
  const Element* k = k_row<Element>(args, queries[0].head, 0);
  const std::int64_t stride = args.k.row_stride;
  std::int64_t key = 0;
  if constexpr (Q == 1) {
    for (; key + 4 <= keys; key += 4) dots<4>(queries[0], key, k + key * stride, stride, args.depth);
  } else {
    for (; key + Sums::kKeys <= keys; key += Sums::kKeys) dots_of_all(queries, key, k + key * stride, stride, args.depth);
  }
  for (; key < keys; ++key) {
    for (int q = 0; q < Q; ++q) dots<1>(queries[q], key, k + key * stride, stride, args.depth);
  }
  for (int q = 0; q < Q; ++q) {
    Seen seen{kNothing, 0.0f};
    weigh<Products>(queries[q].scores, queries[q].keys, keys, args.scale, mask_row(args.mask, queries[q].head, queries[q].row, 0), &seen);
    queries[q].factor = finish(seen, lse_of(args, queries[q].head, queries[q].row));
  }
  for (std::int64_t i = 0; i < args.depth;) {
    const std::int64_t left = args.depth - i;
    if (left > (kVectors - 1) * kLanes) {
      weighted<Q, kVectors, Element>(args, queries, keys, i, left - (kVectors - 1) * kLanes);
      i += kVectors * kLanes;
    } else {
      weighted<Q, 1, Element>(args, queries, keys, i, left);
      i += kLanes;
    }
  }
}

template <typename Element>
void units_of(const AttentionArgs& args, std::int64_t unit_begin, std::int64_t unit_end, float* scratch) {
  const std::int64_t group = args.heads / args.kv_heads;
  const std::int64_t count = group * args.rows;
  const std::int64_t units = (count + kQueries - 1) / kQueries;
  const std::int64_t words_of_q = (args.depth + kLanes - 1) / kLanes * kLanes;
  const std::int64_t words_of_scores = (args.keys + 2 * kLanes - 1) / (2 * kLanes) * (2 * kLanes);
  for (std::int64_t unit = unit_begin; unit < unit_end; ++unit) {
    const std::int64_t kv = unit / units;
    const std::int64_t first = unit % units * kQueries;
    const auto query = [&](int q) {
      // Fewer than four: the last one is computed again, with the same result.
      const std::int64_t i = least(first + q, count - 1);
      const std::int64_t row = i % args.rows;
      return Query{Head(args, kv * group + i / args.rows),
                   row,
                   args.causal ? least(args.keys, row + 1) : args.keys,
                   scratch + q * words_of_q,
                   scratch + kQueries * words_of_q + q * words_of_scores,
                   0.0f};
    };
    Query queries[kQueries] = {query(0), query(1), query(2), query(3)};
    first + 1 == count ? attend<1, Element>(args, queries) : attend<kQueries, Element>(args, queries);
  }
}

}  // namespace

void attention_few(const AttentionArgs& args, std::int64_t unit_begin, std::int64_t unit_end, float* scratch) {
  (args.dtype == DType::kF32 ? units_of<float> : units_of<std::uint16_t>)(args, unit_begin, unit_end, scratch);
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
