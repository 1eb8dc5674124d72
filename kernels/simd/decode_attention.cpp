// decode_attention, a unit at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// Rows of K are taken a few at a time for 1, 2 or 4 rows of Q, as many dot products as a vector has lanes, whose sums are then found
// together. Up to 32 rows of Q meet a stretch of K or V while it is in L1. All in fp32.
#include "kernels/simd/decode_attention.h"

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

constexpr std::int64_t kKeys = 256;           ///< of a unit, at most
constexpr std::int64_t kPitch = kKeys + 16;   ///< of a row of scores
constexpr std::int64_t kQueriesInL1 = 32;     ///< that meet K and V together
constexpr std::int64_t kKeysInL1 = 32;        ///< that all of them meet before the next ones
constexpr int kSums = kLanes == 16 ? 16 : 8;  ///< registers for sums over keys
constexpr int kMostVectors = 8;               ///< of a row of V at once
constexpr std::int64_t kBytesAhead = 8192;    ///< of rows that are fetched before they are wanted
constexpr std::int64_t kRowsAhead = 32;       ///< at most

alignas(64) constexpr float kCountUp[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/// The rows of a unit in the order in which they are wanted, those of K and then those of V, and the first ones of the next unit.
template <typename Element>
struct Rows {
  std::int64_t ahead;
  const Element* row[2 * kKeys + kRowsAhead];
};

/// `count` rows from `token` on.
template <typename Element>
void find_rows(const KvCache& cache, const void* data, const KvStrides& strides, std::int64_t batch, std::int64_t kv_head,
               std::int64_t token, std::int64_t count, const Element** rows) {
  const auto* head = static_cast<const Element*>(data) + kv_head * strides.head;
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t end = cache.table == nullptr ? count : least(count, i + cache.block_rows - (token + i) % cache.block_rows);
    const Element* from = head + kv_place(cache, strides, batch, token + i);
    for (; i < end; ++i, from += strides.row) rows[i] = from;
  }
}

template <typename Element>
void find_rows(const KvCache& cache, const DecodeUnit& unit, std::int64_t depth, Rows<Element>* rows) {
  rows->ahead = least(kRowsAhead, kBytesAhead / (depth * static_cast<std::int64_t>(sizeof(Element))) + 4);
  find_rows(cache, cache.k, cache.k_strides, unit.batch, unit.kv_head, unit.key, unit.keys, rows->row);
  find_rows(cache, cache.v, cache.v_strides, unit.batch, unit.kv_head, unit.key, unit.keys, rows->row + unit.keys);
  const DecodeNext& next = unit.next;
  const std::int64_t more = least(kRowsAhead, next.keys);
  find_rows(cache, cache.k, cache.k_strides, next.batch, next.kv_head, next.key, more, rows->row + 2 * unit.keys);
  for (std::int64_t i = more; i < kRowsAhead; ++i) rows->row[2 * unit.keys + i] = rows->row[2 * unit.keys - 1];
}

/// Whether the line of memory that begins with element i of a row was not met with the vector before.
template <typename Element>
[[gnu::always_inline]] inline bool new_line(std::int64_t i) {
  return i % (64 / static_cast<std::int64_t>(sizeof(Element))) == 0;
}

/// Scores of Q rows with keys [begin, end), and with what follows them in `k` as far as it makes a vector of sums. `Fetch`: what follows
/// at a distance.
template <int Q, bool Fetch, typename Element>
void dots(const float* q, std::int64_t pitch, const Element* const* k, std::int64_t ahead, std::int64_t begin, std::int64_t end,
          std::int64_t depth, float* scores) {
  constexpr int kTile = static_cast<int>(kLanes) / Q;
  constexpr int kOfFour = static_cast<int>(kLanes) / 4;
  for (std::int64_t key = begin; key < end; key += kTile) {
    Vector sums[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) sums[i] = Floats::all(0.0f);
    const auto step = [&](std::int64_t i, std::int64_t left) __attribute__((always_inline)) {
      Vector x[Q];
#pragma GCC unroll 4
      for (int row = 0; row < Q; ++row) x[row] = Floats::of_bits(Lanes::load(q + row * pitch + i));
#pragma GCC unroll 16
      for (int n = 0; n < kTile; ++n) {
        const Vector y = Floats::of_bits(load_some(k[key + n] + i, left));
        if (Fetch && new_line<Element>(i)) __builtin_prefetch(k[key + n + ahead] + i);
#pragma GCC unroll 4
        for (int row = 0; row < Q; ++row) {
          const int lane = row * kTile + n;
          Vector& sum = sums[Sums::place(lane / kOfFour, lane % kOfFour)];
          sum = Floats::fma(x[row], y, sum);
        }
      }
    };
    std::int64_t i = 0;
    for (; i + kLanes <= depth; i += kLanes) step(i, kLanes);
    if (i < depth) step(i, depth - i);
    float all[kLanes];
    Lanes::store(all, Floats::bits_of(Sums::of(sums)));
#pragma GCC unroll 4
    for (int row = 0; row < Q; ++row) __builtin_memcpy(scores + row * kPitch + key, all + row * kTile, kTile * sizeof(float));
  }
}

