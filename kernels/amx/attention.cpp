// attention on AMX, 32 rows of Q at a time: two tiles of rows meet two tiles of keys, or of the depth, in four tiles of sums.
//
// K and V of a head are packed once as tiles of pairs and walked in blocks of keys. Scores of 64 keys become weights while they lie in L1,
// without a look for the largest ones (attend_quickly); rows for which that does not do are computed again, a whole block of keys at
// a time (attend). Rows that a tile has too many, and keys and depth up to whole tiles, are zeros or never stored.
//
// fp32 is rounded to bf16 as it is packed. Where scores are so large that their rounding could count for more than that of the weights
// (rounding_of), what rounding leaves of Q and K is packed as well and multiplied with the rounded numbers of the other: scores of 16 bits.
#include "kernels/amx/attention.h"

#include <immintrin.h>

#include "kernels/simd/floats_avx512.h"
#include "kernels/simd/halves_avx512.h"

namespace ipexrun::kernels::amx {
namespace {
using avx512::Floats;
using avx512::Halves;
using avx512::Lanes;
constexpr std::int64_t kTileRows = 32;  ///< that walk the keys together: two tiles
}  // namespace
}  // namespace ipexrun::kernels::amx
// In this order: each needs the ones before it.
#include "kernels/simd/attention_load.h"
#include "kernels/simd/attention_walk.h"
#include "kernels/simd/exp2.h"
//
#include "kernels/simd/attention_weigh.h"
//
#include "kernels/amx/attention_rows.h"
#include "kernels/amx/attention_tiles.h"

namespace ipexrun::kernels::amx {
namespace {

constexpr std::int64_t kRowsBetween = 4;  ///< that are weighed between fetches

/// What one worker has in scratch. K and V need half of what the plan counts for them, so there is room for a chunk beside the weights.
struct Scratch {
  char* k;     ///< [32 keys][step of the depth][two tiles]
  char* v;     ///< [32 columns][step of the keys][two tiles]
  char* q[2];  ///< of this block and the next: [16 rows][step of the depth], tiles
  float* sums;
  float* scores;  ///< of a block, which weights replace
  float* chunk;   ///< or: scores of a chunk
  char* weights;  ///< and weights of a block
  std::int64_t weights_line;
  // For fp32 alone, behind what the plan counts:
  char* k_rest;         ///< as k
  char* q_rest;         ///< as q
  float* bounds;        ///< for each block of keys: the largest |K| of each column, and whether its rest is packed
  bool* q_rest_packed;  ///< of these rows

  Scratch(float* at, const AttentionPlan& plan) {
    const std::int64_t words = plan.packed_keys * plan.padded_depth / 2;
    k = reinterpret_cast<char*>(at);
    v = reinterpret_cast<char*>(at + words);
    q[0] = reinterpret_cast<char*>(at + 2 * words);
    q[1] = q[0] + plan.row_block * plan.padded_depth * 2;
    sums = at + 2 * words + plan.row_block * plan.padded_depth;
    scores = sums + plan.row_block * plan.padded_depth;
    chunk = scores;
    weights = reinterpret_cast<char*>(chunk + plan.row_block * kChunk);
    weights_line = plan.key_block * 2 + 64;
    k_rest = reinterpret_cast<char*>(at + plan.rest);
    q_rest = k_rest + plan.packed_keys * plan.padded_depth * 2;
    q_rest_packed = reinterpret_cast<bool*>(q_rest + plan.row_block * plan.padded_depth * 2);
    bounds = reinterpret_cast<float*>(q_rest_packed + 64);
  }
};

template <typename From>
void pack_q(From row, std::int64_t place, std::int64_t depth, char* to) {
  const std::int64_t steps = steps_of(depth);
  char* line = to + place / 16 * steps * kTileBytes + place % 16 * 64;
  for (std::int64_t s = 0; s < steps; ++s) _mm512_store_si512(line + s * kTileBytes, load_step(row, s * kStep, depth));
}

/// Rows of Q that are wanted next. Packed while others are weighed, they are out of the core's queue of stores when a tile loads them.
template <typename Element>
struct Next {
  const AttentionArgs* args;
  Head head;
  std::int64_t row;
  std::int64_t rows;  ///< 0 when they are packed
  char* to;

