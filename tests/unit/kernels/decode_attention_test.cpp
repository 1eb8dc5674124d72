// The risk: a page or a token read at the wrong place, a stretch of keys that is merged wrongly, a token behind the end that joins a sum, a
// new row that sees what comes after it, bits that depend on threads or on the rest of the batch.
#include "kernels/decode_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/decode_attention_variants.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr double kEps = std::numeric_limits<float>::epsilon();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kTypes[] = {DType::kF32, DType::kBf16};

struct Shape {
  std::vector<std::int64_t> lengths = {1};
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t rows = 1;
  std::int64_t depth = 1;
  DType dtype = DType::kF32;
  DType cache = DType::kF32;
  std::int64_t page = 0;     ///< tokens; 0: contiguous
  bool heads_inside = true;  ///< of the cache: [block, token, head, depth], else [block, head, token, depth]
  bool causal = true;
  bool slopes = false;
  int mask = 0;               ///< 0 none, 1 fp32 by row and token, 2 bf16 by token, 3 fp32 by row
  std::int64_t offset = 0;    ///< elements in front of everything
  bool long_lengths = false;  ///< of 64 bits
  int threads = 1;
};

std::string describe(const Shape& s) {
  std::ostringstream text;
  text << "lengths";
  for (const std::int64_t length : s.lengths) text << " " << length;
  text << " heads " << s.heads << "/" << s.kv_heads << " rows " << s.rows << " depth " << s.depth << " dtypes " << static_cast<int>(s.dtype)
       << static_cast<int>(s.cache) << " page " << s.page << " inside " << s.heads_inside << (s.causal ? " causal" : "")
       << (s.slopes ? " slopes" : "") << " mask " << s.mask << " offset " << s.offset << " threads " << s.threads;
  return text.str();
}

/// Buffers of a call with seeded numbers. What no token owns is NaN.
class Problem {
 public:
  Problem(const Shape& shape, std::mt19937& random) : shape_(shape) {
    const auto batch = static_cast<std::int64_t>(shape.lengths.size());
    const std::int64_t longest = *std::max_element(shape.lengths.begin(), shape.lengths.end());
    args_.batch = batch;
    args_.heads = shape.heads;
    args_.kv_heads = shape.kv_heads;
    args_.rows = shape.rows;
    args_.depth = shape.depth;
    args_.dtype = shape.dtype;
    args_.causal = shape.causal;
    args_.scale = 1.7f / std::sqrt(static_cast<float>(shape.depth));
    q_ = Buffer(shape.dtype, batch * shape.rows * shape.heads * shape.depth, shape.offset);
    q_.fill(random);
    args_.q = {q_.data(), shape.rows * shape.heads * shape.depth, shape.depth, shape.heads * shape.depth};
    make_cache(random, batch, longest);
    lengths_.assign(shape.lengths.begin(), shape.lengths.end());
    args_.lengths.of_32_bits = shape.long_lengths ? nullptr : lengths_.data();
    args_.lengths.of_64_bits = shape.long_lengths ? shape_.lengths.data() : nullptr;
    std::normal_distribution<float> normal;
    for (std::int64_t head = 0; head < shape.heads; ++head) slopes_.push_back(0.1f / static_cast<float>(head + 1));
    if (shape.slopes) args_.slopes = slopes_.data();
    if (shape.mask != 0) {
      AttentionMask& mask = args_.mask;
      mask.dtype = shape.mask == 2 ? DType::kBf16 : DType::kF32;
      mask.key_stride = shape.mask == 3 ? 0 : 1;
      mask.row_stride = shape.mask == 1 ? longest : shape.mask == 3 ? 1 : 0;
      mask.head_stride = shape.mask == 2 ? 0 : shape.rows * (shape.mask == 1 ? longest : 1);
      mask.batch_stride = shape.mask == 2 ? longest : shape.heads * mask.head_stride;
      mask_ = Buffer(mask.dtype, batch * mask.batch_stride, shape.offset);
      for (std::int64_t i = 0; i < mask_.count(); ++i) mask_.set(i, random() % 7 == 0 ? -kInf : normal(random));
      mask.data = mask_.data();
    }
    const std::int64_t row = shape.heads * shape.depth + 3;
    out_ = Buffer(shape.dtype, batch * shape.rows * row - 3, shape.offset);
    args_.out = out_.data();
    args_.out_batch_stride = shape.rows * row;
    args_.out_head_stride = shape.depth;
    args_.out_row_stride = row;
    lse_ = Buffer(DType::kF32, batch * shape.heads * shape.rows);
    args_.logsumexp = reinterpret_cast<float*>(lse_.data());
    args_.lse_batch_stride = shape.heads * shape.rows;
    args_.lse_head_stride = shape.rows;
    args_.lse_row_stride = 1;
  }