/// Adds weights times rows of V for keys [begin, end): Q rows, V vectors from column `at` on, of the last vector `rest` elements.
template <int Q, int V, bool Fetch, typename Element>
void add_weighted(const float* weights, const Element* const* v, std::int64_t ahead, std::int64_t begin, std::int64_t end, std::int64_t at,
                  std::int64_t rest, float* to, std::int64_t pitch) {
  Vector sums[Q][V];
#pragma GCC unroll 4
  for (int row = 0; row < Q; ++row) {
#pragma GCC unroll 8
    for (int n = 0; n < V; ++n) sums[row][n] = Floats::of_bits(Lanes::load(to + row * pitch + at + n * kLanes));
  }
  for (std::int64_t key = begin; key < end; ++key) {
    const Element* from = v[key] + at;
    Vector weight[Q];
#pragma GCC unroll 4
    for (int row = 0; row < Q; ++row) weight[row] = Floats::all(weights[row * kPitch + key]);
#pragma GCC unroll 8
    for (int n = 0; n < V; ++n) {
      const Vector y = Floats::of_bits(load_some(from + n * kLanes, n + 1 < V ? kLanes : rest));
      if (Fetch && (V == 1 || new_line<Element>(n * kLanes))) __builtin_prefetch(v[key + ahead] + at + n * kLanes);
#pragma GCC unroll 4
      for (int row = 0; row < Q; ++row) sums[row][n] = Floats::fma(weight[row], y, sums[row][n]);
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < Q; ++row) {
#pragma GCC unroll 8
    for (int n = 0; n < V; ++n) Lanes::store(to + row * pitch + at + n * kLanes, Floats::bits_of(sums[row][n]));
  }
}

/// The same for all columns: as many vectors at once as registers hold, then half as many.
template <int Q, int V, bool Fetch, typename Element>
void add_columns(const float* weights, const Element* const* v, std::int64_t ahead, std::int64_t begin, std::int64_t end, std::int64_t at,
                 std::int64_t depth, float* to, std::int64_t pitch) {
  for (; depth - at > (V - 1) * kLanes; at += V * kLanes) {
    add_weighted<Q, V, Fetch>(weights, v, ahead, begin, end, at, least(kLanes, depth - at - (V - 1) * kLanes), to, pitch);
  }
  if constexpr (V > 1) {
    if (at < depth) add_columns<Q, V / 2, Fetch>(weights, v, ahead, begin, end, at, depth, to, pitch);
  }
}

constexpr int vectors_for(int queries) { return kSums / queries < kMostVectors ? kSums / queries : kMostVectors; }

/// What up to kQueriesInL1 rows of Q need.
struct Queries {
  std::int64_t first;  ///< among those of the unit
  std::int64_t count;
  const float* q;  ///< rows in whole vectors, zeros behind the depth
  float* sums;     ///< rows likewise
  std::int64_t pitch;
  float* scores;
};

/// Calls run.of<Q>(i) for i = 0, 4, 8 .. and then for what is left of `count`, Q rows at a time.
template <typename Run>
[[gnu::always_inline]] inline void in_fours(std::int64_t count, const Run& run) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) run.template of<4>(i);
  if (i + 2 <= count) {
    run.template of<2>(i);
    i += 2;
  }
  if (i < count) run.template of<1>(i);
}

template <typename Element>
struct Dots {
  const Queries& all;
  const Rows<Element>& rows;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t depth;
  template <int Q>
  void of(std::int64_t i) const {
    const auto run = i == 0 ? dots<Q, true, Element> : dots<Q, false, Element>;
    run(all.q + i * all.pitch, all.pitch, rows.row, rows.ahead, begin, end, depth, all.scores + i * kPitch);
  }
};