  void pack() {
    for (std::int64_t r = 0; r < rows; ++r) pack_q(q_row<Element>(*args, head, row + r), r, args->depth, to);
    rows = 0;
  }
};

/// A block of keys of a head, packed.
struct Packed {
  const char* k;
  const char* v;
  std::int64_t panel_bytes;  ///< of V
  const char* k_rest;        ///< null = not wanted
  const char* q_rest;
};

/// Scores of the block's rows with `keys` keys of K's panel `panel` on.
void multiply_q_k(const Block& block, std::int64_t depth, const char* q, const Packed& packed, std::int64_t panel, std::int64_t keys,
                  float* scores, std::int64_t line) {
  const std::int64_t steps = steps_of(depth);
  const Rows rows{q, 64, kTileBytes, steps * kTileBytes};
  for (std::int64_t i = 0; i < steps_of(keys); ++i) {
    const std::int64_t place = (panel + i) * steps * kPair;
    char* const to = reinterpret_cast<char*>(scores + i * kStep);
    multiply(rows, block.rows > 16, packed.k + place, steps, to, line, false);
    if (packed.k_rest == nullptr) continue;
    const Rows rest{packed.q_rest, 64, kTileBytes, steps * kTileBytes};
    multiply(rows, block.rows > 16, packed.k_rest + place, steps, to, line, true);
    multiply(rest, block.rows > 16, packed.k + place, steps, to, line, true);
  }
}

/// Adds the weights of a block, `line` bytes a row, times V to the sums.
void multiply_weights_v(const Block& block, const AttentionPlan& plan, std::int64_t depth, const char* weights, std::int64_t line,
                        const char* v, std::int64_t panel_bytes, float* sums) {
  const Rows rows{weights, line, 64, 16 * line};
  const std::int64_t steps = steps_of(block.walked_by(0));
  for (std::int64_t panel = 0; panel < steps_of(depth); ++panel) {
    multiply(rows, block.rows > 16, v + panel * panel_bytes, steps, reinterpret_cast<char*>(sums + panel * kStep), plan.padded_depth * 4,
             block.key > 0);
  }
}

/// No NaN and no infinity among the sums of a row.
bool all_finite(const float* row, std::int64_t depth) {
  unsigned odd = 0;
  for (std::int64_t i = 0; i < depth; i += kLanes) {
    const auto keep = static_cast<__mmask16>(_bzhi_u32(0xffffu, static_cast<unsigned>(least(depth - i, kLanes))));
    odd |= _mm512_mask_fpclass_ps_mask(keep, _mm512_load_ps(row + i), 0x99);  // both NaN, both infinities
  }
  return odd == 0;
}

void scale_row(float* row, std::int64_t depth, float factor) {
  for (std::int64_t i = 0; i < depth; i += kLanes) _mm512_store_ps(row + i, _mm512_mul_ps(_mm512_load_ps(row + i), _mm512_set1_ps(factor)));
}

/// Sums times `factor` to a row of the result.
void finish_row(const float* sums, std::int64_t depth, float factor, std::uint16_t* out) {
  const __m512 all = _mm512_set1_ps(factor);
  for (std::int64_t i = 0; i < depth; i += kStep) {
    const __m512i both =
        (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(_mm512_load_ps(sums + i + 16), all), _mm512_mul_ps(_mm512_load_ps(sums + i), all));
    if (depth - i >= kStep) {
      _mm512_storeu_si512(out + i, both);
    } else {
      _mm512_mask_storeu_epi16(out + i, _bzhi_u32(~0u, static_cast<unsigned>(depth - i)), both);
    }
  }
}

void finish_row(const float* sums, std::int64_t depth, float factor, float* out) {
  for (std::int64_t i = 0; i < depth; i += kLanes) {
    const auto keep = static_cast<__mmask16>(_bzhi_u32(0xffffu, static_cast<unsigned>(least(depth - i, kLanes))));
    _mm512_mask_storeu_ps(out + i, keep, _mm512_mul_ps(_mm512_load_ps(sums + i), _mm512_set1_ps(factor)));
  }
}

/// Scores of up to 16 rows from row `first` of a block on to weights; sums of earlier blocks of keys are scaled.
template <typename Element>
void weigh_group(const AttentionArgs& args, const AttentionPlan& plan, const Head& head, const Block& block, std::int64_t first,
                 const Scratch& at, Group* group, Ahead<Element>* ahead) {
  const std::int64_t rows = least(kGroup, block.rows - first);
  const std::int64_t end = block.walked_by(first);
  const auto row_at = [&](std::int64_t r) { return at.scores + (first + r) * plan.padded_key_block; };
  const bool masked = args.mask.data != nullptr;
  const float scale = masked ? 1.0f : args.scale;  // of what lies in the rows after the largest are found
  const float factor = scale * kLog2E;
  __m512 most[kGroup];
  for (std::int64_t r = 0; r < kGroup; ++r) most[r] = _mm512_set1_ps(kNothing);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t n = block.seen_by(first + r);
    most[r] = masked ? most_of(row_at(r), n, args.scale, mask_row(args.mask, head, block.row + first + r, block.key))
                     : most_of_plain(row_at(r), n);
  }
  const bool together = !group->apart && scale > 0 && shift_by(across<Larger>(most), factor, group);
  if (!together && !group->apart) set_apart(group);
  const bool payload = masked && args.mask.dtype == DType::kF32;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t n = block.seen_by(first + r);
    if (!together) {
      group->before[r] = weigh<Weights>(row_at(r), n, end, scale, {nullptr, DType::kF32, false}, &group->seen[r]);
    } else if (payload) {
      weigh_row<true>(row_at(r), n, end, factor, group->shift[r], group->before[r], group->sums[r]);
    } else {
      weigh_row<false>(row_at(r), n, end, factor, group->shift[r], group->before[r], group->sums[r]);
    }
    ahead->fetch();
  }
  if (block.key == 0) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (group->before[r] != 1.0f) scale_row(at.sums + (first + r) * plan.padded_depth, args.depth, group->before[r]);
  }
}