  DecodeAttentionArgs& args() { return args_; }
  Buffer& q() { return q_; }
  Buffer& k() { return k_; }
  Buffer& v() { return v_; }
  Buffer& mask() { return mask_; }
  std::vector<std::int32_t>& table() { return table_; }
  [[nodiscard]] std::int64_t place(std::int64_t batch, std::int64_t head, std::int64_t token) const {
    return kv_place(args_.cache, args_.cache.k_strides, batch, token) + head * args_.cache.k_strides.head;
  }
  [[nodiscard]] double out(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t i) const {
    return out_.get(batch * args_.out_batch_stride + head * args_.out_head_stride + row * args_.out_row_stride + i);
  }
  [[nodiscard]] double lse(std::int64_t batch, std::int64_t head, std::int64_t row) const {
    return lse_.get((batch * shape_.heads + head) * shape_.rows + row);
  }
  [[nodiscard]] std::string results() const { return out_.bytes() + lse_.bytes(); }
  void forget() {
    std::memset(out_.data(), 0x7f, static_cast<std::size_t>(out_.count() * bytes_of(shape_.dtype)));
    std::memset(lse_.data(), 0x7f, static_cast<std::size_t>(lse_.count() * 4));
  }

  /// Empty when all results are within the bounds of fp32 sums and nothing else was written; else what differs.
  [[nodiscard]] std::string difference() const {
    for (std::int64_t b = 0; b < args_.batch; ++b) {
      for (std::int64_t h = 0; h < shape_.heads; ++h) {
        for (std::int64_t row = 0; row < shape_.rows; ++row) {
          if (std::string text = row_difference(b, h, row); !text.empty()) return text;
        }
      }
    }
    for (std::int64_t i = 0; i < out_.count(); ++i) {
      if (i % args_.out_row_stride >= shape_.heads * shape_.depth && !out_.untouched(i)) return "memory between rows was written";
    }
    return out_.front_is_clean() ? "" : "memory in front was written";
  }

