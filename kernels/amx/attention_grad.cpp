// attention_grad of bf16 on AMX, a head of K and V at a time.
//
// Scores are made keys by rows, 32 by 32: K Q^T, and V times the gradient alike. Their weights and gradients, rounded to bf16, are then the
// first factor of the gradients of V and K, which are summed over the rows, and as pairs of keys the second one of that of Q, which is
// summed over the keys and stays transposed until the head is done. Q and the gradient of the result are packed once a head, for both uses.
#include "kernels/amx/attention_grad.h"

#include <immintrin.h>

#include "kernels/simd/floats_avx512.h"
#include "kernels/simd/halves_avx512.h"

namespace ipexrun::kernels::amx {
namespace {
using avx512::Floats;
using avx512::Halves;
using avx512::Lanes;
}  // namespace
}  // namespace ipexrun::kernels::amx
// In this order: each needs the ones before it.
#include "kernels/simd/attention_load.h"
#include "kernels/simd/exp2.h"
//
#include "kernels/simd/attention_weigh.h"
//
#include "kernels/amx/attention_tiles.h"
#include "kernels/simd/attention_grad_weigh.h"

namespace ipexrun::kernels::amx {
namespace {

using Element = std::uint16_t;

constexpr std::int64_t kKeys = 128;                 ///< of a block, a multiple of kStep
constexpr std::int64_t kRows = 128;                 ///< of Q of a block, likewise
constexpr std::int64_t kRowsLine = kRows * 2 + 64;  ///< bytes of a key's weights for a block of rows
constexpr std::int64_t kSquare = kStep * kStep;     ///< scores that are weighed together
constexpr std::int64_t kSquareLine = kStep * 4;     ///< bytes

struct Sizes {
  std::int64_t steps;  ///< of the depth
  std::int64_t pitch;  ///< of rows of sums, in words
  std::int64_t rows;   ///< in whole steps
  std::int64_t panel;  ///< bytes of 32 columns of packed rows
  std::int64_t line;   ///< bytes of a row of K or V
  std::int64_t keys;   ///< whose sums are kept: one block's, or all where several heads of Q add to them
  bool shared;

  explicit Sizes(const AttentionArgs& args)
      : steps(steps_of(args.depth)),
        pitch(steps * kStep + 16),
        rows(steps_of(args.rows) * kStep),
        panel(rows / kStep * kPair),
        line(steps * 64 + 64),
        keys(args.heads == args.kv_heads ? kKeys : (args.keys + kKeys - 1) / kKeys * kKeys),
        shared(args.heads != args.kv_heads) {}

  [[nodiscard]] std::int64_t packed() const { return rows * steps * 64; }  ///< bytes of a head
};

/// What one worker has in scratch.
struct Scratch {
  char* q_turned;     ///< [32 rows][step of the depth][two tiles], pairs along the depth
  char* grad_turned;  ///< of the result
  char* q;            ///< [32 columns][step of the rows][two tiles], pairs of rows
  char* grad;
  float* grad_q;  ///< [32 rows][depth][32]
  float* lse;
  float* delta;
  char* k;  ///< rows
  char* v;
  char* k_pairs;   ///< [32 columns][step of the keys][two tiles]
  char* k_turned;  ///< tiles of [16 columns][32 keys], those of the same columns after each other
  float* grad_k;   ///< [keys, pitch]
  float* grad_v;
  char* weights;     ///< [keys][rows of a block]
  char* grads;       ///< of scores, likewise
  char* grad_pairs;  ///< [32 rows][step of the keys][two tiles]
  float* scores;     ///< a square
  float* products;
  float* mask;
  std::size_t bytes;