/// The largest |K| of each column among `keys` rows.
void bound_k(const float* from, std::int64_t stride, std::int64_t keys, std::int64_t depth, float* to) {
  for (std::int64_t i = 0; i < depth; i += kLanes) {
    const auto keep = static_cast<__mmask16>(_bzhi_u32(0xffffu, static_cast<unsigned>(least(depth - i, kLanes))));
    __m512 most = _mm512_setzero_ps();
    for (std::int64_t key = 0; key < keys; ++key) {
      most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_maskz_loadu_ps(keep, from + key * stride + i)));
    }
    _mm512_store_ps(to + i, most);
  }
}

enum class Rounding { kHarmless, kCounts, kTooMuch };
/// The largest root of the sum over the depth of (q k scale)^2 of which rounding takes about 1/400: less than that of the weights and V.
constexpr float kMostRounded = 4.0f;
constexpr float kMostOfTwoParts = 256 * kMostRounded;  ///< half of what two parts leave to round

/// What rounding Q and K costs the block's scores with keys whose columns `bounds` bounds. What is not finite needs no digits.
Rounding rounding_of(const AttentionArgs& args, const Head& head, const Block& block, const float* bounds) {
  unsigned counts = 0;
  unsigned too_much = 0;
  for (std::int64_t first = 0; first < block.rows; first += kGroup) {
    __m512 squares[kGroup];
    for (__m512& row : squares) row = _mm512_setzero_ps();
    for (std::int64_t r = 0; r < least(kGroup, block.rows - first); ++r) {
      const float* q = q_row<float>(args, head, block.row + first + r);
      for (std::int64_t i = 0; i < args.depth; i += kLanes) {
        const auto keep = static_cast<__mmask16>(_bzhi_u32(0xffffu, static_cast<unsigned>(least(args.depth - i, kLanes))));
        const __m512 product = _mm512_mul_ps(_mm512_maskz_loadu_ps(keep, q + i), _mm512_load_ps(bounds + i));
        squares[r] = _mm512_fmadd_ps(product, product, squares[r]);
      }
    }
    const __m512 root = _mm512_mul_ps(_mm512_sqrt_ps(across<Sum>(squares)), _mm512_set1_ps(__builtin_fabsf(args.scale)));
    const __mmask16 finite = _mm512_cmp_ps_mask(root, _mm512_set1_ps(-kNothing), _CMP_LT_OQ);
    counts |= _mm512_mask_cmp_ps_mask(finite, root, _mm512_set1_ps(kMostRounded), _CMP_GT_OQ);
    too_much |= _mm512_mask_cmp_ps_mask(finite, root, _mm512_set1_ps(kMostOfTwoParts), _CMP_GT_OQ);
  }
  return too_much != 0 ? Rounding::kTooMuch : counts != 0 ? Rounding::kCounts : Rounding::kHarmless;
}

