// The risk: a gradient that misses a block or counts a hidden key, a sum over heads that forgets one, rows and keys behind the end, memory
// written beside the gradients, formulas that are no derivative.
#include "kernels/attention_grad.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/attention_grad_variants.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kTypes[] = {DType::kF32, DType::kBf16};

struct Shape {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t rows = 1;
  std::int64_t keys = 1;
  std::int64_t depth = 1;
  bool causal = false;
  int mask = 0;              ///< 0 none, 1 fp32 by row and key, 2 bf16 by key, 3 fp32 by row
  bool heads_inside = true;  ///< [batch, rows, heads, depth] in memory, else [batch, heads, rows, depth]
  std::int64_t gap = 0;      ///< elements between rows
  std::int64_t offset = 0;
  int threads = 1;
};

std::string describe(const Shape& s, DType dtype) {
  std::ostringstream text;
  text << "dtype " << static_cast<int>(dtype) << " batch " << s.batch << " heads " << s.heads << "/" << s.kv_heads << " rows " << s.rows
       << " keys " << s.keys << " depth " << s.depth << (s.causal ? " causal" : "") << " mask " << s.mask << " inside " << s.heads_inside
       << " gap " << s.gap << " offset " << s.offset << " threads " << s.threads;
  return text.str();
}

/// A tensor of [batch, heads, rows, depth] in guarded memory, and as doubles.
struct Tensor {
  Buffer memory;
  Heads heads;
  std::int64_t sizes[4] = {};

  Tensor() = default;
  Tensor(DType dtype, const Shape& s, std::int64_t n, std::int64_t rows) : sizes{s.batch, n, rows, s.depth} {
    const std::int64_t row = s.depth + s.gap;
    memory = Buffer(dtype, s.batch * n * rows * row - s.gap, s.offset);
    heads = s.heads_inside ? Heads{memory.data(), n * rows * row, row, n * row} : Heads{memory.data(), n * rows * row, rows * row, row};
  }
  [[nodiscard]] std::int64_t place(std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t i) const {
    return b * heads.batch_stride + h * heads.head_stride + r * heads.row_stride + i;
  }
  [[nodiscard]] double at(std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t i) const { return memory.get(place(b, h, r, i)); }
  [[nodiscard]] HeadsOut out() const { return {memory.data(), heads.batch_stride, heads.head_stride, heads.row_stride}; }
  [[nodiscard]] bool gaps_are_clean(std::int64_t row) const {
    for (std::int64_t i = 0; i < memory.count(); ++i) {
      if (i % row >= sizes[3] && !memory.untouched(i)) return false;
    }
    return memory.front_is_clean();
  }
};

class Problem {
 public:
  Problem(const Shape& s, DType dtype, std::mt19937& random) : shape_(s), dtype_(dtype) {
    q = Tensor(dtype, s, s.heads, s.rows);
    k = Tensor(dtype, s, s.kv_heads, s.keys);
    v = Tensor(dtype, s, s.kv_heads, s.keys);
    out = Tensor(dtype, s, s.heads, s.rows);
    grad = Tensor(dtype, s, s.heads, s.rows);
    grad_q = Tensor(dtype, s, s.heads, s.rows);
    grad_k = Tensor(dtype, s, s.kv_heads, s.keys);
    grad_v = Tensor(dtype, s, s.kv_heads, s.keys);
    std::normal_distribution<float> normal;
    for (Tensor* t : {&q, &k, &v, &grad}) {
      for (std::int64_t i = 0; i < t->memory.count(); ++i) {
        if (i % (s.depth + s.gap) < s.depth) t->memory.set(i, normal(random));
      }
    }
    AttentionArgs& f = args.forward;
    f.dtype = dtype;
    f.batch = s.batch;
    f.heads = s.heads;
    f.kv_heads = s.kv_heads;
    f.rows = s.rows;
    f.keys = s.keys;
    f.depth = s.depth;
    f.causal = s.causal;
    f.scale = 1.3f / std::sqrt(static_cast<float>(s.depth));
    f.q = q.heads;
    f.k = k.heads;
    f.v = v.heads;
    f.out = out.memory.data();
    f.out_batch_stride = out.heads.batch_stride;
    f.out_head_stride = out.heads.head_stride;
    f.out_row_stride = out.heads.row_stride;
    if (s.mask != 0) {
      AttentionMask& m = f.mask;
      m.dtype = s.mask == 2 ? DType::kBf16 : DType::kF32;
      m.key_stride = s.mask == 3 ? 0 : 1;
      m.row_stride = s.mask == 1 ? s.keys : s.mask == 3 ? 1 : 0;
      m.head_stride = s.mask == 2 ? 0 : s.rows * (s.mask == 1 ? s.keys : 1);
      m.batch_stride = s.mask == 2 ? s.keys : s.heads * m.head_stride;
      mask = Buffer(m.dtype, s.batch * m.batch_stride, s.offset);
      for (std::int64_t i = 0; i < mask.count(); ++i) mask.set(i, s.mask != 3 && random() % 5 == 0 ? -kInf : normal(random));
      m.data = mask.data();
    }
    args.grad_out = grad.heads;
    args.grad_q = grad_q.out();
    args.grad_k = grad_k.out();
    args.grad_v = grad_v.out();
    lse = Buffer(DType::kF32, s.batch * s.heads * s.rows);
    f.logsumexp = reinterpret_cast<float*>(lse.data());
    f.lse_batch_stride = s.heads * s.rows;
    f.lse_head_stride = 1;
    f.lse_row_stride = s.heads;
    forward();
  }