template <typename Element>
struct Weighted {
  const Queries& all;
  const Rows<Element>& rows;
  std::int64_t keys;  ///< of the unit
  std::int64_t begin;
  std::int64_t end;
  std::int64_t depth;
  template <int Q>
  void of(std::int64_t i) const {
    const auto run = i == 0 ? add_columns<Q, vectors_for(Q), true, Element> : add_columns<Q, vectors_for(Q), false, Element>;
    run(all.scores + i * kPitch, rows.row + keys, rows.ahead, begin, end, 0, depth, all.sums + i * all.pitch, all.pitch);
  }
};

void add_slope(float* scores, std::int64_t keys, float scale, float slope, std::int64_t distance) {
  const Vector count_up = Floats::of_bits(Lanes::load(kCountUp));
  for (std::int64_t i = 0; i < keys; i += kLanes) {
    const Vector places = Floats::add(count_up, Floats::all(static_cast<float>(distance + i)));
    const Vector scaled = Floats::multiply(Floats::of_bits(Lanes::load(scores + i)), Floats::all(scale));
    Lanes::store(scores + i, Floats::bits_of(Floats::fma(places, Floats::all(slope), scaled)));
  }
}

/// The i-th query of a unit among the heads and rows of the call.
struct Query {
  std::int64_t head;
  std::int64_t row;

  Query(const DecodeAttentionArgs& args, std::int64_t kv_head, std::int64_t i)
      : head(kv_head * (args.heads / args.kv_heads) + i / args.rows), row(i % args.rows) {}
};

/// Scores of a row to weights.
Seen weigh_row(const DecodeAttentionArgs& args, const DecodeUnit& unit, const Query& query, float* scores) {
  const std::int64_t visible = decode_visible(args, unit.length, query.row) - unit.key;
  float scale = args.scale;
  if (args.slopes != nullptr) {
    add_slope(scores, unit.keys, scale, args.slopes[query.head], unit.key - (unit.length - args.rows + query.row));
    scale = 1.0f;
  }
  MaskRow mask{nullptr, DType::kF32, false};
  if (args.mask.data != nullptr) {
    const std::int64_t place = unit.batch * args.mask.batch_stride + query.head * args.mask.head_stride + query.row * args.mask.row_stride +
                               unit.key * args.mask.key_stride;
    mask = {static_cast<const char*>(args.mask.data) + place * bytes_of(args.mask.dtype), args.mask.dtype, args.mask.key_stride == 0};
  }
  Seen seen{kNothing, 0.0f};
  weigh<Products>(scores, visible < 0 ? 0 : least(visible, unit.keys), unit.keys, scale, mask, &seen);
  return seen;
}

float* lse_of(const DecodeAttentionArgs& args, std::int64_t batch, const Query& query) {
  if (args.logsumexp == nullptr) return nullptr;
  return args.logsumexp + batch * args.lse_batch_stride + query.head * args.lse_head_stride + query.row * args.lse_row_stride;
}

/// A row of Q to whole vectors of fp32.
void widen_row(const DecodeAttentionArgs& args, std::int64_t batch, const Query& query, float* to) {
  const std::int64_t place = batch * args.q.batch_stride + query.head * args.q.head_stride + query.row * args.q.row_stride;
  for (std::int64_t i = 0; i < args.depth; i += kLanes) {
    Lanes::store(to + i, args.dtype == DType::kF32 ? load_some(static_cast<const float*>(args.q.data) + place + i, args.depth - i)
                                                   : load_some(static_cast<const std::uint16_t*>(args.q.data) + place + i, args.depth - i));
  }
}
/// A finished row: its sums to the result.
void put_row(const DecodeAttentionArgs& args, std::int64_t batch, const Query& query, const float* sums, const Seen& seen) {
  const float factor = finish(seen, lse_of(args, batch, query));
  const bool nothing = seen.largest == kNothing;
  const std::int64_t place = batch * args.out_batch_stride + query.head * args.out_head_stride + query.row * args.out_row_stride;
  for (std::int64_t i = 0; i < args.depth; i += kLanes) {
    const Vector value = Floats::multiply(Floats::of_bits(Lanes::load(sums + i)), Floats::all(factor));
    const Lanes::Vector bits = nothing ? Lanes::zero() : Floats::bits_of(value);
    if (args.dtype == DType::kF32) {
      store_some(static_cast<float*>(args.out) + place + i, bits, args.depth - i);
    } else {
      store_some(static_cast<std::uint16_t*>(args.out) + place + i, bits, args.depth - i);
    }
  }
}

/// Where the parts of a partial result begin.
Seen* seen_of(float* partial) { return reinterpret_cast<Seen*>(partial); }
float* sums_of(const DecodeAttentionArgs& args, float* partial) { return partial + (2 * decode_queries(args) + 15) / 16 * 16; }