/// Packs what rounding leaves of Q and K where that counts.
void pack_rest(const AttentionArgs& args, const AttentionPlan& plan, const Head& head, const Block& block, const Scratch& at, float* bounds,
               char* k_rest, Packed* to) {
  const Rounding rounding = rounding_of(args, head, block, bounds);
  if (rounding == Rounding::kHarmless) return;
  if (rounding == Rounding::kTooMuch) __atomic_store_n(plan.refused, true, __ATOMIC_RELAXED);
  if (bounds[plan.padded_depth] == 0.0f) {
    pack_k(Rest{k_row<float>(args, head, block.key)}, args.k.row_stride, block.keys, args.depth, k_rest);
    bounds[plan.padded_depth] = 1.0f;
  }
  if (!*at.q_rest_packed) {
    for (std::int64_t r = 0; r < block.rows; ++r) pack_q(Rest{q_row<float>(args, head, block.row + r)}, r, args.depth, at.q_rest);
    *at.q_rest_packed = true;
  }
  to->k_rest = k_rest;
  to->q_rest = at.q_rest;
}

/// Packs the block's keys unless they are packed already, as those of a head before `*packed` are.
template <typename Element>
Packed pack_block(const AttentionArgs& args, const AttentionPlan& plan, const Head& head, const Block& block, const Scratch& at,
                  std::int64_t* packed) {
  const std::int64_t panel_bytes = plan.packed_keys / kStep * kPair;
  const std::int64_t place = plan.resident ? block.key / kStep : 0;
  const std::int64_t k_place = place * steps_of(args.depth) * kPair;
  char* const k = at.k + k_place;
  char* const v = at.v + place * kPair;
  float* const bounds = at.bounds + (plan.resident ? block.key / plan.key_block : 0) * (plan.padded_depth + kLanes);
  if (!plan.resident || block.key >= *packed) {
    pack_k(k_row<Element>(args, head, block.key), args.k.row_stride, block.keys, args.depth, k);
    pack_v(v_row<Element>(args, head, block.key), args.v.row_stride, block.keys, args.depth, panel_bytes, v);
    *packed = block.key + block.keys;
    if constexpr (sizeof(Element) == sizeof(float)) {
      bound_k(k_row<float>(args, head, block.key), args.k.row_stride, block.keys, args.depth, bounds);
      bounds[plan.padded_depth] = 0.0f;
    }
  }
  Packed result{k, v, panel_bytes, nullptr, nullptr};
  if constexpr (sizeof(Element) == sizeof(float)) pack_rest(args, plan, head, block, at, bounds, at.k_rest + k_place, &result);
  return result;
}

/// Results of the rows. Computed `quick`, they may have overflowed: false, and nothing is settled.
template <typename Element>
bool finish_rows(const AttentionArgs& args, const AttentionPlan& plan, const Head& head, const Block& block, const Scratch& at,
                 const Group* groups, bool quick) {
  for (std::int64_t first = 0; first < block.rows; first += kGroup) {
    float factors[kGroup];
    float logsumexp[kGroup];
    if (!finish(groups[first / kGroup], least(kGroup, block.rows - first), quick, factors, logsumexp)) return false;
    for (std::int64_t r = 0; r < least(kGroup, block.rows - first); ++r) {
      const std::int64_t row = block.row + first + r;
      const float* sums = at.sums + (first + r) * plan.padded_depth;
      if (quick && !all_finite(sums, args.depth)) return false;
      finish_row(sums, args.depth, factors[r], out_row<Element>(args, head, row));
      if (args.logsumexp != nullptr) *lse_of(args, head, row) = logsumexp[r];
    }
  }
  return true;
}