  Scratch(void* memory, const Sizes& sizes) {
    auto at = reinterpret_cast<std::uintptr_t>(memory);  // null to count the bytes
    const auto take = [&](std::int64_t count) {
      auto* from = reinterpret_cast<char*>(at);
      at += static_cast<std::uintptr_t>((count + 63) / 64 * 64);
      return from;
    };
    const auto words = [&](std::int64_t count) { return reinterpret_cast<float*>(take(count * 4)); };
    q_turned = take(sizes.packed());
    grad_turned = take(sizes.packed());
    q = take(sizes.packed());
    grad = take(sizes.packed());
    grad_q = words(sizes.rows * sizes.steps * kStep);
    lse = words(sizes.rows);
    delta = words(sizes.rows);
    k = take(kKeys * sizes.line);
    v = take(kKeys * sizes.line);
    k_pairs = take(kKeys * sizes.steps * 64);
    k_turned = take(kKeys * sizes.steps * 64);
    grad_k = words(sizes.keys * sizes.pitch);
    grad_v = words(sizes.keys * sizes.pitch);
    weights = take(kKeys * kRowsLine);
    grads = take(kKeys * kRowsLine);
    grad_pairs = take(kKeys * kRows * 2);
    scores = words(kSquare);
    products = words(kSquare);
    mask = words(kSquare);
    bytes = at - reinterpret_cast<std::uintptr_t>(memory);
  }
};

void clear(float* at, std::int64_t words) {
  for (std::int64_t i = 0; i < words; i += kLanes) Lanes::store(at + i, Lanes::zero());
}

/// Q, the gradient and what there is for each row of one head.
void load_head(const AttentionGradArgs& args, const Head& head, const Sizes& sizes, const Scratch& at) {
  const AttentionArgs& f = args.forward;
  const Element* q = q_row<Element>(f, head, 0);
  const Element* grad = row_of<Element>(args.grad_out, head.batch, head.head, 0);
  pack_k(q, f.q.row_stride, f.rows, f.depth, at.q_turned);
  pack_v(q, f.q.row_stride, f.rows, f.depth, sizes.panel, at.q);
  pack_k(grad, args.grad_out.row_stride, f.rows, f.depth, at.grad_turned);
  pack_v(grad, args.grad_out.row_stride, f.rows, f.depth, sizes.panel, at.grad);
  clear(at.grad_q, sizes.rows * sizes.steps * kStep);
  for (std::int64_t row = 0; row < sizes.rows; ++row) {
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t i = 0; i < f.depth && row < f.rows; i += kLanes) {
      const __m512 result = Floats::of_bits(load_some(out_row<Element>(f, head, row) + i, f.depth - i));
      sum = _mm512_fmadd_ps(result, Floats::of_bits(load_some(grad + row * args.grad_out.row_stride + i, f.depth - i)), sum);
    }
    at.delta[row] = _mm512_reduce_add_ps(sum);
    at.lse[row] = row < f.rows ? *lse_of(f, head, row) : __builtin_inff();
  }
}

/// Rows of a block of K or V, with zeros up to a whole step of keys and of the depth.
void copy_rows(const Element* from, std::int64_t stride, std::int64_t keys, std::int64_t depth, const Sizes& sizes, char* to) {
  for (std::int64_t key = 0; key < steps_of(keys) * kStep; ++key) {
    for (std::int64_t s = 0; s < sizes.steps; ++s) {
      _mm512_store_si512(to + key * sizes.line + s * 64, key < keys ? load_step(from + key * stride, s * kStep, depth) : Lanes::zero());
    }
  }
}

void load_keys(const AttentionArgs& f, const Head& head, std::int64_t key, std::int64_t keys, const Sizes& sizes, const Scratch& at) {
  const std::int64_t key_steps = steps_of(keys);
  copy_rows(k_row<Element>(f, head, key), f.k.row_stride, keys, f.depth, sizes, at.k);
  copy_rows(v_row<Element>(f, head, key), f.v.row_stride, keys, f.depth, sizes, at.v);
  pack_v(k_row<Element>(f, head, key), f.k.row_stride, keys, f.depth, key_steps * kPair, at.k_pairs);
  for (std::int64_t column = 0; column < 2 * sizes.steps; ++column) {
    for (std::int64_t s = 0; s < key_steps; ++s) {
      const char* from = at.k_pairs + column / 2 * key_steps * kPair + s * kPair + column % 2 * kTileBytes;
      Lanes::Vector lines[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) lines[i] = Lanes::load(from + i * 64);
      Lanes::transpose(lines);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) _mm512_store_si512(at.k_turned + (column * key_steps + s) * kTileBytes + i * 64, lines[i]);
    }
  }
}

/// Where a square of scores lies.
struct Square {
  std::int64_t row;  ///< of the head
  std::int64_t key;
  std::int64_t keys;  ///< that there are, up to kStep
  char* weights;      ///< the first key's
  char* grads;
  char* pairs;
};

