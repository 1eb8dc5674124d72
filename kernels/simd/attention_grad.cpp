// attention_grad in fp32, a head of K and V at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// Q, the gradient of the result, and both transposed block by block, lie in scratch as fp32 for a head; blocks of keys walk them. With
// scores as keys by rows the logsumexp of the rows is a vector, and all five products take their second factor as it lies.
#include "kernels/simd/attention_grad.h"

#include "kernels/simd/floats.h"
#if defined(IPEXRUN_KERNEL_ISA_AVX512)
#include "kernels/simd/halves_avx512.h"
#else
#include "kernels/simd/halves_avx2.h"
#endif
// In this order: each needs the ones before it.
#include "kernels/simd/attention_load.h"
#include "kernels/simd/exp2.h"
//
#include "kernels/simd/attention_weigh.h"
#include "kernels/simd/products_f32.h"
//
#include "kernels/simd/attention_grad_weigh.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;

constexpr std::int64_t kKeys = 48;  ///< of a block
constexpr std::int64_t kRows = 64;  ///< of Q of a block
constexpr int kTileRows = 6;
constexpr int kVectors = Products::kVectors;

/// C [R, V vectors] = A B or C + A B. A has any strides.
template <int R, int V>
void tile(const float* a, std::int64_t a_row, std::int64_t a_step, const float* b, std::int64_t ldb, std::int64_t steps, float* c,
          std::int64_t ldc, bool add) {
  Vector sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[r][v] = Floats::all(0.0f);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    Vector operand[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) operand[v] = Floats::of_bits(Lanes::load(b + v * kLanes));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vector factor = Floats::all(a[r * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = Floats::fma(factor, operand[v], sums[r][v]);
    }
    a += a_step;
    b += ldb;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* to = c + r * ldc + v * kLanes;
      if (add) sums[r][v] = Floats::add(sums[r][v], Floats::of_bits(Lanes::load(to)));
      Lanes::store(to, Floats::bits_of(sums[r][v]));
    }
  }
}

using Tile = void (*)(const float* a, std::int64_t a_row, std::int64_t a_step, const float* b, std::int64_t ldb, std::int64_t steps,
                      float* c, std::int64_t ldc, bool add);

constexpr int limited(int vectors) { return vectors < kVectors ? vectors : kVectors; }

template <int R>
struct Tiles {
  static constexpr Tile kOf[4] = {tile<R, limited(1)>, tile<R, limited(2)>, tile<R, limited(3)>, tile<R, limited(4)>};
};

Tile tile_of(std::int64_t rows, std::int64_t vectors) {
  constexpr const Tile* kTiles[kTileRows] = {Tiles<1>::kOf, Tiles<2>::kOf, Tiles<3>::kOf, Tiles<4>::kOf, Tiles<5>::kOf, Tiles<6>::kOf};
  return kTiles[rows - 1][vectors - 1];
}

/// A factor with its strides.
struct Factor {
  const float* at;
  std::int64_t row;
  std::int64_t step;
};

void multiply(const Factor& a, std::int64_t rows, const float* b, std::int64_t ldb, std::int64_t columns, std::int64_t steps, float* c,
              std::int64_t ldc, bool add) {
  for (std::int64_t column = 0; column < columns; column += kVectors * kLanes) {
    const std::int64_t vectors = least(kVectors, (columns - column + kLanes - 1) / kLanes);
    for (std::int64_t row = 0; row < rows; row += kTileRows) {
      tile_of(least(kTileRows, rows - row), vectors)(a.at + row * a.row, a.row, a.step, b + column, ldb, steps, c + row * ldc + column, ldc,
                                                     add);
    }
  }
}

struct Sizes {
  std::int64_t pitch;   ///< of rows of `depth` elements
  std::int64_t blocks;  ///< of rows
  std::int64_t rows;    ///< in whole blocks
  std::int64_t filled;  ///< of them: in whole vectors
  std::int64_t keys;    ///< whose sums are kept: one block's, or all where several heads of Q add to them
  bool shared;

  explicit Sizes(const AttentionArgs& args)
      : pitch((args.depth + 15) / 16 * 16),
        blocks((args.rows + kRows - 1) / kRows),
        rows(blocks * kRows),
        filled((args.rows + kLanes - 1) / kLanes * kLanes),
        keys(args.heads == args.kv_heads ? kKeys : (args.keys + kKeys - 1) / kKeys * kKeys),
        shared(args.heads != args.kv_heads) {}
};