/// The rows of a block against all keys that they see. `packed` keys of this head are in scratch already.
template <typename Element>
void attend(const AttentionArgs& args, const AttentionPlan& plan, const Head& head, Block block, const Scratch& at, const char* q,
            std::int64_t* packed, Group* groups, Ahead<Element>* ahead) {
  for (std::int64_t first = 0; first < block.rows; first += kGroup) begin(&groups[first / kGroup]);
  const std::int64_t visible = args.causal ? least(args.keys, block.row + block.rows) : args.keys;
  const std::int64_t line = plan.padded_key_block * 4;
  for (; block.key < visible; block.key += plan.key_block) {
    block.keys = least(plan.key_block, args.keys - block.key);
    const Packed keys = pack_block<Element>(args, plan, head, block, at, packed);
    multiply_q_k(block, args.depth, q, keys, 0, block.walked_by(0), at.scores, line);
    for (std::int64_t first = 0; first < block.rows; first += kGroup) {
      weigh_group(args, plan, head, block, first, at, &groups[first / kGroup], ahead);
    }
    multiply_weights_v(block, plan, args.depth, reinterpret_cast<const char*>(at.scores), line, keys.v, keys.panel_bytes, at.sums);
  }
  finish_rows<Element>(args, plan, head, block, at, groups, false);
}

/// The rows of a chunk of `keys` keys from key `key` of the block on to weights. The first chunk of all sets the shifts: false where it
/// cannot.
template <typename Mask, typename Element, typename MaskOf>
bool weigh_chunk(const Block& block, std::int64_t key, const Scratch& at, float scale, const MaskOf& mask_of, Group* groups,
                 Ahead<Element>* ahead) {
  const Factors<Mask> by(scale);
  const std::int64_t room = least(kChunk, steps_of(block.walked_by(0)) * kStep - key);
  for (std::int64_t first = 0; first < block.rows; first += kGroup) {
    Group* const group = &groups[first / kGroup];
    const std::int64_t rows = least(kGroup, block.rows - first);
    if (block.key == 0 && key == 0) {
      __m512 most[kGroup];
      for (__m512& row : most) row = _mm512_setzero_ps();
      for (std::int64_t r = 0; r < rows; ++r) {
        most[r] =
            most_of_chunk<Mask>(at.chunk + (first + r) * kChunk, least(kChunk, block.seen_by(first + r)), scale, mask_of(first + r, key));
      }
      if (!shift_to(across<Larger>(most), Mask::kChanges ? kLog2E : scale * kLog2E, group)) return false;
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t left = block.seen_by(first + r) - key;
      const float* const scores = at.chunk + (first + r) * kChunk;
      char* const weights = at.weights + (first + r) * at.weights_line + key * 2;
      if (left >= kChunk) {
        weigh_whole<Mask>(scores, by, mask_of(first + r, key), group->shift[r], group->sums[r], weights);
      } else {
        weigh_part<Mask>(scores, left < 0 ? 0 : left, room, by, mask_of(first + r, key), group->shift[r], group->sums[r], weights);
      }
      if (r % kRowsBetween == 0) ahead->fetch();
    }
  }
  return true;
}

/// As attend(), without looking for the largest score of a row: the largest of its first keys will do as long as nothing overflows, for
/// weights are floating-point numbers. False where it does: nothing is settled then.
template <typename Mask, typename Element, typename MaskOf>
bool attend_quickly(const AttentionArgs& args, const AttentionPlan& plan, const Head& head, Block block, const Scratch& at, const char* q,
                    Next<Element>* next, std::int64_t* packed, Group* groups, Ahead<Element>* ahead, const MaskOf& mask_of) {
  if (!(args.scale > 0)) return false;
  for (std::int64_t first = 0; first < block.rows; first += kGroup) begin(&groups[first / kGroup]);
  const std::int64_t visible = args.causal ? least(args.keys, block.row + block.rows) : args.keys;
  for (; block.key < visible; block.key += plan.key_block) {
    block.keys = least(plan.key_block, args.keys - block.key);
    const Packed keys = pack_block<Element>(args, plan, head, block, at, packed);
    const std::int64_t walked = block.walked_by(0);
    for (std::int64_t key = 0; key < walked; key += kChunk) {
      multiply_q_k(block, args.depth, q, keys, key / kStep, least(kChunk, walked - key), at.chunk, kChunk * 4);
      if (block.key + plan.key_block >= visible && key + kChunk >= walked) next->pack();
      const auto mask_here = [&](std::int64_t r, std::int64_t from) __attribute__((always_inline)) {
        return mask_of(block.row + r, block.key + from);
      };
      if (!weigh_chunk<Mask>(block, key, at, args.scale, mask_here, groups, ahead)) return false;
    }
    multiply_weights_v(block, plan, args.depth, at.weights, at.weights_line, keys.v, keys.panel_bytes, at.sums);
  }
  return finish_rows<Element>(args, plan, head, block, at, groups, true);
}

