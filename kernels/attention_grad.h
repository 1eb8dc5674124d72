// attention_grad: the gradients of attention.h with respect to Q, K and V, from that of its result, without the matrix of weights in
// memory.
//
// Method, in simd/attention_grad.cpp and amx/attention_grad.cpp: a worker takes a head of K and V with all heads of Q that share it.
// Weights of a block of keys and a block of rows are computed again, keys by rows, as e^(score - logsumexp), and meet the gradient at once:
// five products of blocks. fp32 is multiplied and added in fp32; bf16 in AMX tiles with fp32 sums, weights and their gradients rounded to
// bf16 as in stock, or widened to fp32 where there is no AMX. The truth is ref/attention_grad.cpp, in doubles. The result and logsumexp
// have to be what attention() gives. NaN go where arithmetic takes them, and what `causal` hides counts for nothing. The bits do not depend
// on the number of threads; more threads than batch * kv_heads find nothing to do. Thread rule: may be called concurrently. Any alignment
// of whole elements will do. Each call takes scratch (thread-local, bounded by scratch.h; 20 bytes for each element of Q of a head or so);
// when there is none it returns false and the result is undefined.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/attention.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

/// [batch, heads, rows, depth] to be written, with strides in elements; the depth is dense.
struct HeadsOut {
  void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
};

struct AttentionGradArgs {
  AttentionArgs forward;  ///< as attention() took it; its result and logsumexp, which is needed, are read here
  Heads grad_out;         ///< as the result, of the dtype of `forward`, as all gradients
  HeadsOut grad_q;        ///< must not overlap an input
  HeadsOut grad_k;        ///< [batch, kv_heads, keys, depth]: sums over the heads of Q that share them
  HeadsOut grad_v;
};

/// True when `isa` has a variant that is worth offering for `dtype`: not the reference.
bool attention_grad_supported(DType dtype, IsaSet isa);

/// Uses at most `isa` and falls back to slower variants down to the reference, so it is always right.
bool attention_grad(const AttentionGradArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant: "amx_bf16" (bf16 alone), "avx512", "avx2", "ref".
const char* attention_grad_variant(DType dtype, IsaSet isa);

}  // namespace ipexrun::kernels
