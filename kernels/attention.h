// attention: softmax(Q K^T * scale + mask) V of every head, fp32 or bf16 on all sides, without the matrix of scores in memory.
//
// Method, in simd/attention.cpp and amx/attention.cpp: a worker takes blocks of rows of Q; K (transposed) and V of a head are packed once
// and walked in blocks of keys with a running maximum and sum for each row (online softmax). fp32 is multiplied and added in fp32. bf16 is
// multiplied in pairs with fp32 sums where the CPU does that natively (AMX, AVX512-BF16), the softmax weights then being rounded to bf16 as
// in stock; elsewhere it is widened to fp32. Few rows of Q (decoding) walk K and V where they lie. exp as in normalize.h. The truth is
// ref/attention.cpp, in doubles.
// With bf16_inside, AMX multiplies fp32 operands in bf16: Q, K and V are rounded as they are packed, softmax and result stay fp32. The
// result is within about 4e-3 of its size whatever the size of the scores: where these are so large that the rounding of Q and K would
// count, both are split into two bf16 parts for their product; where that would not do either (scores in the hundreds) the call is
// refused. Few rows of Q stay in fp32.
// A row of which nothing is visible (all keys masked with -inf) becomes 0 with a logsumexp of 0, as in stock. NaN go where arithmetic takes
// them. Of a key that `causal` hides a NaN in V may reach rows up to 31 places before it (0 * NaN in a tile of rows); in stock it reaches
// the whole block of rows.
// A row's bits do not depend on the number of threads.
// Thread rule: may be called concurrently. Any alignment of whole elements will do. Each call takes scratch (thread-local, bounded by
// scratch.h); when there is none, or bf16_inside would cost too many digits, it returns false and the result is undefined.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

/// [batch, heads, rows, depth] with strides in elements; the depth is dense.
struct Heads {
  const void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
};

/// Added to the scores of [batch, heads, rows, keys]. Strides in elements, 0 repeats; those of keys are 0 or 1.
struct AttentionMask {
  const void* data = nullptr;  ///< null = none
  DType dtype = DType::kF32;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t key_stride = 0;
};

struct AttentionArgs {
  Heads q;
  Heads k;
  Heads v;
  DType dtype = DType::kF32;  ///< of q, k, v and out
  bool bf16_inside = false;   ///< fp32 operands may be rounded for the products; see attention_bf16_inside
  std::int64_t batch = 0;
  std::int64_t heads = 0;     ///< of q and out
  std::int64_t kv_heads = 0;  ///< of k and v, a divisor of `heads`: that many neighbours of q share one
  std::int64_t rows = 0;
  std::int64_t keys = 0;
  std::int64_t depth = 0;
  float scale = 1;
  bool causal = false;  ///< row i sees keys 0 .. i
  AttentionMask mask;

  void* out = nullptr;  ///< [batch, heads, rows, depth], dense depth, must not overlap an input
  std::int64_t out_batch_stride = 0;
  std::int64_t out_head_stride = 0;
  std::int64_t out_row_stride = 0;
  float* logsumexp = nullptr;  ///< [batch, heads, rows] with strides, null = not wanted
  std::int64_t lse_batch_stride = 0;
  std::int64_t lse_head_stride = 0;
  std::int64_t lse_row_stride = 0;
};

/// True when `isa` has a variant that is worth offering for `dtype`: not the reference.
bool attention_supported(DType dtype, IsaSet isa);

/// True when `bf16_inside` makes a difference: fp32 operands, a variant that rounds them, rows enough for it. Pointers are not read.
bool attention_bf16_inside(const AttentionArgs& args, IsaSet isa);

/// Uses at most `isa` and falls back to slower variants down to the reference, so it is always right. False: see above.
bool attention(const AttentionArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant: "amx_bf16" (bf16 alone), "avx512_bf16" (too), "avx512", "avx2", "ref".
const char* attention_variant(DType dtype, IsaSet isa);

}  // namespace ipexrun::kernels