 private:
  void make_cache(std::mt19937& random, std::int64_t batch, std::int64_t longest) {
    KvCache& cache = args_.cache;
    cache.dtype = shape_.cache;
    cache.block_rows = shape_.page == 0 ? longest : shape_.page;
    cache.table_blocks = shape_.page == 0 ? 0 : (longest + shape_.page - 1) / shape_.page;
    cache.blocks = shape_.page == 0 ? batch : batch * cache.table_blocks + 1;
    const std::int64_t head = shape_.depth;
    cache.k_strides = shape_.heads_inside ? KvStrides{shape_.kv_heads * cache.block_rows * head, shape_.kv_heads * head, head}
                                          : KvStrides{shape_.kv_heads * cache.block_rows * head, head, cache.block_rows * head};
    cache.v_strides = cache.k_strides;
    k_ = Buffer(shape_.cache, cache.blocks * cache.k_strides.block, shape_.offset);
    v_ = Buffer(shape_.cache, cache.blocks * cache.k_strides.block, shape_.offset);
    cache.k = k_.data();
    cache.v = v_.data();
    if (shape_.page > 0) {
      for (std::int64_t i = 0; i < cache.blocks; ++i) table_.push_back(static_cast<std::int32_t>(i));
      std::shuffle(table_.begin(), table_.end(), random);
      cache.table = table_.data();
      cache.table_stride = cache.table_blocks;
    }
    for (Buffer* buffer : {&k_, &v_}) {
      for (std::int64_t i = 0; i < buffer->count(); ++i) buffer->set(i, kNan);
    }
    std::normal_distribution<float> normal;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t token = 0; token < shape_.lengths[static_cast<std::size_t>(b)]; ++token) {
        for (std::int64_t h = 0; h < shape_.kv_heads; ++h) {
          for (std::int64_t i = 0; i < shape_.depth; ++i) {
            k_.set(place(b, h, token) + i, normal(random));
            v_.set(place(b, h, token) + i, normal(random));
          }
        }
      }
    }
  }

  [[nodiscard]] std::string row_difference(std::int64_t b, std::int64_t h, std::int64_t row) const {
    const std::int64_t kv = h / (shape_.heads / shape_.kv_heads);
    const std::int64_t length = shape_.lengths[static_cast<std::size_t>(b)];
    const std::int64_t visible = shape_.causal ? std::max<std::int64_t>(0, length - shape_.rows + row + 1) : length;
    std::vector<double> scores;
    double largest = -HUGE_VAL;
    double score_error = 0;
    for (std::int64_t token = 0; token < visible; ++token) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t i = 0; i < shape_.depth; ++i) {
        const double product = q_.get(b * args_.q.batch_stride + h * args_.q.head_stride + row * args_.q.row_stride + i) *
                               k_.get(place(b, kv, token) + i) * static_cast<double>(args_.scale);
        sum += product;
        magnitude += std::fabs(product);
      }
      if (shape_.slopes) {
        const double added =
            static_cast<double>(slopes_[static_cast<std::size_t>(h)]) * static_cast<double>(token - (length - shape_.rows + row));
        sum += added;
        magnitude += std::fabs(added) / static_cast<double>(shape_.depth);
      }
      if (shape_.mask != 0) {
        const AttentionMask& m = args_.mask;
        sum += mask_.get(b * m.batch_stride + h * m.head_stride + row * m.row_stride + token * m.key_stride);
      }
      if (sum > -HUGE_VAL)
        score_error = std::max(score_error, kEps * (static_cast<double>(shape_.depth + 4) * magnitude + 2 * std::fabs(sum)));
      scores.push_back(sum);
      largest = std::max(largest, sum);
    }
    const bool nothing = largest == -HUGE_VAL;
    double sum = nothing ? 1 : 0;
    for (double& score : scores) sum += score = nothing ? 0 : std::exp(score - largest);
    const double relative = 2 * score_error + kEps * (static_cast<double>(visible) / 4 + 30);
    const double lse_truth = nothing ? 0 : largest + std::log(sum);
    std::ostringstream text;
    text << describe(shape_) << ": batch " << b << " head " << h << " row " << row << ": ";
    if (!(std::fabs(lse(b, h, row) - lse_truth) <= relative + 4 * kEps * std::fabs(lse_truth))) {
      text << "logsumexp " << lse(b, h, row) << ", truth " << lse_truth;
      return text.str();
    }
    for (std::int64_t i = 0; i < shape_.depth; ++i) {
      double truth = 0;
      double magnitude = 0;
      for (std::int64_t token = 0; token < visible; ++token) {
        const double term = scores[static_cast<std::size_t>(token)] / sum * (nothing ? 0 : v_.get(place(b, kv, token) + i));
        truth += term;
        magnitude += std::fabs(term);
      }
      if (!near(out(b, h, row, i), truth, relative * magnitude, shape_.dtype)) {
        text << i << " is " << out(b, h, row, i) << ", truth " << truth;
        return text.str();
      }
    }
    return "";
  }

  Shape shape_;
  DecodeAttentionArgs args_;
  Buffer q_, k_, v_, mask_, out_, lse_;
  std::vector<std::int32_t> lengths_, table_;
  std::vector<float> slopes_;
};

class DecodeOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20240613};

  void check(const Shape& shape) {
    Problem problem(shape, random_);
    ASSERT_TRUE(decode_attention(problem.args(), thread_parallel(shape.threads), GetParam())) << describe(shape);
    EXPECT_EQ(problem.difference(), "");
  }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }
  template <std::size_t N>
  std::int64_t one_of(const std::int64_t (&values)[N]) {
    return values[below(N)];
  }
};