  /// The result and logsumexp of a row, rounded to where they lie.
  void forward() {
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      for (std::int64_t h = 0; h < shape_.heads; ++h) {
        for (std::int64_t row = 0; row < shape_.rows; ++row) {
          const std::vector<double> result = attend(b, h, row);
          for (std::int64_t i = 0; i < shape_.depth; ++i) {
            out.memory.set(out.place(b, h, row, i), static_cast<float>(result[static_cast<std::size_t>(i)]));
          }
          lse.set(b * args.forward.lse_batch_stride + h + row * args.forward.lse_row_stride, static_cast<float>(result.back()));
        }
      }
    }
  }

  /// In doubles: a row of the result, then its logsumexp.
  [[nodiscard]] std::vector<double> attend(std::int64_t b, std::int64_t h, std::int64_t row) const {
    std::vector<double> scores = scores_of(b, h, row);
    const double largest = scores.empty() ? -HUGE_VAL : *std::max_element(scores.begin(), scores.end());
    const bool nothing = largest == -HUGE_VAL;
    double sum = nothing ? 1 : 0;
    for (double& score : scores) sum += score = nothing ? 0 : std::exp(score - largest);
    std::vector<double> result(static_cast<std::size_t>(shape_.depth) + 1, 0.0);
    for (std::size_t key = 0; key < scores.size(); ++key) {
      for (std::int64_t i = 0; i < shape_.depth; ++i) {
        result[static_cast<std::size_t>(i)] += scores[key] / sum * v.at(b, kv(h), static_cast<std::int64_t>(key), i);
      }
    }
    result.back() = (nothing ? 0 : largest) + std::log(sum);
    return result;
  }

  /// The truth of all three gradients, from exact weights.
  void truth(std::vector<double>* q_truth, std::vector<double>* k_truth, std::vector<double>* v_truth) const {
    q_truth->assign(static_cast<std::size_t>(q.memory.count()), 0.0);
    k_truth->assign(static_cast<std::size_t>(k.memory.count()), 0.0);
    v_truth->assign(static_cast<std::size_t>(v.memory.count()), 0.0);
    const auto scale = static_cast<double>(args.forward.scale);
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      for (std::int64_t h = 0; h < shape_.heads; ++h) {
        for (std::int64_t row = 0; row < shape_.rows; ++row) {
          const std::vector<double> scores = scores_of(b, h, row);
          const std::vector<double> result = attend(b, h, row);
          double delta = 0;
          for (std::int64_t i = 0; i < shape_.depth; ++i) delta += grad.at(b, h, row, i) * result[static_cast<std::size_t>(i)];
          for (std::int64_t key = 0; key < static_cast<std::int64_t>(scores.size()); ++key) {
            const double weight = std::exp(scores[static_cast<std::size_t>(key)] - result.back());
            double product = 0;
            for (std::int64_t i = 0; i < shape_.depth; ++i) product += grad.at(b, h, row, i) * v.at(b, kv(h), key, i);
            const double of_score = weight * (product - delta) * scale;
            for (std::int64_t i = 0; i < shape_.depth; ++i) {
              (*v_truth)[static_cast<std::size_t>(v.place(b, kv(h), key, i))] += weight * grad.at(b, h, row, i);
              (*k_truth)[static_cast<std::size_t>(k.place(b, kv(h), key, i))] += of_score * q.at(b, h, row, i);
              (*q_truth)[static_cast<std::size_t>(q.place(b, h, row, i))] += of_score * k.at(b, kv(h), key, i);
            }
          }
        }
      }
    }
  }

  /// Empty when the gradients are near the truth and nothing else was written.
  [[nodiscard]] std::string difference() const {
    std::vector<double> truths[3];
    truth(&truths[0], &truths[1], &truths[2]);
    const Tensor* seen[3] = {&grad_q, &grad_k, &grad_v};
    for (int which = 0; which < 3; ++which) {
      const Tensor& t = *seen[which];
      double squares = 0;
      double wrong = 0;
      double worst = 0;
      std::int64_t count = 0;
      for (std::int64_t b = 0; b < t.sizes[0]; ++b) {
        for (std::int64_t h = 0; h < t.sizes[1]; ++h) {
          for (std::int64_t r = 0; r < t.sizes[2]; ++r) {
            for (std::int64_t i = 0; i < t.sizes[3]; ++i, ++count) {
              const double expected = truths[which][static_cast<std::size_t>(t.place(b, h, r, i))];
              const double off = t.at(b, h, r, i) - expected;
              squares += expected * expected;
              wrong += off * off;
              worst = std::isnan(off) ? HUGE_VAL : std::max(worst, std::fabs(off));
            }
          }
        }
      }
      // Where weights are 1 the gradient is a difference of numbers that are equal: what is left is their error.
      const double size = std::sqrt(squares / static_cast<double>(count)) + 0.02;
      const double relative = std::sqrt(wrong / static_cast<double>(count)) / size;
      const double bound = dtype_ == DType::kF32 ? 4e-6 : 3e-2;
      if (!(relative <= bound) || !(worst <= 60 * bound * size)) {
        std::ostringstream text;
        text << describe(shape_, dtype_) << ": gradient "
             << "qkv"[which] << " is wrong by " << relative << ", at worst " << worst / size;
        return text.str();
      }
      if (!t.gaps_are_clean(shape_.depth + shape_.gap)) return describe(shape_, dtype_) + ": memory between rows was written";
    }
    return "";
  }

  [[nodiscard]] std::string results() const { return grad_q.memory.bytes() + grad_k.memory.bytes() + grad_v.memory.bytes(); }

  AttentionGradArgs args;
  Tensor q, k, v, out, grad, grad_q, grad_k, grad_v;
  Buffer mask, lse;

 private:
  [[nodiscard]] std::int64_t kv(std::int64_t h) const { return h / (shape_.heads / shape_.kv_heads); }
  [[nodiscard]] std::vector<double> scores_of(std::int64_t b, std::int64_t h, std::int64_t row) const {
    const AttentionMask& m = args.forward.mask;
    std::vector<double> scores;
    for (std::int64_t key = 0; key < (shape_.causal ? std::min(shape_.keys, row + 1) : shape_.keys); ++key) {
      double sum = 0;
      for (std::int64_t i = 0; i < shape_.depth; ++i) sum += q.at(b, h, row, i) * k.at(b, kv(h), key, i);
      sum *= static_cast<double>(args.forward.scale);
      if (m.data != nullptr) sum += mask.get(b * m.batch_stride + h * m.head_stride + row * m.row_stride + key * m.key_stride);
      scores.push_back(sum);
    }
    return scores;
  }

  Shape shape_;
  DType dtype_;
};

class AttentionGradOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20240613};

  void check(const Shape& shape, DType dtype) {
    Problem problem(shape, dtype, random_);
    ASSERT_TRUE(attention_grad(problem.args, thread_parallel(shape.threads), GetParam())) << describe(shape, dtype);
    EXPECT_EQ(problem.difference(), "");
  }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }
  template <std::size_t N>
  std::int64_t one_of(const std::int64_t (&values)[N]) {
    return values[below(N)];
  }
};

TEST_P(AttentionGradOnIsa, AnyShape) {
  constexpr std::int64_t kSizes[] = {1, 2, 5, 6, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129, 150};
  constexpr std::int64_t kDepths[] = {1, 2, 3, 7, 8, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65, 80};
  for (int i = 0; i < sampled(160) && !HasFailure(); ++i) {
    Shape shape;
    shape.batch = 1 + below(2);
    shape.kv_heads = 1 + below(2);
    shape.heads = shape.kv_heads * (1 + below(3));
    shape.rows = one_of(kSizes);
    shape.keys = below(2) == 0 ? shape.rows : one_of(kSizes);
    shape.depth = one_of(kDepths);
    shape.causal = below(3) == 0;
    shape.mask = below(2) == 0 ? 0 : static_cast<int>(below(4));
    shape.heads_inside = below(2) == 0;
    shape.gap = below(2) * 3;
    shape.offset = below(2);
    shape.threads = 1 + static_cast<int>(below(4));
    check(shape, kTypes[i % 2]);
  }
}