template <typename Element>
bool attend_quickly(const AttentionArgs& args, const AttentionPlan& plan, const Head& head, const Block& block, const Scratch& at,
                    const char* q, Next<Element>* next, std::int64_t* packed, Group* groups, Ahead<Element>* ahead) {
  const auto row = [&](std::int64_t r, std::int64_t key) { return mask_row(args.mask, head, r, key); };
  if (args.mask.data == nullptr) {
    return attend_quickly<NoMask>(args, plan, head, block, at, q, next, packed, groups, ahead,
                                  [](std::int64_t, std::int64_t) { return NoMask{}; });
  }
  if (args.mask.key_stride == 0) return false;
  if (args.mask.dtype == DType::kF32) {
    return attend_quickly<RowMask<float>>(
        args, plan, head, block, at, q, next, packed, groups, ahead,
        [&](std::int64_t r, std::int64_t key) { return RowMask<float>{static_cast<const float*>(row(r, key).data)}; });
  }
  return attend_quickly<RowMask<std::uint16_t>>(
      args, plan, head, block, at, q, next, packed, groups, ahead,
      [&](std::int64_t r, std::int64_t key) { return RowMask<std::uint16_t>{static_cast<const std::uint16_t*>(row(r, key).data)}; });
}

template <typename Element>
void attend_units(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t unit_begin, std::int64_t unit_end, float* scratch) {
  const Scratch at(scratch, plan);
  configure_whole_tiles();
  Group groups[kTileRows / kGroup];
  std::int64_t packed = 0;
  Ahead<Element> ahead;
  std::int64_t kv = -1;
  const auto rows_of = [&](std::int64_t unit) {
    const std::int64_t row = unit % plan.blocks * plan.row_block;
    return Next<Element>{&args, Head(args, unit / plan.blocks), row, unit < unit_end ? least(plan.row_block, args.rows - row) : 0,
                         at.q[unit % 2]};
  };
  rows_of(unit_begin).pack();
  for (std::int64_t unit = unit_begin; unit < unit_end; ++unit) {
    const Next<Element> here = rows_of(unit);
    Next<Element> next = rows_of(unit + 1);
    const Head& head = here.head;
    const std::int64_t this_kv = head.batch * args.kv_heads + head.kv_head;
    if (this_kv != kv) packed = 0;
    kv = this_kv;
    if constexpr (sizeof(Element) == sizeof(float)) *at.q_rest_packed = false;
    const Block block{here.row, here.rows, 0, 0, args.causal};
    const std::int64_t visible = args.causal ? least(args.keys, block.row + block.rows) : args.keys;
    ahead.plan(args, plan, unit, unit_end, (block.rows + kRowsBetween - 1) / kRowsBetween * ((visible + kChunk - 1) / kChunk));
    if (!attend_quickly(args, plan, head, block, at, here.to, &next, &packed, groups, &ahead)) {
      attend(args, plan, head, block, at, here.to, &packed, groups, &ahead);
    }
    next.pack();
  }
  tile_release();
}

}  // namespace

void attention(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t unit_begin, std::int64_t unit_end, float* scratch) {
  if (args.dtype == DType::kF32) {
    attend_units<float>(args, plan, unit_begin, unit_end, scratch);
  } else {
    attend_units<std::uint16_t>(args, plan, unit_begin, unit_end, scratch);
  }
}

}  // namespace ipexrun::kernels::amx