template <typename Element>
void attend(const DecodeAttentionArgs& args, const DecodeUnit& unit, const Rows<Element>& rows, const Queries& all, float* q) {
  for (std::int64_t i = 0; i < all.count; ++i) {
    widen_row(args, unit.batch, Query(args, unit.kv_head, all.first + i), q + i * all.pitch);
    for (std::int64_t column = 0; column < all.pitch; column += kLanes) Lanes::store(all.sums + i * all.pitch + column, Lanes::zero());
  }
  for (std::int64_t key = 0; key < unit.keys; key += kKeysInL1) {
    in_fours(all.count, Dots<Element>{all, rows, key, least(unit.keys, key + kKeysInL1), args.depth});
  }
  Seen seen[kQueriesInL1];
  for (std::int64_t i = 0; i < all.count; ++i) {
    seen[i] = weigh_row(args, unit, Query(args, unit.kv_head, all.first + i), all.scores + i * kPitch);
  }
  for (std::int64_t key = 0; key < unit.keys; key += kKeysInL1) {
    in_fours(all.count, Weighted<Element>{all, rows, unit.keys, key, least(unit.keys, key + kKeysInL1), args.depth});
  }
  for (std::int64_t i = 0; i < all.count; ++i) {
    const Query query(args, unit.kv_head, all.first + i);
    if (unit.partial != nullptr) {
      seen_of(unit.partial)[all.first + i] = seen[i];
    } else {
      put_row(args, unit.batch, query, all.sums + i * all.pitch, seen[i]);
    }
  }
}

template <typename Element>
void run_of(const DecodeAttentionArgs& args, const DecodeUnit& unit, void* scratch) {
  const std::int64_t queries = decode_queries(args);
  const std::int64_t pitch = decode_padded_depth(args);
  const std::int64_t at_once = least(queries, kQueriesInL1);
  auto* rows = static_cast<Rows<Element>*>(scratch);
  float* q = reinterpret_cast<float*>(rows + 1);
  float* sums = q + at_once * pitch;
  float* scores = sums + at_once * pitch;
  if (unit.keys > 0) find_rows(args.cache, unit, args.depth, rows);
  for (std::int64_t first = 0; first < queries; first += at_once) {
    float* to = unit.partial == nullptr ? sums : sums_of(args, unit.partial) + first * pitch;
    attend(args, unit, *rows, Queries{first, least(at_once, queries - first), q, to, pitch, scores}, q);
  }
}

}  // namespace

std::size_t decode_scratch_bytes(const DecodeAttentionArgs& args) {
  const std::int64_t at_once = least(decode_queries(args), kQueriesInL1);
  return sizeof(Rows<float>) + static_cast<std::size_t>(at_once * (2 * decode_padded_depth(args) + kPitch)) * sizeof(float);
}

void decode_run(const DecodeAttentionArgs& args, const DecodeUnit& unit, void* scratch) {
  (args.cache.dtype == DType::kF32 ? run_of<float> : run_of<std::uint16_t>)(args, unit, scratch);
}

void decode_merge(const DecodeAttentionArgs& args, const DecodeUnit& unit, float* partials, std::int64_t count, std::int64_t stride) {
  const std::int64_t pitch = decode_padded_depth(args);
  for (std::int64_t i = 0; i < decode_queries(args); ++i) {
    Seen all{kNothing, 0.0f};
    for (std::int64_t part = 0; part < count && !__builtin_isnan(all.largest); ++part) {
      const float largest = seen_of(partials + part * stride)[i].largest;
      if (!(largest <= all.largest)) all.largest = largest;  // or NaN
    }
    float* sums = sums_of(args, partials) + i * pitch;
    bool first = true;
    for (std::int64_t part = 0; part < count; ++part) {
      const Seen seen = seen_of(partials + part * stride)[i];
      if (seen.largest == kNothing) continue;
      const float factor = seen.largest == all.largest ? 1.0f : power(seen.largest - all.largest);
      all.sum += seen.sum * factor;
      const float* from = sums_of(args, partials + part * stride) + i * pitch;
      for (std::int64_t column = 0; column < pitch; column += kLanes) {
        const Vector term = Floats::multiply(Floats::of_bits(Lanes::load(from + column)), Floats::all(factor));
        const Vector sum = first ? term : Floats::add(Floats::of_bits(Lanes::load(sums + column)), term);
        Lanes::store(sums + column, Floats::bits_of(sum));
      }
      first = false;
    }
    put_row(args, unit.batch, Query(args, unit.kv_head, i), sums, all);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