TEST_P(DecodeOnIsa, AnyShape) {
  constexpr std::int64_t kLengths[] = {0,  1,  2,  3,   7,   8,   9,   15,  16,  17,  31,  32, 33,
                                       63, 64, 65, 100, 255, 256, 257, 300, 511, 512, 513, 700};
  constexpr std::int64_t kDepths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65, 80, 96, 127, 128, 129, 256, 300};
  constexpr std::int64_t kGroups[] = {1, 1, 2, 3, 4, 5, 7, 8};
  constexpr std::int64_t kPages[] = {0, 0, 1, 5, 8, 16, 32, 64, 100};
  for (int i = 0; i < sampled(250) && !HasFailure(); ++i) {
    Shape shape;
    shape.lengths.clear();
    for (std::int64_t b = 1 + below(3); b > 0; --b) shape.lengths.push_back(one_of(kLengths));
    shape.kv_heads = 1 + below(3);
    shape.heads = shape.kv_heads * one_of(kGroups);
    shape.rows = below(2) == 0 ? 1 : 1 + below(8);
    shape.depth = one_of(kDepths);
    shape.dtype = kTypes[below(2)];
    shape.cache = kTypes[below(2)];
    shape.page = one_of(kPages);
    shape.heads_inside = below(2) == 0;
    shape.causal = below(4) != 0;
    shape.slopes = below(3) == 0;
    shape.mask = below(2) == 0 ? 0 : static_cast<int>(below(4));
    shape.offset = below(2);
    shape.long_lengths = below(2) == 0;
    shape.threads = 1 + static_cast<int>(below(4));
    check(shape);
  }
}

/// More rows of Q than meet K and V at once.
TEST_P(DecodeOnIsa, ManyRowsOnOneHead) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t heads : {31, 32, 33, 71}) {
      check({.lengths = {270, 40}, .heads = heads, .rows = 1, .depth = 20, .dtype = dtype, .cache = dtype, .page = 16});
    }
    check({.lengths = {300}, .heads = 16, .rows = 8, .depth = 64, .dtype = dtype, .cache = dtype});
  }
}

TEST_P(DecodeOnIsa, NothingIsFine) {
  EXPECT_TRUE(decode_attention({}, {}, GetParam()));
  EXPECT_TRUE(kv_append({}, {}, GetParam()));
}

TEST_P(DecodeOnIsa, AnyNumberOfThreadsGivesTheSameBits) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t page : {0, 16}) {
      Problem problem({.lengths = {1500, 0, 130, 2300},
                       .heads = 6,
                       .kv_heads = 3,
                       .rows = 2,
                       .depth = 40,
                       .dtype = dtype,
                       .cache = dtype,
                       .page = page},
                      random_);
      ASSERT_TRUE(decode_attention(problem.args(), {}, GetParam()));
      EXPECT_EQ(problem.difference(), "");
      const std::string expected = problem.results();
      for (int threads = 2; threads <= 9; ++threads) {
        problem.forget();
        ASSERT_TRUE(decode_attention(problem.args(), thread_parallel(threads), GetParam()));
        EXPECT_EQ(problem.results(), expected) << threads << " threads";
      }
    }
  }
}

/// More scratch than a thread keeps between calls, and the caller computes one part after the other: it is theirs until all are done.
TEST_P(DecodeOnIsa, ScratchOutlivesTheCallersFirstPart) {
  const auto one_after_the_other = [](void* /*context*/, int n, void (*fn)(void* arg, int i), void* arg) {
    for (int i = 0; i < n; ++i) fn(arg, i);
  };
  const Parallel parallel{.threads = 256, .run = one_after_the_other};
  Problem problem({.lengths = std::vector<std::int64_t>(256, 8), .heads = 32, .depth = 64}, random_);
  ASSERT_TRUE(decode_attention(problem.args(), parallel, GetParam()));
  EXPECT_EQ(problem.difference(), "");
}

/// A sequence alone, and in pages, has the bits that it has in a batch.
TEST_P(DecodeOnIsa, TheRestOfTheBatchDoesNotMatter) {
  const Shape shape{.lengths = {700, 3, 900}, .heads = 4, .kv_heads = 2, .depth = 24};
  Problem problem(shape, random_);
  ASSERT_TRUE(decode_attention(problem.args(), {}, GetParam()));
  Shape other = shape;
  other.lengths = {900};
  other.page = 8;
  Problem alone(other, random_);
  for (std::int64_t i = 0; i < alone.q().count(); ++i) alone.q().set(i, static_cast<float>(problem.q().get(2 * alone.q().count() + i)));
  for (std::int64_t token = 0; token < 900; ++token) {
    for (std::int64_t i = 0; i < 2 * 24; ++i) {
      alone.k().set(alone.place(0, 0, token) + i, static_cast<float>(problem.k().get(problem.place(2, 0, token) + i)));
      alone.v().set(alone.place(0, 0, token) + i, static_cast<float>(problem.v().get(problem.place(2, 0, token) + i)));
    }
  }
  ASSERT_TRUE(decode_attention(alone.args(), {}, GetParam()));
  for (std::int64_t head = 0; head < 4; ++head) {
    for (std::int64_t i = 0; i < 24; ++i) EXPECT_EQ(alone.out(0, head, 0, i), problem.out(2, head, 0, i));
  }
}

