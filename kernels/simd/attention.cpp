// attention, a block of rows of one head at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// Scores of a block of rows and a block of keys lie in L2. The keys are cut into panels of K that fill half of L1 and meet all rows of the
// block before the next one; the sum over V is cut likewise. Under `causal` a tile of rows walks only the keys that its last row sees.
#include "kernels/simd/attention.h"

#if defined(IPEXRUN_KERNEL_ISA_AVX512_BF16)
#include "kernels/simd/floats_avx512.h"
#include "kernels/simd/halves_avx512.h"
namespace ipexrun::kernels::avx512_bf16 {
namespace {
using avx512::Floats;
using avx512::Halves;
using avx512::Lanes;
}  // namespace
}  // namespace ipexrun::kernels::avx512_bf16
#include "kernels/simd/products_bf16.h"
#elif defined(IPEXRUN_KERNEL_ISA_AVX512)
#include "kernels/simd/floats_avx512.h"
#include "kernels/simd/halves_avx512.h"
#include "kernels/simd/products_f32.h"
#else
#include "kernels/simd/floats_avx2.h"
#include "kernels/simd/halves_avx2.h"
#include "kernels/simd/products_f32.h"
#endif
// In this order: each needs the ones before it.
#include "kernels/simd/attention_load.h"
//
#include "kernels/simd/attention_tile.h"
#include "kernels/simd/attention_walk.h"
//
#include "kernels/simd/attention_pack.h"
#include "kernels/simd/exp2.h"
//
#include "kernels/simd/attention_weigh.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kStepsAtOnce = 64;  ///< words of V that all rows of a block meet before the next ones: 16 KiB in a panel

/// What one worker has in scratch.
struct Scratch {
  float* k;
  float* v;
  float* scores;
  float* q;
  float* sums;
  Seen* seen;

  Scratch(float* at, const AttentionPlan& plan) {
    k = at;
    v = k + plan.packed_keys * plan.padded_depth;
    scores = v + plan.packed_keys * plan.padded_depth;
    q = scores + plan.row_block * plan.padded_key_block;
    sums = q + plan.row_block * plan.padded_depth;
    seen = reinterpret_cast<Seen*>(sums + plan.row_block * plan.padded_depth);
  }
};

void multiply_q_k(const Block& block, const AttentionPlan& plan, std::int64_t depth, const Scratch& at, const float* k) {
  const std::int64_t vectors = vectors_of(block.keys);
  const std::int64_t panels = panels_of_vectors(vectors);
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    const std::int64_t begin = vectors * panel / panels;
    const std::int64_t width = vectors * (panel + 1) / panels - begin;
    for (std::int64_t r = 0; r < block.rows; r += kTileRows) {
      if (block.walked_by(r) <= begin * kLanes) continue;
      tile_of(least(kTileRows, block.rows - r), width)(
          at.q + r * plan.padded_depth, plan.padded_depth, k + begin * kLanes * words_of(depth), words_of(depth),
          at.scores + r * plan.padded_key_block + begin * kLanes, plan.padded_key_block, false);
    }
  }
}

void multiply_weights_v(const Block& block, const AttentionPlan& plan, std::int64_t depth, const Scratch& at, const float* v) {
  const std::int64_t vectors = vectors_of(depth);
  const std::int64_t panels = panels_of_vectors(vectors);
  const std::int64_t steps = words_of(block.keys);
  for (std::int64_t step = 0; step < steps; step += kStepsAtOnce) {
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::int64_t begin = vectors * panel / panels;
      const std::int64_t width = vectors * (panel + 1) / panels - begin;
      for (std::int64_t r = 0; r < block.rows; r += kTileRows) {
        const std::int64_t here = least(kStepsAtOnce, words_of(block.walked_by(r)) - step);
        if (here <= 0) continue;
        tile_of(least(kTileRows, block.rows - r), width)(
            at.scores + r * plan.padded_key_block + step, plan.padded_key_block, v + (begin * steps + step * width) * kLanes, here,
            at.sums + r * plan.padded_depth + begin * kLanes, plan.padded_depth, block.key > 0 || step > 0);
      }
    }
  }
}