/// Scores and products of a square to weights and their gradients, as bf16.
template <bool kPlain>
void weigh_square(const AttentionArgs& f, const Head& head, const Square& square, const Scratch& at) {
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);  // as pack_v has it
  const bool masked = !kPlain && f.mask.data != nullptr;
  const bool hides = !kPlain && f.causal && square.key + kStep > square.row;
  const bool short_of_rows = !kPlain && square.row + kStep > f.rows;
  GradRows rows[2];
  __m512 numbers[2];
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = square.row + half * kLanes;
    if (masked) turn_mask(f, head, row, square.key, square.keys, at.mask + half * kLanes, kStep);
    rows[half] = {_mm512_loadu_ps(at.lse + row), _mm512_loadu_ps(at.delta + row), _mm512_set1_ps(f.scale)};
    numbers[half] = _mm512_add_ps(_mm512_load_ps(kRowNumbers), _mm512_set1_ps(static_cast<float>(row)));
  }
  const __m512 last = _mm512_set1_ps(static_cast<float>(f.rows - 1));
  const auto one = [&](std::int64_t key, int half) __attribute__((always_inline)) {
    const std::int64_t place = key * kStep + half * kLanes;
    const __m512 mask = masked ? _mm512_load_ps(at.mask + place) : _mm512_setzero_ps();
    Weighed weighed = weigh_again(rows[half], _mm512_load_ps(at.scores + place), mask, _mm512_load_ps(at.products + place));
    if (hides) weighed = seen_only(weighed, numbers[half], square.key + key);
    if (short_of_rows) {
      const __mmask16 there = _mm512_cmp_ps_mask(numbers[half], last, _CMP_LE_OQ);
      weighed = {_mm512_maskz_mov_ps(there, weighed.weight), _mm512_maskz_mov_ps(there, weighed.grad)};
    }
    return weighed;
  };
  for (std::int64_t key = 0; key < kStep; key += 2) {
    __m512i grads[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      __m512i weights = _mm512_setzero_si512();
      grads[i] = _mm512_setzero_si512();
      if (kPlain || key + i < square.keys) {
        const Weighed low = one(key + i, 0);
        const Weighed high = one(key + i, 1);
        weights = (__m512i)_mm512_cvtne2ps_pbh(high.weight, low.weight);
        grads[i] = (__m512i)_mm512_cvtne2ps_pbh(high.grad, low.grad);
      }
      _mm512_store_si512(square.weights + (key + i) * kRowsLine, weights);
      _mm512_store_si512(square.grads + (key + i) * kRowsLine, grads[i]);
    }
    const __m512i even = _mm512_permutexvar_epi64(order, grads[0]);
    const __m512i odd = _mm512_permutexvar_epi64(order, grads[1]);
    _mm512_store_si512(square.pairs + key / 2 * 64, _mm512_unpacklo_epi16(even, odd));
    _mm512_store_si512(square.pairs + kTileBytes + key / 2 * 64, _mm512_unpackhi_epi16(even, odd));
  }
}

/// Steps of 32 rows of a block that see none of the keys from `key` on, both counted from the head's first.
std::int64_t hidden_steps(const AttentionArgs& f, std::int64_t row, std::int64_t key) {
  return f.causal && key > row ? (key - row) / kStep : 0;
}

/// One block of keys and one of rows.
void block_of(const AttentionArgs& f, const Head& head, std::int64_t key, std::int64_t keys, std::int64_t row, std::int64_t rows,
              const Sizes& sizes, const Scratch& at, float* grad_k, float* grad_v) {
  const std::int64_t row_steps = steps_of(rows);
  const std::int64_t key_steps = steps_of(keys);
  const std::int64_t first_step = row / kStep;
  const std::int64_t row_bytes = sizes.steps * kPair;  // of 32 turned rows
  for (std::int64_t i = 0; i < key_steps; ++i) {
    const std::int64_t here = least(kStep, keys - i * kStep);
    const bool lower = here > 16;
    const Rows of_k{at.k + i * kStep * sizes.line, sizes.line, 64, 16 * sizes.line};
    const Rows of_v{at.v + i * kStep * sizes.line, sizes.line, 64, 16 * sizes.line};
    for (std::int64_t j = hidden_steps(f, row, key + i * kStep); j < row_steps; ++j) {
      multiply(of_k, lower, at.q_turned + (first_step + j) * row_bytes, sizes.steps, reinterpret_cast<char*>(at.scores), kSquareLine,
               false);
      multiply(of_v, lower, at.grad_turned + (first_step + j) * row_bytes, sizes.steps, reinterpret_cast<char*>(at.products), kSquareLine,
               false);
      const Square square{row + j * kStep,
                          key + i * kStep,
                          here,
                          at.weights + i * kStep * kRowsLine + j * 64,
                          at.grads + i * kStep * kRowsLine + j * 64,
                          at.grad_pairs + (j * key_steps + i) * kPair};
      const bool plain =
          f.mask.data == nullptr && here == kStep && square.row + kStep <= f.rows && !(f.causal && square.key + kStep > square.row);
      (plain ? weigh_square<true> : weigh_square<false>)(f, head, square, at);
    }
    const std::int64_t hidden = hidden_steps(f, row, key + i * kStep);
    if (hidden >= row_steps) continue;
    const std::int64_t offset = i * kStep * kRowsLine + hidden * 64;
    const std::int64_t rows_at = (first_step + hidden) * kPair;
    for (std::int64_t panel = 0; panel < sizes.steps; ++panel) {
      multiply({at.weights + offset, kRowsLine, 64, 16 * kRowsLine}, lower, at.grad + panel * sizes.panel + rows_at, row_steps - hidden,
               reinterpret_cast<char*>(grad_v + i * kStep * sizes.pitch + panel * kStep), sizes.pitch * 4, true);
      multiply({at.grads + offset, kRowsLine, 64, 16 * kRowsLine}, lower, at.q + panel * sizes.panel + rows_at, row_steps - hidden,
               reinterpret_cast<char*>(grad_k + i * kStep * sizes.pitch + panel * kStep), sizes.pitch * 4, true);
    }
  }
  for (std::int64_t j = 0; j < row_steps; ++j) {
    const std::int64_t last = row + j * kStep + kStep - 1;
    const std::int64_t seen = f.causal ? least(key_steps, (last - key) / kStep + 1) : key_steps;
    if (last < key && f.causal) continue;
    for (std::int64_t panel = 0; panel < sizes.steps; ++panel) {
      const Rows turned{at.k_turned + 2 * panel * key_steps * kTileBytes, 64, kTileBytes, key_steps * kTileBytes};
      multiply(turned, f.depth - panel * kStep > 16, at.grad_pairs + j * key_steps * kPair, seen,
               reinterpret_cast<char*>(at.grad_q + ((first_step + j) * sizes.steps + panel) * kSquare), kSquareLine, true);
    }
  }
}

