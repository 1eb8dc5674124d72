// The kernels as a C library for bench/*_vs_torch.py; no product links it. One C function a kernel, over one pool of
// threads: long, as there are many kernels.
#include <dlfcn.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "configs/base/isa.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/attention_grad.h"
#include "kernels/batched.h"
#include "kernels/conv.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/decode_attention.h"
#include "kernels/dropout.h"
#include "kernels/gated.h"
#include "kernels/linear.h"
#include "kernels/linear_f32.h"
#include "kernels/linear_int4.h"
#include "kernels/linear_int8.h"
#include "kernels/linear_s8.h"
#include "kernels/normalize.h"
#include "kernels/reorder.h"
#include "kernels/rotary.h"
#include "kernels/winograd.h"

namespace {

using ipexrun::kernels::DType;

/// The threads that torch itself uses: libgomp of the process, found by name. A pool of our own would add waking its workers to our side
/// alone, where stock's spin between calls.
struct Pool {
  void (*parallel)(void (*)(void*), void*, unsigned threads, unsigned flags);
  int (*thread_num)();
  int threads;

  struct Call {
    const Pool* pool;
    int n;
    void (*fn)(void* arg, int i);
    void* arg;
  };

  static void run(void* context, int n, void (*fn)(void* arg, int i), void* arg) {
    const auto* pool = static_cast<const Pool*>(context);
    Call call{pool, n, fn, arg};
    pool->parallel(
        [](void* data) {
          const auto* own = static_cast<const Call*>(data);
          for (int i = own->pool->thread_num(); i < own->n; i += own->pool->threads) own->fn(own->arg, i);
        },
        &call, static_cast<unsigned>(pool->threads), 0);
  }
};

ipexrun::IsaSet isa_of(const char* level) {
  const ipexrun::IsaSet isa = ipexrun::isa_of_process();
  return level != nullptr ? isa & ipexrun::level_from_name(level).value_or(0) : isa;
}

DType dtype_of(int bf16) { return bf16 != 0 ? DType::kBf16 : DType::kF32; }

ipexrun::kernels::Parallel parallel_of(int threads, void* pool) {
  return {threads, threads > 1 && pool != nullptr ? &Pool::run : nullptr, pool};
}

constexpr std::int64_t kReadAtOnce = 512;  // bytes

#if defined(__x86_64__)
/// Eight loads a turn and nothing else that takes time: what memory gives to one thread that goes through it once.
__attribute__((target("avx512f"))) std::int64_t sum_avx512(const char* from, std::int64_t bytes) {
  __m512i sums[8] = {};
  for (std::int64_t at = 0; at + kReadAtOnce <= bytes; at += kReadAtOnce) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) sums[i] = _mm512_add_epi64(sums[i], _mm512_loadu_si512(from + at + i * 64));
  }
  __m512i sum = sums[0];
  for (int i = 1; i < 8; ++i) sum = _mm512_add_epi64(sum, sums[i]);
  std::int64_t lanes[8];
  _mm512_storeu_si512(lanes, sum);
  std::int64_t total = 0;
  for (const std::int64_t lane : lanes) total += lane;
  return total;
}
#endif

std::int64_t sum_of(const char* from, std::int64_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return sum_avx512(from, bytes);
#endif
  std::int64_t sum = 0;
  for (std::int64_t at = 0; at + 8 <= bytes; at += 8) {
    std::int64_t value;
    std::memcpy(&value, from + at, 8);
    sum += value;
  }
  return sum;
}

}  // namespace

#define IPEXRUN_BENCH_EXPORT extern "C" __attribute__((visibility("default")))

IPEXRUN_BENCH_EXPORT std::size_t ipexrun_bench_packed_bytes(std::int64_t k, std::int64_t n) {
  return ipexrun::kernels::packed_b_bytes(k, n);
}

/// A row-major weight [n, k] in fp32, packed for x * w.t().
IPEXRUN_BENCH_EXPORT void ipexrun_bench_pack(const float* weight, std::int64_t k, std::int64_t n, void* to) {
  ipexrun::kernels::pack_b({weight, DType::kF32, k, n, 1, k}, to, {}, ipexrun::isa_of_process());
}

