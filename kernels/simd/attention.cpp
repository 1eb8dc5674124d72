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

/// The place of a block of rows and a block of keys in a head.
struct Block {
  std::int64_t row;  ///< the first
  std::int64_t rows;
  std::int64_t key;
  std::int64_t keys;
  bool causal;

  /// Keys of the block that row r of it sees, and that a tile of rows walks.
  [[nodiscard]] std::int64_t seen_by(std::int64_t r) const {
    if (!causal) return keys;
    const std::int64_t n = row + r + 1 - key;
    return n < 0 ? 0 : least(n, keys);
  }
  [[nodiscard]] std::int64_t walked_by(std::int64_t r) const { return seen_by(least(r - r % kTileRows + kTileRows, rows) - 1); }
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

/// Rows of K, V and Q that the next units want: fetched into L2 a little at a time, for no prefetcher of the CPU sees rows that lie
/// kilobytes apart coming.
template <typename Element>
class Ahead {
 public:
  /// While `unit` runs, which calls fetch() so often; nothing from `end` on is wanted.
  void plan(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t unit, std::int64_t end, std::int64_t calls) {
    const std::int64_t number = unit / plan.blocks;
    bytes_ = args.depth * static_cast<std::int64_t>(sizeof(Element));
    for (Rows& rows : rows_) rows.left = 0;
    if (plan.resident && (number + 1) * plan.blocks < end) {  // each unit of this head a part of the next one's keys
      const Head next(args, number + 1);
      const std::int64_t block = unit % plan.blocks;
      const std::int64_t first = args.keys * block / plan.blocks;
      const std::int64_t count = next.kv_head == Head(args, number).kv_head ? 0 : args.keys * (block + 1) / plan.blocks - first;
      rows_[0] = {k_row<Element>(args, next, first), args.k.row_stride, count, 0};
      rows_[1] = {v_row<Element>(args, next, first), args.v.row_stride, count, 0};
    }
    if (unit + 1 < end) {
      const std::int64_t row = (unit + 1) % plan.blocks * plan.row_block;
      rows_[2] = {q_row<Element>(args, Head(args, (unit + 1) / plan.blocks), row), args.q.row_stride,
                  least(plan.row_block, args.rows - row), 0};
    }
    for (Rows& rows : rows_) rows.at_once = (rows.left + calls - 1) / calls;
  }

  void fetch() {
    for (Rows& rows : rows_) {
      for (std::int64_t i = least(rows.at_once, rows.left); i > 0; --i) {
        const char* at = reinterpret_cast<const char*>(rows.next);
        for (std::int64_t byte = 0; byte < bytes_; byte += 64) __builtin_prefetch(at + byte, 0, 2);
        rows.next += rows.stride;
        --rows.left;
      }
    }
  }

 private:
  struct Rows {
    const Element* next = nullptr;
    std::int64_t stride = 0;
    std::int64_t left = 0;
    std::int64_t at_once = 0;
  };
  Rows rows_[3];
  std::int64_t bytes_ = 0;
};

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