TEST_P(DecodeOnIsa, NanAndInfinity) {
  for (const std::int64_t length : {40, 600}) {
    const Shape shape{.lengths = {length, length}, .heads = 4, .kv_heads = 2, .rows = 2, .depth = 20};
    const auto nan_at = [](const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t i) {
      return std::isnan(problem.out(b, h, row, i));
    };
    Problem q(shape, random_);  // a NaN in Q: that row
    q.q().set(3 * 20 + 1, kNan);
    ASSERT_TRUE(decode_attention(q.args(), {}, GetParam()));
    Problem k(shape, random_);  // in K: the heads that share it
    k.k().set(k.place(1, 1, 3) + 5, kNan);
    ASSERT_TRUE(decode_attention(k.args(), {}, GetParam()));
    Problem v(shape, random_);  // in V: that column of theirs
    v.v().set(v.place(1, 1, 3) + 5, kNan);
    ASSERT_TRUE(decode_attention(v.args(), {}, GetParam()));
    Problem infinite({.lengths = {length, length}, .heads = 4, .kv_heads = 2, .rows = 2, .depth = 20, .mask = 1}, random_);
    for (std::int64_t i = 0; i < infinite.mask().count(); ++i) infinite.mask().set(i, i == length + 1 ? kInf : 0.0f);  // row 1 of head 0
    ASSERT_TRUE(decode_attention(infinite.args(), {}, GetParam()));
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t row = 0; row < 2; ++row) {
          for (std::int64_t i = 0; i < 20; ++i) {
            ASSERT_EQ(nan_at(q, b, h, row, i), b == 0 && h == 3 && row == 0);
            ASSERT_EQ(nan_at(k, b, h, row, i), b == 1 && h >= 2);
            ASSERT_EQ(nan_at(v, b, h, row, i), b == 1 && h >= 2 && i == 5);
            ASSERT_EQ(nan_at(infinite, b, h, row, i), b == 0 && h == 0 && row == 1);
          }
        }
      }
    }
  }
}

/// Whole stretches of keys are hidden, the first, the last or all.
TEST_P(DecodeOnIsa, StretchesThatSeeNothing) {
  for (const int which : {0, 1, 2}) {
    Problem problem({.lengths = {1000}, .depth = 16, .mask = 1}, random_);
    for (std::int64_t i = 0; i < 1000; ++i) problem.mask().set(i, which == 2 || (which == 0) == (i < 520) ? -kInf : 0.5f);
    ASSERT_TRUE(decode_attention(problem.args(), {}, GetParam()));
    EXPECT_EQ(problem.difference(), "") << which;
  }
}

/// Scores that grow from stretch to stretch, so that the first ones count for nothing, and huge values.
TEST_P(DecodeOnIsa, ScoresThatGrow) {
  for (const float top : {12.0f, 80.0f, 300.0f}) {
    for (const float large : {1.0f, 1e36f}) {
      Problem problem({.lengths = {1300}, .heads = 3, .kv_heads = 1, .depth = 16}, random_);
      problem.args().scale = 1;
      for (std::int64_t i = 0; i < 3 * 16; ++i) problem.q().set(i, i % 16 == 0 ? 1.0f : 0.0f);
      for (std::int64_t i = 0; i < 1300 * 16; ++i) {
        problem.k().set(i, static_cast<float>(i / 16) * top / 1300);
        problem.v().set(i, i % 2 == 0 ? large : -large);
      }
      ASSERT_TRUE(decode_attention(problem.args(), {}, GetParam()));
      EXPECT_EQ(problem.difference(), "") << top << " " << large;
    }
  }
}