void scale_row(float* row, std::int64_t depth, float factor) {
  for (std::int64_t i = 0; i < depth; i += kLanes) {
    Lanes::store(row + i, Floats::bits_of(Floats::multiply(Floats::of_bits(Lanes::load(row + i)), Floats::all(factor))));
  }
}

/// The rows of a block against all keys that they see. `packed` keys of this head are in scratch already.
template <typename Element>
void attend(const AttentionArgs& args, const AttentionPlan& plan, const Head& head, Block block, const Scratch& at, std::int64_t* packed,
            Ahead<Element>* ahead) {
  for (std::int64_t r = 0; r < block.rows; ++r) {
    copy_row(q_row<Element>(args, head, block.row + r), args.depth, at.q + r * plan.padded_depth);
    at.seen[r] = {kNothing, 0.0f};
  }
  const std::int64_t visible = args.causal ? least(args.keys, block.row + block.rows) : args.keys;
  for (; block.key < visible; block.key += plan.key_block) {
    block.keys = least(plan.key_block, args.keys - block.key);
    const std::int64_t place = plan.resident ? block.key * plan.padded_depth : 0;
    if (!plan.resident || block.key >= *packed) {
      pack_k(k_row<Element>(args, head, block.key), args.k.row_stride, block.keys, args.depth, at.k + place);
      pack_v(v_row<Element>(args, head, block.key), args.v.row_stride, block.keys, args.depth, at.v + place);
      *packed = block.key + block.keys;
    }
    multiply_q_k(block, plan, args.depth, at, at.k + place);
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const float before = weigh<Products>(at.scores + r * plan.padded_key_block, block.seen_by(r), block.walked_by(r), args.scale,
                                           mask_row(args.mask, head, block.row + r, block.key), &at.seen[r]);
      ahead->fetch();
      if (block.key > 0 && before != 1.0f) scale_row(at.sums + r * plan.padded_depth, args.depth, before);
    }
    multiply_weights_v(block, plan, args.depth, at, at.v + place);
  }
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::int64_t row = block.row + r;
    float* sums = at.sums + r * plan.padded_depth;
    scale_row(sums, args.depth, finish(at.seen[r], lse_of(args, head, row)));
    Element* out = out_row<Element>(args, head, row);
    for (std::int64_t i = 0; i < args.depth; i += kLanes) store_some(out + i, Lanes::load(sums + i), args.depth - i);
  }
}

template <typename Element>
void attention_of(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t unit_begin, std::int64_t unit_end, float* scratch) {
  const Scratch at(scratch, plan);
  std::int64_t packed = 0;
  Ahead<Element> ahead;
  std::int64_t kv = -1;
  for (std::int64_t unit = unit_begin; unit < unit_end; ++unit) {
    const Head head(args, unit / plan.blocks);
    const std::int64_t row = unit % plan.blocks * plan.row_block;
    const std::int64_t this_kv = head.batch * args.kv_heads + head.kv_head;
    if (this_kv != kv) packed = 0;
    kv = this_kv;
    const Block block{row, least(plan.row_block, args.rows - row), 0, 0, args.causal};
    const std::int64_t visible = args.causal ? least(args.keys, row + block.rows) : args.keys;
    ahead.plan(args, plan, unit, unit_end, block.rows * ((visible + plan.key_block - 1) / plan.key_block));
    attend<Element>(args, plan, head, block, at, &packed, &ahead);
  }
}

}  // namespace

void attention(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t unit_begin, std::int64_t unit_end, float* scratch) {
#if defined(IPEXRUN_KERNEL_ISA_AVX512_BF16)
  attention_of<std::uint16_t>(args, plan, unit_begin, unit_end, scratch);
#else
  (args.dtype == DType::kF32 ? attention_of<float> : attention_of<std::uint16_t>)(args, plan, unit_begin, unit_end, scratch);
#endif
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