TEST_P(AttentionGradOnIsa, ManyBlocks) {
  for (const DType dtype : kTypes) {
    check({.heads = 2, .kv_heads = 1, .rows = 300, .keys = 290, .depth = 128}, dtype);
    check({.rows = 410, .keys = 410, .depth = 32, .causal = true}, dtype);
    check({.heads = 3, .kv_heads = 1, .rows = 270, .keys = 270, .depth = 20, .causal = true, .mask = 1}, dtype);
    check({.rows = 70, .keys = 140, .depth = 256, .mask = 2}, dtype);
    check({.rows = 70, .keys = 40, .depth = 300}, dtype);
  }
}

TEST_P(AttentionGradOnIsa, NothingIsFine) { EXPECT_TRUE(attention_grad({}, {}, GetParam())); }

/// Of the truth above, and of the kernel: the change of sum(grad * result) with each of some numbers.
TEST_P(AttentionGradOnIsa, IsTheDerivative) {
  for (const bool causal : {false, true}) {
    Problem problem({.heads = 2, .kv_heads = 1, .rows = 9, .keys = 9, .depth = 6, .causal = causal, .mask = causal ? 0 : 1}, DType::kF32,
                    random_);
    ASSERT_TRUE(attention_grad(problem.args, {}, GetParam()));
    const auto loss = [&] {
      double sum = 0;
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t row = 0; row < 9; ++row) {
          const std::vector<double> result = problem.attend(0, h, row);
          for (std::int64_t i = 0; i < 6; ++i) sum += result[static_cast<std::size_t>(i)] * problem.grad.at(0, h, row, i);
        }
      }
      return sum;
    };
    const auto compare = [&](Tensor* of, const Tensor& gradient) {
      for (std::int64_t i = 0; i < of->memory.count(); i += 5) {
        const double value = of->memory.get(i);
        of->memory.set(i, static_cast<float>(value + 0.0078125));
        const double above = of->memory.get(i);
        const double more = loss();
        of->memory.set(i, static_cast<float>(value - 0.0078125));
        const double numerical = (more - loss()) / (above - of->memory.get(i));
        of->memory.set(i, static_cast<float>(value));
        EXPECT_NEAR(gradient.memory.get(i), numerical, 2e-4 * (1 + std::fabs(numerical)));
      }
    };
    compare(&problem.q, problem.grad_q);
    compare(&problem.k, problem.grad_k);
    compare(&problem.v, problem.grad_v);
  }
}