/// What one worker has in scratch.
struct Scratch {
  float* q;         ///< [rows, pitch]
  float* q_turned;  ///< for each block [pitch, kRows]
  float* grad;      ///< of the result, as q
  float* grad_turned;
  float* grad_q;  ///< as q
  float* lse;     ///< of each row
  float* delta;
  float* k;  ///< [kKeys, pitch]
  float* v;
  float* grad_k;  ///< [keys, pitch]
  float* grad_v;
  float* weights;   ///< [kKeys, kRows]
  float* products;  ///< likewise: then the gradients of scores
  float* mask;      ///< likewise

  Scratch(float* at, const Sizes& sizes) {
    const auto take = [&](std::int64_t words) {
      float* from = at;
      at += words;
      return from;
    };
    q = take(sizes.rows * sizes.pitch);
    q_turned = take(sizes.rows * sizes.pitch);
    grad = take(sizes.rows * sizes.pitch);
    grad_turned = take(sizes.rows * sizes.pitch);
    grad_q = take(sizes.rows * sizes.pitch);
    lse = take(sizes.rows);
    delta = take(sizes.rows);
    k = take(kKeys * sizes.pitch);
    v = take(kKeys * sizes.pitch);
    grad_k = take(sizes.keys * sizes.pitch);
    grad_v = take(sizes.keys * sizes.pitch);
    weights = take(kKeys * kRows);
    products = take(kKeys * kRows);
    mask = take(kKeys * kRows);
  }
};

void clear(float* at, std::int64_t words) {
  for (std::int64_t i = 0; i < words; i += kLanes) Lanes::store(at + i, Lanes::zero());
}

/// `count` rows as fp32, zeros behind the depth and behind the last row up to `all`.
template <typename Element>
void widen(const Element* from, std::int64_t stride, std::int64_t count, std::int64_t all, std::int64_t depth, std::int64_t pitch,
           float* to) {
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t i = 0; i < pitch; i += kLanes) {
      Lanes::store(to + row * pitch + i, i < depth ? load_some(from + row * stride + i, depth - i) : Lanes::zero());
    }
  }
  clear(to + count * pitch, (all - count) * pitch);
}

/// Blocks of kRows rows, transposed.
void turn(const float* from, const Sizes& sizes, float* to) {
  for (std::int64_t row = 0; row < sizes.filled; row += kLanes) {
    float* block = to + row / kRows * kRows * sizes.pitch + row % kRows;
    for (std::int64_t i = 0; i < sizes.pitch; i += kLanes) {
      Lanes::Vector v[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) v[r] = Lanes::load(from + (row + r) * sizes.pitch + i);
      Lanes::transpose(v);
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) Lanes::store(block + (i + r) * kRows, v[r]);
    }
  }
}

template <typename Element>
void store_rows(const float* from, std::int64_t pitch, std::int64_t rows, std::int64_t depth, Element* to, std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < depth; i += kLanes) store_some(to + row * stride + i, Lanes::load(from + row * pitch + i), depth - i);
  }
}

template <typename Element>
Element* place_of(const HeadsOut& heads, std::int64_t batch, std::int64_t head, std::int64_t row) {
  return static_cast<Element*>(heads.data) + batch * heads.batch_stride + head * heads.head_stride + row * heads.row_stride;
}

/// Q, the gradient and what there is for each row of one head.
template <typename Element>
void load_head(const AttentionGradArgs& args, const Head& head, const Sizes& sizes, const Scratch& at) {
  const AttentionArgs& f = args.forward;
  widen(q_row<Element>(f, head, 0), f.q.row_stride, f.rows, sizes.filled, f.depth, sizes.pitch, at.q);
  widen(row_of<Element>(args.grad_out, head.batch, head.head, 0), args.grad_out.row_stride, f.rows, sizes.filled, f.depth, sizes.pitch,
        at.grad);
  turn(at.q, sizes, at.q_turned);
  turn(at.grad, sizes, at.grad_turned);
  clear(at.grad_q, f.rows * sizes.pitch);
  for (std::int64_t row = 0; row < sizes.filled; ++row) {
    at.lse[row] = row < f.rows ? *lse_of(f, head, row) : __builtin_inff();
    Vector sum = Floats::all(0.0f);
    const Element* out = out_row<Element>(f, head, row);
    for (std::int64_t i = 0; i < f.depth && row < f.rows; i += kLanes) {
      sum =
          Floats::fma(Floats::of_bits(load_some(out + i, f.depth - i)), Floats::of_bits(Lanes::load(at.grad + row * sizes.pitch + i)), sum);
    }
    at.delta[row] = Floats::sum(sum);
  }
}

