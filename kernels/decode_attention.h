// decode_attention: attention of the newest tokens of sequences over what a cache holds of their keys and values, contiguous or in pages.
//
// One to a few rows of Q a sequence, each sequence with a length of its own. Work is cut into units of one head of K and V and one stretch
// of 256 keys, whose partial results (largest score, sum, weighted sum) are merged in the order of the keys; within a unit each row of K
// and V is read once for all rows of Q that share it. What a sequence gets has the same bits for any number of threads and whatever else
// is in the batch. Method: fp32 products and sums over fp32 or bf16 that are widened on the way; exp as in normalize.h. The truth is
// ref/decode_attention.cpp, in doubles.
// A row of which nothing is visible becomes 0 with a logsumexp of 0. NaN go where arithmetic takes them; NaN in a row of V that `causal`
// hides from some of the new rows may reach these too. What lies behind a sequence's length is not read.
// Thread rule: may be called concurrently. Any alignment of whole elements will do. Each call takes scratch (thread-local, scratch.h) for
// the partial results: with 4 heads of Q to one of K and V 1/128 of the bytes of an fp32 cache, 1/64 of a bf16 one.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/attention.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

/// Strides in elements; the depth is dense.
struct KvStrides {
  std::int64_t block = 0;  ///< from page to page, or from sequence to sequence where there are no pages
  std::int64_t row = 0;    ///< from a token to the next of its block
  std::int64_t head = 0;
};

/// Keys and values of [blocks, block_rows, kv_heads, depth]. Without a table block b is sequence b.
struct KvCache {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::kF32;
  KvStrides k_strides;
  KvStrides v_strides;
  std::int64_t blocks = 0;
  std::int64_t block_rows = 0;          ///< tokens of a page, or the longest sequence
  const std::int32_t* table = nullptr;  ///< token t of sequence b is in page table[b * table_stride + t / block_rows]; null: no pages
  std::int64_t table_stride = 0;
  std::int64_t table_blocks = 0;  ///< entries of a sequence
};

/// Lengths of sequences, one of both.
struct KvLengths {
  const std::int32_t* of_32_bits = nullptr;
  const std::int64_t* of_64_bits = nullptr;
};

struct DecodeAttentionArgs {
  Heads q;                    ///< [batch, heads, rows, depth]
  DType dtype = DType::kF32;  ///< of q and out
  KvCache cache;
  KvLengths lengths;  ///< tokens in the cache, the new ones among them
  std::int64_t batch = 0;
  std::int64_t heads = 0;     ///< of q and out
  std::int64_t kv_heads = 0;  ///< a divisor of `heads`: that many neighbours of q share one
  std::int64_t rows = 1;      ///< new tokens: row r is token length - rows + r
  std::int64_t depth = 0;
  float scale = 1;
  bool causal = true;             ///< a row sees the tokens up to its own, else all
  const float* slopes = nullptr;  ///< ALiBi, one for each of `heads`: slope * (key's token - row's token) is added to a scaled score
  AttentionMask mask;             ///< over [batch, heads, rows, tokens], added too

  void* out = nullptr;  ///< [batch, heads, rows, depth], dense depth, must not overlap an input
  std::int64_t out_batch_stride = 0;
  std::int64_t out_head_stride = 0;
  std::int64_t out_row_stride = 0;
  float* logsumexp = nullptr;  ///< [batch, heads, rows] with strides, null = not wanted
  std::int64_t lse_batch_stride = 0;
  std::int64_t lse_head_stride = 0;
  std::int64_t lse_row_stride = 0;
};

struct KvAppendArgs {
  Heads k;  ///< [batch, kv_heads, rows, depth]
  Heads v;
  DType dtype = DType::kF32;  ///< of k and v; the cache may have the other one
  KvCache cache;
  KvLengths lengths;  ///< tokens in the cache, those to be written among them
  std::int64_t batch = 0;
  std::int64_t kv_heads = 0;
  std::int64_t rows = 1;  ///< row r becomes token length - rows + r
  std::int64_t depth = 0;
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool decode_attention_supported(IsaSet isa);

/// Uses at most `isa`; falls back to slower variants down to the reference, so it is always right. False, and nothing written, when a
/// length is negative or beyond what the cache has, an entry of the table that is wanted is no page, or memory for scratch is short.
bool decode_attention(const DecodeAttentionArgs& args, const Parallel& parallel, IsaSet isa);

/// Writes new rows of K and V into the cache, rounded where its dtype is the narrower one. False, and nothing written, as above or when a
/// length is below `rows`.
bool kv_append(const KvAppendArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that decode_attention() uses: "avx512", "avx2", "ref".
const char* decode_attention_variant(IsaSet isa);

}  // namespace ipexrun::kernels