TEST_P(AttentionGradOnIsa, RowsThatSeeNothingAddNothing) {
  for (const DType dtype : kTypes) {
    Problem problem({.rows = 40, .keys = 70, .depth = 16, .mask = 1}, dtype, random_);
    for (std::int64_t key = 0; key < 70; ++key) problem.mask.set(4 * 70 + key, -kInf);
    problem.forward();
    ASSERT_TRUE(attention_grad(problem.args, {}, GetParam()));
    EXPECT_EQ(problem.difference(), "");
    for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(problem.grad_q.at(0, 0, 4, i), 0.0);
  }
}

TEST_P(AttentionGradOnIsa, AnyNumberOfThreadsGivesTheSameBits) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t kv_heads : {1, 3, 6}) {
      Problem problem({.batch = 2, .heads = 6, .kv_heads = kv_heads, .rows = 100, .keys = 90, .depth = 40}, dtype, random_);
      ASSERT_TRUE(attention_grad(problem.args, {}, GetParam()));
      const std::string expected = problem.results();
      for (int threads = 2; threads <= 5; ++threads) {
        for (Tensor* t : {&problem.grad_q, &problem.grad_k, &problem.grad_v}) {
          std::memset(t->memory.data(), 0x7f, static_cast<std::size_t>(t->memory.count() * bytes_of(dtype)));
        }
        ASSERT_TRUE(attention_grad(problem.args, thread_parallel(threads), GetParam()));
        EXPECT_EQ(problem.results(), expected) << threads << " threads";
      }
    }
  }
}

TEST_P(AttentionGradOnIsa, Nan) {
  for (const DType dtype : kTypes) {
    const Shape shape{.heads = 2, .kv_heads = 2, .rows = 70, .keys = 60, .depth = 20};
    const auto nan_at = [](const Tensor& t, std::int64_t h, std::int64_t r, std::int64_t i) { return std::isnan(t.at(0, h, r, i)); };
    Problem problem(shape, dtype, random_);  // in the gradient: that row of Q, all rows of K, of V that column
    problem.grad.memory.set(problem.grad.place(0, 1, 40, 3), kNan);
    ASSERT_TRUE(attention_grad(problem.args, {}, GetParam()));
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 20; ++i) {
        for (std::int64_t row = 0; row < 70; ++row) ASSERT_EQ(nan_at(problem.grad_q, h, row, i), h == 1 && row == 40);
        for (std::int64_t key = 0; key < 60; ++key) {
          ASSERT_EQ(nan_at(problem.grad_k, h, key, i), h == 1);
          ASSERT_EQ(nan_at(problem.grad_v, h, key, i), h == 1 && i == 3);
        }
      }
    }
  }
}

/// What a row does not see is not multiplied by anything.
TEST_P(AttentionGradOnIsa, NanThatCausalHides) {
  for (const DType dtype : kTypes) {
    Problem problem({.rows = 50, .keys = 50, .depth = 20, .causal = true}, dtype, random_);
    problem.grad.memory.set(problem.grad.place(0, 0, 20, 3), kNan);
    ASSERT_TRUE(attention_grad(problem.args, {}, GetParam()));
    for (std::int64_t i = 0; i < 20; ++i) {
      for (std::int64_t row = 0; row < 50; ++row) ASSERT_EQ(std::isnan(problem.grad_q.at(0, 0, row, i)), row == 20) << row;
    }
  }
}

TEST_P(AttentionGradOnIsa, UsesTheVariantOfItsLevel) {
  const AttentionGradVariants table = attention_grad_variants(DType::kBf16);
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs != GetParam()) continue;
    EXPECT_STREQ(attention_grad_variant(DType::kBf16, GetParam()), table.first[i].name);
    EXPECT_EQ(attention_grad_supported(DType::kBf16, GetParam()), i + 1 < table.count);
  }
  const std::string of_fp32 = attention_grad_variant(DType::kF32, GetParam());
  EXPECT_TRUE(of_fp32 == "ref" || of_fp32 == "avx2" || of_fp32 == "avx512") << of_fp32;
}

INSTANTIATE_TEST_SUITE_P(Levels, AttentionGradOnIsa, testing::ValuesIn(levels_of(attention_grad_variants(DType::kBf16))),
                         [](const auto& level) { return std::string(attention_grad_variant(DType::kBf16, level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