/// Ends the program where no libgomp is loaded for all to see (torch has one): on one thread ours would lose without a word.
IPEXRUN_BENCH_EXPORT void* ipexrun_bench_pool(int threads) {
  Pool pool{};
  pool.parallel = reinterpret_cast<decltype(pool.parallel)>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  pool.thread_num = reinterpret_cast<decltype(pool.thread_num)>(dlsym(RTLD_DEFAULT, "omp_get_thread_num"));
  pool.threads = threads;
  if (pool.parallel == nullptr || pool.thread_num == nullptr) {
    std::fprintf(stderr, "no libgomp in this process: import torch before using threads\n");
    std::exit(2);
  }
  return new Pool(pool);
}
IPEXRUN_BENCH_EXPORT void ipexrun_bench_pool_delete(void* pool) { delete static_cast<Pool*>(pool); }

/// Dense A and C; `level` is a level name of configs/base/isa.h or null for what this process may use. `unary` counts as Unary does;
/// `addend`, of C's shape and dtype, is added after it, null = none. 1 on success.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_linear(const void* a, int a_bf16, const void* packed, const float* bias, int unary,
                                              const void* addend, void* c, int c_bf16, std::int64_t m, std::int64_t n, std::int64_t k,
                                              int threads, void* pool, const char* level) {
  ipexrun::kernels::LinearArgs args;
  args.a = a;
  args.a_dtype = dtype_of(a_bf16);
  args.lda = k;
  args.packed_b = packed;
  args.bias = bias;
  args.c = c;
  args.c_dtype = dtype_of(c_bf16);
  args.ldc = n;
  args.m = m;
  args.n = n;
  args.k = k;
  args.epilogue.unary = static_cast<ipexrun::kernels::Unary>(unary);
  if (addend != nullptr) args.epilogue.binary = ipexrun::kernels::Binary::kAdd;
  args.epilogue.other = addend;
  args.epilogue.other_dtype = args.c_dtype;
  args.epilogue.ld_other = n;
  return ipexrun::kernels::linear_bf16(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

/// [N][C][P] to [N][P][C], or back when `to_planar` is not 0; dtypes as above.
IPEXRUN_BENCH_EXPORT void ipexrun_bench_reorder(const void* from, int from_bf16, void* to, int to_bf16, std::int64_t images,
                                                std::int64_t channels, std::int64_t pixels, int to_planar, int threads, void* pool,
                                                const char* level) {
  const ipexrun::kernels::ReorderArgs args{
      from, from_bf16 != 0 ? DType::kBf16 : DType::kF32, to, to_bf16 != 0 ? DType::kBf16 : DType::kF32, images, channels, pixels};
  (to_planar != 0 ? ipexrun::kernels::to_planar : ipexrun::kernels::to_channels_last)(args, parallel_of(threads, pool), isa_of(level));
}

/// `kind` counts as Activation does.
IPEXRUN_BENCH_EXPORT void ipexrun_bench_activation(int kind, int bf16, const void* from, void* to, std::int64_t n, int threads, void* pool,
                                                   const char* level) {
  const ipexrun::kernels::ActivationArgs args{static_cast<ipexrun::kernels::Activation>(kind), bf16 != 0 ? DType::kBf16 : DType::kF32, from,
                                              to, n};
  ipexrun::kernels::activation(args, parallel_of(threads, pool), isa_of(level));
}

/// act(a) * b, all [rows, columns]; strides are of a, b and to.
IPEXRUN_BENCH_EXPORT void ipexrun_bench_gated(int kind, int bf16, const void* a, const void* b, void* to, std::int64_t rows,
                                              std::int64_t columns, const std::int64_t* strides, int threads, void* pool,
                                              const char* level) {
  const ipexrun::kernels::GatedArgs args{
      static_cast<ipexrun::kernels::Activation>(kind), dtype_of(bf16), a, b, to, rows, columns, strides[0], strides[1], strides[2]};
  ipexrun::kernels::gated(args, parallel_of(threads, pool), isa_of(level));
}

IPEXRUN_BENCH_EXPORT int ipexrun_bench_softmax(int bf16, const void* from, void* to, std::int64_t rows, std::int64_t columns, int threads,
                                               void* pool, const char* level) {
  const ipexrun::kernels::SoftmaxArgs args{from, to, bf16 != 0 ? DType::kBf16 : DType::kF32, rows, columns};
  return ipexrun::kernels::softmax(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

/// Layer norm, or rms norm when `mean` is null; all in one dtype.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_norm(int bf16, const void* from, void* to, std::int64_t rows, std::int64_t columns,
                                            const void* weight, const void* bias, double eps, void* mean, void* rstd, int threads,
                                            void* pool, const char* level) {
  const DType dtype = bf16 != 0 ? DType::kBf16 : DType::kF32;
  const ipexrun::kernels::NormArgs args{from, to, dtype, rows, columns, weight, bias, dtype, eps, mean, rstd, dtype};
  return (mean != nullptr ? ipexrun::kernels::layer_norm : ipexrun::kernels::rms_norm)(args, parallel_of(threads, pool), isa_of(level)) ? 1
                                                                                                                                        : 0;
}

/// The norm of from + residual; `sum` null = not wanted. Layer norm where `centered`; all in one dtype.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_residual_norm(int centered, int bf16, const void* from, const void* residual, void* to, void* sum,
                                                     std::int64_t rows, std::int64_t columns, const void* weight, const void* bias,
                                                     double eps, int threads, void* pool, const char* level) {
  const DType dtype = dtype_of(bf16);
  ipexrun::kernels::NormArgs args{from, to, dtype, rows, columns, weight, bias, dtype, eps};
  args.residual = residual;
  args.sum = sum;
  return (centered != 0 ? ipexrun::kernels::layer_norm : ipexrun::kernels::rms_norm)(args, parallel_of(threads, pool), isa_of(level)) ? 1
                                                                                                                                      : 0;
}

/// q, k, v, out as {batch, head, row} strides in elements, mask (of fp32 or of the dtype of q, null = none) as {batch, head, row, key};
/// sizes are {batch, heads, rows, keys, depth, heads of k and v}; logsumexp is dense [batch, rows, heads]. `bf16`: 0 = fp32, 1 = bf16,
/// 2 = fp32 with bf16 inside.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_attention(int bf16, const std::int64_t* sizes, const void* q, const std::int64_t* qs, const void* k,
                                                 const std::int64_t* ks, const void* v, const std::int64_t* vs, const void* mask,
                                                 int mask_bf16, const std::int64_t* ms, float scale, int causal, void* out,
                                                 const std::int64_t* os, float* logsumexp, int threads, void* pool, const char* level) {
  ipexrun::kernels::AttentionArgs args;
  args.q = {q, qs[0], qs[1], qs[2]};
  args.k = {k, ks[0], ks[1], ks[2]};
  args.v = {v, vs[0], vs[1], vs[2]};
  args.dtype = bf16 == 1 ? DType::kBf16 : DType::kF32;
  args.bf16_inside = bf16 == 2;
  args.batch = sizes[0];
  args.heads = sizes[1];
  args.rows = sizes[2];
  args.keys = sizes[3];
  args.depth = sizes[4];
  args.kv_heads = sizes[5];
  args.scale = scale;
  args.causal = causal != 0;
  if (mask != nullptr) args.mask = {mask, mask_bf16 != 0 ? DType::kBf16 : DType::kF32, ms[0], ms[1], ms[2], ms[3]};
  args.out = out;
  args.out_batch_stride = os[0];
  args.out_head_stride = os[1];
  args.out_row_stride = os[2];
  args.logsumexp = logsumexp;
  args.lse_batch_stride = args.rows * args.heads;
  args.lse_head_stride = 1;
  args.lse_row_stride = args.heads;
  return ipexrun::kernels::attention(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

/// `heads` are {q, k, v, out, grad_out, grad_q, grad_k, grad_v}, `strides` their {batch, head, row}, 24 numbers; the rest as
/// ipexrun_bench_attention takes it.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_attention_grad(int bf16, const std::int64_t* sizes, void* const* heads, const std::int64_t* strides,
                                                      const void* mask, int mask_bf16, const std::int64_t* ms, float scale, int causal,
                                                      float* logsumexp, int threads, void* pool, const char* level) {
  ipexrun::kernels::AttentionGradArgs args;
  ipexrun::kernels::AttentionArgs& f = args.forward;
  const auto in = [&](int i) { return ipexrun::kernels::Heads{heads[i], strides[3 * i], strides[3 * i + 1], strides[3 * i + 2]}; };
  const auto to = [&](int i) { return ipexrun::kernels::HeadsOut{heads[i], strides[3 * i], strides[3 * i + 1], strides[3 * i + 2]}; };
  f.q = in(0);
  f.k = in(1);
  f.v = in(2);
  f.out = heads[3];
  f.out_batch_stride = strides[9];
  f.out_head_stride = strides[10];
  f.out_row_stride = strides[11];
  args.grad_out = in(4);
  args.grad_q = to(5);
  args.grad_k = to(6);
  args.grad_v = to(7);
  f.dtype = dtype_of(bf16);
  f.batch = sizes[0];
  f.heads = sizes[1];
  f.rows = sizes[2];
  f.keys = sizes[3];
  f.depth = sizes[4];
  f.kv_heads = sizes[5];
  f.scale = scale;
  f.causal = causal != 0;
  if (mask != nullptr) f.mask = {mask, dtype_of(mask_bf16), ms[0], ms[1], ms[2], ms[3]};
  f.logsumexp = logsumexp;
  f.lse_batch_stride = f.rows * f.heads;
  f.lse_head_stride = 1;
  f.lse_row_stride = f.heads;
  return ipexrun::kernels::attention_grad(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

/// A cache of [blocks, block_rows, kv_heads, depth], dense; sizes are {batch, heads, rows, depth, kv_heads, blocks, block_rows, table's
/// entries of a sequence}; q and out dense [batch, rows, heads, depth]. `table` null: a block for each sequence.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_decode(int bf16, int cache_bf16, const std::int64_t* sizes, const void* q, void* k, void* v,
                                              const std::int32_t* table, const std::int32_t* lengths, float scale, void* out, int threads,
                                              void* pool, const char* level) {
  ipexrun::kernels::DecodeAttentionArgs args;
  args.dtype = dtype_of(bf16);
  args.batch = sizes[0];
  args.heads = sizes[1];
  args.rows = sizes[2];
  args.depth = sizes[3];
  args.kv_heads = sizes[4];
  args.q = {q, args.rows * args.heads * args.depth, args.depth, args.heads * args.depth};
  const std::int64_t row = args.kv_heads * args.depth;
  const ipexrun::kernels::KvStrides strides{sizes[6] * row, row, args.depth};
  args.cache = {k, v, dtype_of(cache_bf16), strides, strides, sizes[5], sizes[6], table, sizes[7], sizes[7]};
  args.lengths.of_32_bits = lengths;
  args.scale = scale;
  args.out = out;
  args.out_batch_stride = args.q.batch_stride;
  args.out_head_stride = args.q.head_stride;
  args.out_row_stride = args.q.row_stride;
  return ipexrun::kernels::decode_attention(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

/// sizes are {batch, positions, heads, depth, rotated, pairs, inverse}, strides {batch, position, head} of from and of to in elements, then
/// {batch, position} of the tables.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_rotary(int bf16, const void* from, void* to, const std::int64_t* sizes, const std::int64_t* strides,
                                              const void* cos, const void* sin, int table_bf16, int threads, void* pool,
                                              const char* level) {
  ipexrun::kernels::RotaryArgs args;
  args.from = from;
  args.to = to;
  args.dtype = dtype_of(bf16);
  args.batch = sizes[0];
  args.positions = sizes[1];
  args.heads = sizes[2];
  args.depth = sizes[3];
  args.rotated = sizes[4];
  args.pairs = static_cast<ipexrun::kernels::RotaryPairs>(sizes[5]);
  args.inverse = sizes[6] != 0;
  args.from_strides = {strides[0], strides[1], strides[2]};
  args.to_strides = {strides[3], strides[4], strides[5]};
  args.cos = cos;
  args.sin = sin;
  args.table_dtype = dtype_of(table_bf16);
  args.table_batch_stride = strides[6];
  args.table_position_stride = strides[7];
  return ipexrun::kernels::rotary(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

/// The mean loss in fp32, and, where `grad` is not null, its gradient in the dtype of the logits. All dense.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_cross_entropy(int bf16, const void* logits, const std::int64_t* targets, std::int64_t rows,
                                                     std::int64_t columns, double smoothing, float* loss, float* lse, void* grad,
                                                     int threads, void* pool, const char* level) {
  ipexrun::kernels::CrossEntropyArgs args;
  args.logits = logits;
  args.dtype = dtype_of(bf16);
  args.rows = rows;
  args.columns = args.row_stride = columns;
  args.targets = targets;
  args.smoothing = smoothing;
  args.loss = loss;
  args.lse = lse;
  double divisor = 0;
  args.divisor = &divisor;
  if (!ipexrun::kernels::cross_entropy(args, parallel_of(threads, pool), isa_of(level))) return 0;
  if (grad == nullptr) return 1;
  constexpr float kOne = 1;
  ipexrun::kernels::CrossEntropyGradArgs back;
  static_cast<ipexrun::kernels::CrossEntropyRows&>(back) = args;
  back.lse = lse;
  back.loss_grad = &kOne;
  back.divisor = divisor;
  back.grad = grad;
  back.grad_stride = columns;
  return ipexrun::kernels::cross_entropy_grad(back, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

IPEXRUN_BENCH_EXPORT int ipexrun_bench_dropout(int bf16, const void* from, void* to, std::uint8_t* mask, std::int64_t n, double p,
                                               std::uint64_t seed, std::uint64_t offset, int threads, void* pool, const char* level) {
  const ipexrun::kernels::DropoutArgs args{from, to, mask, dtype_of(bf16), n, p, seed, offset};
  return ipexrun::kernels::dropout(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

IPEXRUN_BENCH_EXPORT int ipexrun_bench_dropout_grad(int bf16, const void* from, void* to, const std::uint8_t* mask, std::int64_t n,
                                                    double p, int threads, void* pool, const char* level) {
  const ipexrun::kernels::DropoutGradArgs args{from, to, mask, dtype_of(bf16), n, p};
  return ipexrun::kernels::dropout_grad(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

/// Formats count as Format does.
IPEXRUN_BENCH_EXPORT void ipexrun_bench_convert(const void* from, int from_format, void* to, int to_format, std::int64_t n, int threads,
                                                void* pool, const char* level) {
  using ipexrun::kernels::Format;
  ipexrun::kernels::convert({from, static_cast<Format>(from_format), to, static_cast<Format>(to_format), n}, parallel_of(threads, pool),
                            isa_of(level));
}

/// A contiguous weight [out_channels, in_channels / groups, kernel...] of fp32 or bf16, packed as bf16 where `packed_bf16`; `sizes`:
/// in_channels, out_channels, groups and the three sizes of the kernel. Returns the bytes of the pack, and writes it where `to` is not
/// null.
IPEXRUN_BENCH_EXPORT std::size_t ipexrun_bench_pack_conv(int bf16, int packed_bf16, const void* data, const std::int64_t* sizes, void* to) {
  ipexrun::kernels::ConvWeight weight;
  weight.data = data;
  weight.dtype = dtype_of(bf16);
  weight.packed_dtype = dtype_of(packed_bf16);
  weight.in_channels = sizes[0];
  weight.out_channels = sizes[1];
  weight.groups = sizes[2];
  std::int64_t stride = 1;
  for (int i = ipexrun::kernels::kConvAxes - 1; i >= 0; --i) {
    weight.kernel[i] = sizes[3 + i];
    weight.strides[i] = stride;
    stride *= sizes[3 + i];
  }
  weight.in_stride = stride;
  weight.out_stride = stride * sizes[0] / sizes[2];
  if (to != nullptr) ipexrun::kernels::pack_conv(weight, to);
  return ipexrun::kernels::conv_packed_bytes(weight);
}

/// Dense channels-last images, all in one type but the pack. `sizes`: images, in_channels, out_channels, groups; then in, out, kernel,
/// stride, pad and dilation of each of three dimensions; the activation as ConvActivation counts; whether the residual comes after it. 1 on
/// success.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_conv(int bf16, int packed_bf16, const void* from, const void* packed, const void* bias,
                                            const void* residual, void* to, const std::int64_t* sizes, double low, double high, int threads,
                                            void* pool, const char* level) {
  ipexrun::kernels::ConvArgs args;
  args.from = from;
  args.packed = packed;
  args.bias = bias;
  args.residual = residual;
  args.to = to;
  args.from_dtype = args.to_dtype = args.bias_dtype = dtype_of(bf16);
  args.packed_dtype = dtype_of(packed_bf16);
  args.images = sizes[0];
  args.in_channels = sizes[1];
  args.out_channels = sizes[2];
  args.groups = sizes[3];
  std::int64_t in[ipexrun::kernels::kConvAxes];
  std::int64_t out[ipexrun::kernels::kConvAxes];
  for (int i = 0; i < ipexrun::kernels::kConvAxes; ++i) {
    const std::int64_t* axis = sizes + 4 + 6 * i;
    args.axes[i] = {axis[0], axis[1], axis[2], axis[3], axis[4], axis[5]};
    in[i] = axis[0];
    out[i] = axis[1];
  }
  args.from_strides = ipexrun::kernels::dense_strides(args.in_channels, in);
  args.to_strides = args.residual_strides = ipexrun::kernels::dense_strides(args.out_channels, out);
  args.activation = static_cast<ipexrun::kernels::ConvActivation>(sizes[22]);
  args.residual_after = sizes[23] != 0;
  args.low = static_cast<float>(low);
  args.high = static_cast<float>(high);
  return ipexrun::kernels::convolve(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

IPEXRUN_BENCH_EXPORT std::size_t ipexrun_bench_f32_bytes(std::int64_t k, std::int64_t n, int half) {
  return ipexrun::kernels::packed_f32_bytes(k, n, half != 0);
}

/// A row-major weight [n, k] in fp32 or fp16, packed for x * w.t().
IPEXRUN_BENCH_EXPORT void ipexrun_bench_f32_pack(const void* weight, int half, std::int64_t k, std::int64_t n, void* to) {
  ipexrun::kernels::pack_f32({weight, half != 0, k, n, 1, k}, to, {}, isa_of(nullptr));
}

/// Dense A and C, all in fp32 or fp16. 1 on success.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_f32(int half, const void* a, const void* packed, const void* bias, void* c, std::int64_t m,
                                           std::int64_t n, std::int64_t k, int threads, void* pool, const char* level) {
  const ipexrun::kernels::LinearF32Args args{half != 0, false, a, k, packed, bias, c, n, m, n, k, nullptr, {}};
  return ipexrun::kernels::linear_f32(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

/// 3 x 3 pixels, padding 1, of dense channels-last images, by tiles of `tiles` results (winograd.h) or, where that is 0, by windows
/// (linear.h, linear_f32.h): a channels-last weight [n, 3, 3, channels] of fp32, packed; images and results in fp32, or with bf16 inside
/// all in bf16. 0 where the sizes are not supported.
IPEXRUN_BENCH_EXPORT std::size_t ipexrun_bench_3x3_bytes(int tiles, int bf16, std::int64_t channels, std::int64_t n) {
  using namespace ipexrun::kernels;
  if (tiles != 0)
    return winograd_supported(channels, n, bf16 != 0, tiles, isa_of(nullptr)) ? packed_winograd_bytes(channels, n, bf16 != 0, tiles) : 0;
  return bf16 != 0 ? packed_b_bytes(9 * channels, n) : packed_f32_bytes(9 * channels, n, false);
}

IPEXRUN_BENCH_EXPORT void ipexrun_bench_3x3_pack(int tiles, int bf16, const float* weight, std::int64_t channels, std::int64_t n,
                                                 void* to) {
  using namespace ipexrun::kernels;
  const std::int64_t k = 9 * channels;
  const std::int64_t strides[4] = {k, 1, 3 * channels, channels};
  if (tiles != 0) {
    pack_winograd(weight, DType::kF32, strides, channels, n, bf16 != 0, tiles, to, {});
  } else if (bf16 != 0) {
    pack_b({weight, DType::kF32, k, n, 1, k}, to, {}, isa_of(nullptr));
  } else {
    pack_f32({weight, false, k, n, 1, k}, to, {}, isa_of(nullptr));
  }
}

/// With a bias in fp32 and relu. 1 on success.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_3x3(int tiles, int bf16, const void* from, const void* packed, const float* bias, void* to,
                                           std::int64_t images, std::int64_t channels, std::int64_t n, std::int64_t height,
                                           std::int64_t width, int threads, void* pool, const char* level) {
  using namespace ipexrun::kernels;
  const DType dtype = dtype_of(bf16);
  Epilogue relu;
  relu.unary = Unary::kRelu;
  if (tiles != 0) {
    WinogradArgs args;
    args.bf16 = bf16 != 0;
    args.tile = tiles;
    args.from = from;
    args.from_dtype = args.to_dtype = dtype;
    args.images = images;
    args.in[0] = args.out[0] = height;
    args.in[1] = args.out[1] = width;
    args.padding[0] = args.padding[1] = 1;
    args.pixel_stride = args.channels = channels;
    args.row_stride = channels * width;
    args.image_stride = args.row_stride * height;
    args.packed = packed;
    args.bias = bias;
    args.to = to;
    args.n = args.ld_to = n;
    args.epilogue = relu;
    return winograd(args, parallel_of(threads, pool), isa_of(level)) == WinogradResult::kDone ? 1 : 0;
  }
  ImageWindows windows;
  windows.channels = windows.pixel_stride = channels;
  windows.in[0] = windows.out[0] = height;
  windows.in[1] = windows.out[1] = width;
  windows.kernel[0] = windows.kernel[1] = 3;
  windows.padding[0] = windows.padding[1] = 1;
  windows.row_stride = channels * width;
  windows.image_stride = windows.row_stride * height;
  const auto fill = [&](auto* args) {
    args->a = from;
    args->windows = &windows;
    args->packed_b = packed;
    args->bias = bias;
    args->c = to;
    args->m = images * height * width;
    args->n = args->ldc = n;
    args->k = args->lda = 9 * channels;
    args->epilogue = relu;
  };
  if (bf16 != 0) {
    LinearArgs args;
    fill(&args);
    args.a_dtype = args.c_dtype = dtype;
    return linear_bf16(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
  }
  LinearF32Args args;
  fill(&args);
  return linear_f32(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

IPEXRUN_BENCH_EXPORT std::size_t ipexrun_bench_s8_bytes(std::int64_t k, std::int64_t n) { return ipexrun::kernels::packed_s8_bytes(k, n); }

/// A row-major weight [n, k], packed for x * w.t().
IPEXRUN_BENCH_EXPORT void ipexrun_bench_s8_pack(const std::int8_t* weight, std::int64_t k, std::int64_t n, void* to) {
  ipexrun::kernels::pack_s8({weight, k, n, 1, k}, to, {});
}

/// Dense A and C; `c_type` counts as LinearS8Output does; scales: one of A, n of B. 1 on success.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_s8(const void* a, int a_signed, int a_zero, const float* a_scale, const void* packed,
                                          const float* b_scale, const float* bias, int activation, void* c, int c_type,
                                          float c_inverse_scale, int c_zero, std::int64_t m, std::int64_t n, std::int64_t k, int threads,
                                          void* pool, const char* level) {
  ipexrun::kernels::LinearS8Args args;
  args.a = a;
  args.a_signed = a_signed != 0;
  args.lda = args.k = k;
  args.a_zero = a_zero;
  args.a_scale = a_scale;
  args.packed_b = packed;
  args.b_scale = b_scale;
  args.b_scale_per_column = true;
  args.bias = bias;
  args.activation = static_cast<ipexrun::kernels::LinearS8Activation>(activation);
  args.c = c;
  args.c_type = static_cast<ipexrun::kernels::LinearS8Output>(c_type);
  args.ldc = args.n = n;
  args.c_inverse_scale = c_inverse_scale;
  args.c_zero = c_zero;
  args.m = m;
  return ipexrun::kernels::linear_s8(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

/// `sizes`: batch, M, N, K, and then the strides of a, b and c: batch, row, column of each. Dense `out`; `c` null = none. 1 on success,
/// 2 where it would not be offered.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_batched(const void* a, const void* b, const void* c, void* out, int bf16, int bf16_inside,
                                               const std::int64_t* sizes, float alpha, float beta, int threads, void* pool,
                                               const char* level) {
  ipexrun::kernels::BatchedArgs args;
  const DType dtype = dtype_of(bf16);
  args.a = {a, dtype, sizes[4], sizes[5], sizes[6]};
  args.b = {b, dtype, sizes[7], sizes[8], sizes[9]};
  args.c = {c, dtype, sizes[10], sizes[11], sizes[12]};
  args.out = out;
  args.out_dtype = dtype;
  args.batch = sizes[0];
  args.m = sizes[1];
  args.n = args.ldo = sizes[2];
  args.k = sizes[3];
  args.out_batch = args.m * args.n;
  args.alpha = alpha;
  args.beta = beta;
  args.bf16_inside = bf16_inside != 0;
  if (!ipexrun::kernels::batched(args, parallel_of(threads, pool), isa_of(level))) return 0;
  return ipexrun::kernels::batched_supported(args, isa_of(level)) ? 1 : 2;
}

/// Reads `bytes` once, each thread an equal part, and returns their sum as numbers of 64 bits: the least time that a product of few rows
/// with so large a weight can take.
IPEXRUN_BENCH_EXPORT std::int64_t ipexrun_bench_read(const char* from, std::int64_t bytes, int threads, void* pool) {
  struct Job {
    const char* from;
    std::int64_t pieces;
    int parts;
    std::int64_t sums[64 * 8];  // a line each
  } job{from, bytes / kReadAtOnce, threads < 64 ? threads : 64, {}};
  parallel_of(job.parts, pool)(
      job.parts,
      [](void* arg, int i) {
        auto* own = static_cast<Job*>(arg);
        const std::int64_t begin = own->pieces * i / own->parts;
        own->sums[i * 8] = sum_of(own->from + begin * kReadAtOnce, (own->pieces * (i + 1) / own->parts - begin) * kReadAtOnce);
      },
      &job);
  std::int64_t sum = 0;
  for (int i = 0; i < job.parts; ++i) sum += job.sums[i * 8];
  return sum;
}

/// Dense A [m, k], B [n, k] and C; fp32 or bf16 throughout. 1 on success.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_weight_int8(const void* a, int bf16, const std::int8_t* b, const void* scales, void* c,
                                                   std::int64_t m, std::int64_t n, std::int64_t k, int threads, void* pool,
                                                   const char* level) {
  const DType dtype = dtype_of(bf16);
  const ipexrun::kernels::LinearInt8Args args{a, dtype, k, b, k, scales, dtype, c, dtype, n, m, n, k};
  return ipexrun::kernels::linear_int8(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}

/// Dense A and C, B as stock packs it, scales and zeros [k / group, n, 2]. 1 on success.
IPEXRUN_BENCH_EXPORT int ipexrun_bench_weight_int4(const std::uint16_t* a, const std::uint8_t* b, const std::uint16_t* pairs,
                                                   std::uint16_t* c, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t group,
                                                   int threads, void* pool, const char* level) {
  const ipexrun::kernels::LinearInt4Args args{a, k, b, pairs, c, n, m, n, k, group};
  return ipexrun::kernels::linear_int4(args, parallel_of(threads, pool), isa_of(level)) ? 1 : 0;
}