template <typename Put>
void store_turned(const AttentionArgs& f, const Sizes& sizes, const float* from, const Put& put) {
  for (std::int64_t row = 0; row < f.rows; row += kLanes) {
    for (std::int64_t i = 0; i < f.depth; i += kLanes) {
      const float* square = from + (row / kStep * sizes.steps + i / kStep) * kSquare + i % kStep * kStep + row % kStep;
      Lanes::Vector v[kLanes];
#pragma GCC unroll 16
      for (int line = 0; line < kLanes; ++line) v[line] = Lanes::load(square + line * kStep);
      Lanes::transpose(v);
      for (std::int64_t r = 0; r < least(kLanes, f.rows - row); ++r) store_some(put(row + r) + i, v[r], f.depth - i);
    }
  }
}

Element* place_of(const HeadsOut& heads, std::int64_t batch, std::int64_t head, std::int64_t row) {
  return static_cast<Element*>(heads.data) + batch * heads.batch_stride + head * heads.head_stride + row * heads.row_stride;
}

void unit_of(const AttentionGradArgs& args, std::int64_t unit, const Sizes& sizes, const Scratch& at) {
  const AttentionArgs& f = args.forward;
  const std::int64_t group = f.heads / f.kv_heads;
  for (std::int64_t member = 0; member < group; ++member) {
    const Head head(f, unit * group + member);
    load_head(args, head, sizes, at);
    for (std::int64_t key = 0; key < f.keys; key += kKeys) {
      const std::int64_t keys = least(kKeys, f.keys - key);
      float* grad_k = at.grad_k + (sizes.shared ? key * sizes.pitch : 0);
      float* grad_v = at.grad_v + (sizes.shared ? key * sizes.pitch : 0);
      if (member == 0) {
        clear(grad_k, kKeys * sizes.pitch);
        clear(grad_v, kKeys * sizes.pitch);
      }
      load_keys(f, head, key, keys, sizes, at);
      for (std::int64_t row = f.causal ? key / kRows * kRows : 0; row < f.rows; row += kRows) {
        block_of(f, head, key, keys, row, least(kRows, f.rows - row), sizes, at, grad_k, grad_v);
      }
      for (std::int64_t i = 0; i < keys && member + 1 == group; ++i) {
        for (std::int64_t column = 0; column < f.depth; column += kLanes) {
          store_some(place_of(args.grad_k, head.batch, head.kv_head, key + i) + column, Lanes::load(grad_k + i * sizes.pitch + column),
                     f.depth - column);
          store_some(place_of(args.grad_v, head.batch, head.kv_head, key + i) + column, Lanes::load(grad_v + i * sizes.pitch + column),
                     f.depth - column);
        }
      }
    }
    store_turned(f, sizes, at.grad_q, [&](std::int64_t row) { return place_of(args.grad_q, head.batch, head.head, row); });
  }
}

}  // namespace

std::size_t attention_grad_scratch(const AttentionGradArgs& args) { return Scratch(nullptr, Sizes(args.forward)).bytes; }

void attention_grad(const AttentionGradArgs& args, std::int64_t unit_begin, std::int64_t unit_end, void* scratch) {
  const Sizes sizes(args.forward);
  const Scratch at(scratch, sizes);
  configure_whole_tiles();
  for (std::int64_t unit = unit_begin; unit < unit_end; ++unit) unit_of(args, unit, sizes, at);
  tile_release();
}

}  // namespace ipexrun::kernels::amx