/// Scores and products of a block to weights and their gradients.
void weigh_block(const AttentionArgs& args, const Head& head, std::int64_t row, std::int64_t rows, std::int64_t key, std::int64_t keys,
                 const Scratch& at) {
  const bool masked = args.mask.data != nullptr;
  const bool hides = args.causal && key + keys > row;
  for (std::int64_t r = 0; r < rows; r += kLanes) {
    if (masked) turn_mask(args, head, row + r, key, keys, at.mask + r, kRows);
    const GradRows brought{Floats::of_bits(Lanes::load(at.lse + row + r)), Floats::of_bits(Lanes::load(at.delta + row + r)),
                           Floats::all(args.scale)};
    const Vector numbers = Floats::add(Floats::of_bits(Lanes::load(kRowNumbers)), Floats::all(static_cast<float>(row + r)));
    for (std::int64_t i = 0; i < keys; ++i) {
      const std::int64_t place = i * kRows + r;
      const Vector mask = masked ? Floats::of_bits(Lanes::load(at.mask + place)) : Floats::all(0.0f);
      Weighed weighed =
          weigh_again(brought, Floats::of_bits(Lanes::load(at.weights + place)), mask, Floats::of_bits(Lanes::load(at.products + place)));
      if (hides) weighed = seen_only(weighed, numbers, key + i);
      Lanes::store(at.weights + place, Floats::bits_of(weighed.weight));
      Lanes::store(at.products + place, Floats::bits_of(weighed.grad));
    }
  }
}

template <typename Element>
void unit_of(const AttentionGradArgs& args, std::int64_t unit, const Sizes& sizes, const Scratch& at) {
  const AttentionArgs& f = args.forward;
  const std::int64_t group = f.heads / f.kv_heads;
  const std::int64_t pitch = sizes.pitch;
  for (std::int64_t member = 0; member < group; ++member) {
    const Head head(f, unit * group + member);
    load_head<Element>(args, head, sizes, at);
    for (std::int64_t key = 0; key < f.keys; key += kKeys) {
      const std::int64_t keys = least(kKeys, f.keys - key);
      float* grad_k = at.grad_k + (sizes.shared ? key * pitch : 0);
      float* grad_v = at.grad_v + (sizes.shared ? key * pitch : 0);
      if (member == 0) {
        clear(grad_k, kKeys * pitch);
        clear(grad_v, kKeys * pitch);
      }
      widen(k_row<Element>(f, head, key), f.k.row_stride, keys, keys, f.depth, pitch, at.k);
      widen(v_row<Element>(f, head, key), f.v.row_stride, keys, keys, f.depth, pitch, at.v);
      for (std::int64_t row = f.causal ? key / kRows * kRows : 0; row < f.rows; row += kRows) {
        const std::int64_t rows = least(kRows, f.rows - row);
        multiply({at.k, pitch, 1}, keys, at.q_turned + row * pitch, kRows, rows, f.depth, at.weights, kRows, false);
        multiply({at.v, pitch, 1}, keys, at.grad_turned + row * pitch, kRows, rows, f.depth, at.products, kRows, false);
        weigh_block(f, head, row, rows, key, keys, at);
        multiply({at.weights, kRows, 1}, keys, at.grad + row * pitch, pitch, f.depth, rows, grad_v, pitch, true);
        multiply({at.products, kRows, 1}, keys, at.q + row * pitch, pitch, f.depth, rows, grad_k, pitch, true);
        multiply({at.products, 1, kRows}, rows, at.k, pitch, f.depth, keys, at.grad_q + row * pitch, pitch, true);
      }
      if (member + 1 < group) continue;
      store_rows(grad_k, pitch, keys, f.depth, place_of<Element>(args.grad_k, head.batch, head.kv_head, key), args.grad_k.row_stride);
      store_rows(grad_v, pitch, keys, f.depth, place_of<Element>(args.grad_v, head.batch, head.kv_head, key), args.grad_v.row_stride);
    }
    store_rows(at.grad_q, pitch, f.rows, f.depth, place_of<Element>(args.grad_q, head.batch, head.head, 0), args.grad_q.row_stride);
  }
}

}  // namespace

std::size_t attention_grad_scratch(const AttentionGradArgs& args) {
  const Sizes sizes(args.forward);
  const std::int64_t words = 5 * sizes.rows * sizes.pitch + 2 * sizes.rows + 2 * (kKeys + sizes.keys) * sizes.pitch + 3 * kKeys * kRows;
  return static_cast<std::size_t>(words) * sizeof(float);
}

void attention_grad(const AttentionGradArgs& args, std::int64_t unit_begin, std::int64_t unit_end, void* scratch) {
  const Sizes sizes(args.forward);
  const Scratch at(static_cast<float*>(scratch), sizes);
  for (std::int64_t unit = unit_begin; unit < unit_end; ++unit) {
    (args.forward.dtype == DType::kF32 ? unit_of<float> : unit_of<std::uint16_t>)(args, unit, sizes, at);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