TEST_P(DecodeOnIsa, WhatTheCacheDoesNotHaveIsRefused) {
  Problem problem({.lengths = {40, 40}, .depth = 16, .page = 16}, random_);
  const std::string before = problem.results();
  const auto refused = [&] { return !decode_attention(problem.args(), {}, GetParam()) && problem.results() == before; };
  problem.table()[4] = static_cast<std::int32_t>(problem.args().cache.blocks);
  EXPECT_TRUE(refused());
  problem.table()[4] = -1;
  EXPECT_TRUE(refused());
  problem.table()[4] = 0;
  const std::int32_t longer[] = {40, 49};
  problem.args().lengths.of_32_bits = longer;
  EXPECT_TRUE(refused());
  const std::int32_t negative[] = {-1, 40};
  problem.args().lengths.of_32_bits = negative;
  EXPECT_TRUE(refused());
  Problem whole({.lengths = {40, 40}, .depth = 16}, random_);
  whole.args().lengths.of_32_bits = longer;
  EXPECT_FALSE(decode_attention(whole.args(), {}, GetParam()));
}

TEST_P(DecodeOnIsa, Append) {
  for (int i = 0; i < sampled(60) && !HasFailure(); ++i) {
    const Shape shape{.lengths = {7 + below(40), 3 + below(90)},
                      .kv_heads = 1 + below(3),
                      .rows = 1 + below(3),
                      .depth = 1 + below(70),
                      .cache = kTypes[i % 2],
                      .page = below(2) * (1 + below(20)),
                      .heads_inside = below(2) == 0};
    Problem problem(shape, random_);
    KvAppendArgs args;
    args.dtype = kTypes[i / 2 % 2];
    args.cache = problem.args().cache;
    args.lengths = problem.args().lengths;
    args.batch = 2;
    args.kv_heads = shape.kv_heads;
    args.rows = shape.rows;
    args.depth = shape.depth;
    Buffer k(args.dtype, 2 * shape.rows * shape.kv_heads * shape.depth, i % 3);
    Buffer v(args.dtype, k.count(), i % 3);
    k.fill(random_);
    v.fill(random_);
    args.k = {k.data(), shape.rows * shape.kv_heads * shape.depth, shape.depth, shape.kv_heads * shape.depth};
    args.v = {v.data(), args.k.batch_stride, shape.rows * shape.depth, shape.depth};
    std::vector<double> expected_k;
    std::vector<double> expected_v;
    for (std::int64_t e = 0; e < problem.k().count(); ++e) {
      expected_k.push_back(problem.k().get(e));
      expected_v.push_back(problem.v().get(e));
    }
    const auto rounded = [&](double value) {
      return shape.cache == DType::kF32 ? value : static_cast<double>(bf16_to_f32(bf16_from_f32(static_cast<float>(value))));
    };
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < shape.kv_heads; ++h) {
        for (std::int64_t row = 0; row < shape.rows; ++row) {
          const std::int64_t to = problem.place(b, h, shape.lengths[static_cast<std::size_t>(b)] - shape.rows + row);
          for (std::int64_t e = 0; e < shape.depth; ++e) {
            expected_k[static_cast<std::size_t>(to + e)] =
                rounded(k.get(b * args.k.batch_stride + h * args.k.head_stride + row * args.k.row_stride + e));
            expected_v[static_cast<std::size_t>(to + e)] =
                rounded(v.get(b * args.v.batch_stride + h * args.v.head_stride + row * args.v.row_stride + e));
          }
        }
      }
    }
    ASSERT_TRUE(kv_append(args, thread_parallel(1 + i % 3), GetParam()));
    const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    for (std::int64_t e = 0; e < problem.k().count(); ++e) {
      ASSERT_TRUE(same(problem.k().get(e), expected_k[static_cast<std::size_t>(e)])) << describe(shape) << " " << e;
      ASSERT_TRUE(same(problem.v().get(e), expected_v[static_cast<std::size_t>(e)])) << describe(shape) << " " << e;
    }
    args.rows = 100;
    EXPECT_FALSE(kv_append(args, {}, GetParam()));
  }
}

TEST_P(DecodeOnIsa, WithoutLogsumexp) {
  for (const std::int64_t length : {40, 400}) {
    Problem problem({.lengths = {length}, .depth = 16}, random_);
    problem.args().logsumexp = nullptr;
    ASSERT_TRUE(decode_attention(problem.args(), {}, GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, DecodeOnIsa, testing::ValuesIn(levels_of(decode_attention_variants())),
                         [](const auto& level) { return std::string(decode_attention_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
