// The variants of decode_attention and what they agree on; see dispatch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/decode_attention.h"
#include "kernels/dispatch.h"

namespace ipexrun::kernels {

/// What the same worker walks next, for fetching it ahead; keys = 0: nothing.
struct DecodeNext {
  std::int64_t batch;
  std::int64_t kv_head;
  std::int64_t key;
  std::int64_t keys;
};

/// Some keys of a sequence, for all rows of Q that share a head of K and V: query i is row i % rows of the i / rows-th head among them.
struct DecodeUnit {
  std::int64_t batch;
  std::int64_t kv_head;
  std::int64_t length;  ///< of the sequence
  std::int64_t key;     ///< the first
  std::int64_t keys;
  float* partial;  ///< of decode_partial_words(), null: these are all keys of the sequence, and the result goes to `out`
  DecodeNext next;
};

struct DecodeVariant {
  const char* name;
  IsaSet needs;
  std::int64_t unit_keys;  ///< of a unit, at most
  std::size_t (*scratch_bytes)(const DecodeAttentionArgs& args);
  void (*run)(const DecodeAttentionArgs& args, const DecodeUnit& unit, void* scratch);
  /// From the partial results of `count` units, `stride` words apart, to `out`. Of `unit` batch and kv_head count. Overwrites some of them.
  void (*merge)(const DecodeAttentionArgs& args, const DecodeUnit& unit, float* partials, std::int64_t count, std::int64_t stride);
};

using DecodeVariants = Variants<DecodeVariant>;
DecodeVariants decode_attention_variants();

// Internal linkage, see packed.h.

[[maybe_unused]] static std::int64_t decode_queries(const DecodeAttentionArgs& args) { return args.heads / args.kv_heads * args.rows; }
/// Whole vectors of any instruction set.
[[maybe_unused]] static std::int64_t decode_padded_depth(const DecodeAttentionArgs& args) { return (args.depth + 15) / 16 * 16; }

/// For each query the largest score and the sum of weights, then for each the weighted sum.
[[maybe_unused]] static std::int64_t decode_partial_words(const DecodeAttentionArgs& args) {
  return decode_queries(args) * decode_padded_depth(args) + (2 * decode_queries(args) + 15) / 16 * 16;
}

/// Tokens that a row sees.
[[maybe_unused]] static std::int64_t decode_visible(const DecodeAttentionArgs& args, std::int64_t length, std::int64_t row) {
  const std::int64_t n = length - args.rows + row + 1;
  return !args.causal ? length : n < 0 ? 0 : n;
}

/// Element where a token of a sequence begins, head 0.
[[maybe_unused]] static std::int64_t kv_place(const KvCache& cache, const KvStrides& strides, std::int64_t batch, std::int64_t token) {
  if (cache.table == nullptr) return batch * strides.block + token * strides.row;
  return cache.table[batch * cache.table_stride + token / cache.block_rows] * strides.block + token % cache.block_rows * strides.row;
}

}  // namespace ipexrun::kernels
