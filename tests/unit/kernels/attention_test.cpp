// The risk: a key or a part of the depth behind the end that joins a sum, a block of keys that is weighed wrongly against the ones before
// it, a mask read at the wrong place, a hidden key that counts, memory written between the rows. One file, though long: every case runs
// through the same plain attention and the same guarded memory.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/dispatch.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr double kEps = std::numeric_limits<float>::epsilon();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr DType kTypes[] = {DType::kF32, DType::kBf16};

/// Of operands and result, and whether fp32 may be rounded for the products.
struct Kind {
  DType dtype;
  bool inside = false;
  Kind(DType of, bool rounded = false) : dtype(of), inside(rounded) {}  // NOLINT(google-explicit-constructor): most are not rounded
};

enum class Mask { kNone, kWhole, kRowOfKeys, kColumn, kHalfPrecision };

struct Shape {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t rows = 1;
  std::int64_t keys = 1;
  std::int64_t depth = 1;
  bool causal = false;
  Mask mask = Mask::kNone;
  bool heads_inside = true;  ///< [batch, rows, heads, depth] in memory, else [batch, heads, rows, depth]
  std::int64_t gap = 0;      ///< elements between the rows of the result
  int threads = 1;
};

std::string describe(const Shape& s, Kind kind) {
  std::ostringstream text;
  text << "dtype " << static_cast<int>(kind.dtype) << (kind.inside ? " bf16 inside" : "") << " batch " << s.batch << " heads " << s.heads
       << "/" << s.kv_heads << " rows " << s.rows << " keys " << s.keys << " depth " << s.depth << (s.causal ? " causal" : "") << " mask "
       << static_cast<int>(s.mask) << " inside " << s.heads_inside << " gap " << s.gap << " threads " << s.threads;
  return text.str();
}

/// Buffers of a call with seeded numbers.
class Problem {
 public:
  Problem(const Shape& shape, Kind kind, std::mt19937& random) : shape_(shape) {
    const DType dtype = kind.dtype;
    args_.dtype = dtype;
    args_.bf16_inside = kind.inside;
    args_.batch = shape.batch;
    args_.heads = shape.heads;
    args_.kv_heads = shape.kv_heads;
    args_.rows = shape.rows;
    args_.keys = shape.keys;
    args_.depth = shape.depth;
    args_.causal = shape.causal;
    args_.scale = 1.7f / std::sqrt(static_cast<float>(shape.depth));
    args_.q = operand(&q_, shape.heads, shape.rows, random);
    args_.k = operand(&k_, shape.kv_heads, shape.keys, random);
    args_.v = operand(&v_, shape.kv_heads, shape.keys, random);
    if (shape.mask != Mask::kNone) make_mask(random);
    const std::int64_t row = shape.heads * shape.depth + shape.gap;
    out_ = Buffer(dtype, shape.batch * shape.rows * row - shape.gap);
    args_.out = out_.data();
    args_.out_batch_stride = shape.rows * row;
    args_.out_head_stride = shape.depth;
    args_.out_row_stride = row;
    lse_ = Buffer(DType::kF32, shape.batch * shape.rows * shape.heads);
    args_.logsumexp = reinterpret_cast<float*>(lse_.data());
    args_.lse_batch_stride = shape.rows * shape.heads;
    args_.lse_head_stride = 1;
    args_.lse_row_stride = shape.heads;
  }

  AttentionArgs& args() { return args_; }
  Buffer& q() { return q_; }
  Buffer& k() { return k_; }
  Buffer& v() { return v_; }
  Buffer& mask() { return mask_; }
  [[nodiscard]] const Buffer& out() const { return out_; }
  [[nodiscard]] double out(std::int64_t row, std::int64_t i) const { return out_.get(row * args_.out_row_stride + i); }
  [[nodiscard]] double lse(std::int64_t row) const { return lse_.get(row * args_.lse_row_stride); }
  [[nodiscard]] std::string results() const { return out_.bytes() + lse_.bytes(); }

  /// To be asked before difference(): whether rounding to bf16 may show.
  void rounds_at(IsaSet isa) { rounds_ = attention_bf16_inside(args_, isa); }

  /// Empty when all results are within the bounds of fp32 sums (and of bf16 weights, and of rounded operands) and nothing else was written;
  /// else what differs. Of many rows every `step`th is looked at.
  [[nodiscard]] std::string difference(std::int64_t step = 1) const {
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      for (std::int64_t h = 0; h < shape_.heads; ++h) {
        for (std::int64_t row = 0; row < shape_.rows;
             row = row + step < shape_.rows || row + 1 == shape_.rows ? row + step : shape_.rows - 1) {
          if (std::string text = row_difference(b, h, row); !text.empty()) return text;
        }
      }
    }
    for (std::int64_t i = 0; i < out_.count(); ++i) {
      if (i % args_.out_row_stride >= shape_.heads * shape_.depth && !out_.untouched(i)) return "memory between rows was written";
    }
    return "";
  }

 private:
  Heads operand(Buffer* to, std::int64_t heads, std::int64_t rows, std::mt19937& random) const {
    std::normal_distribution<float> normal;
    *to = Buffer(args_.dtype, shape_.batch * heads * rows * shape_.depth);
    for (std::int64_t i = 0; i < to->count(); ++i) to->set(i, normal(random));
    const std::int64_t all = heads * rows * shape_.depth;
    if (shape_.heads_inside) return {to->data(), all, shape_.depth, heads * shape_.depth};
    return {to->data(), all, rows * shape_.depth, shape_.depth};
  }

  void make_mask(std::mt19937& random) {
    AttentionMask& mask = args_.mask;
    if (shape_.mask == Mask::kWhole || shape_.mask == Mask::kHalfPrecision) {
      mask.key_stride = 1;
      mask.row_stride = shape_.keys;
      mask.head_stride = shape_.rows * shape_.keys;
      mask.batch_stride = shape_.heads * shape_.rows * shape_.keys;
    } else if (shape_.mask == Mask::kRowOfKeys) {
      mask.key_stride = 1;
      mask.batch_stride = shape_.keys;
    } else {
      mask.row_stride = 1;
      mask.head_stride = shape_.rows;
    }
    mask.dtype = shape_.mask == Mask::kHalfPrecision ? DType::kBf16 : DType::kF32;
    mask_ = Buffer(mask.dtype, (shape_.batch - 1) * mask.batch_stride + (shape_.heads - 1) * mask.head_stride +
                                   (shape_.rows - 1) * mask.row_stride + (shape_.keys - 1) * mask.key_stride + 1);
    mask.data = mask_.data();
    std::uniform_int_distribution<int> kind(0, 9);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < mask_.count(); ++i) {
      const int which = kind(random);
      mask_.set(i, which == 0 ? -kInf : which == 1 ? -1e4f : which == 2 ? kLowest : normal(random));
    }
  }

  [[nodiscard]] std::string row_difference(std::int64_t b, std::int64_t h, std::int64_t row) const {
    const std::int64_t kv = h / (shape_.heads / shape_.kv_heads);
    const std::int64_t visible = shape_.causal ? std::min(shape_.keys, row + 1) : shape_.keys;
    std::vector<double> scores;
    std::vector<double> magnitudes;
    std::vector<double> rounded;  ///< what rounding Q and K may cost a score
    double largest = -HUGE_VAL;
    const auto scale = static_cast<double>(args_.scale);
    for (std::int64_t key = 0; key < visible; ++key) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t i = 0; i < shape_.depth; ++i) {
        const double product = q_.get(place(args_.q, b, h, row) + i) * k_.get(place(args_.k, b, kv, key) + i) * scale;
        sum += product;
        magnitude += std::fabs(product);
      }
      // Above a root of squares of 4 a score is the product of two parts of each factor, at 16 bits; below, this is what it can be at most.
      const double most = std::min(magnitude, 4 * std::sqrt(static_cast<double>(shape_.depth)) + magnitude * 3 / 512);
      rounded.push_back(rounds_ ? most / 128 : 0);
      if (args_.mask.data != nullptr) {
        const AttentionMask& m = args_.mask;
        const double added = mask_.get(b * m.batch_stride + h * m.head_stride + row * m.row_stride + key * m.key_stride);
        sum = static_cast<double>(static_cast<float>(sum + added));  // beside the lowest float nothing else counts
        magnitude += std::isinf(added) ? 0 : std::fabs(added) / static_cast<double>(shape_.depth);
      }
      scores.push_back(sum);
      magnitudes.push_back(magnitude);
      largest = std::max(largest, sum);
    }
    const bool nothing = largest == -HUGE_VAL;
    double sum = 0;
    double score_error = 0;
    double score_rounding = 0;
    for (std::size_t key = 0; key < scores.size(); ++key) {
      const double weight = nothing ? 0 : std::exp(scores[key] - largest);
      // With all scores at the lowest float, their differences from it are what counts, and they are 0.
      if (weight > 1e-12 && largest > -1e30)
        score_error = std::max(score_error, kEps * static_cast<double>(shape_.depth + 4) * magnitudes[key]);
      if (weight > 1e-12) score_rounding = std::max(score_rounding, rounded[key]);
      scores[key] = weight;
      sum += weight;
    }
    std::ostringstream text;
    text << describe(shape_, {args_.dtype, args_.bf16_inside}) << ": batch " << b << " head " << h << " row " << row << ": ";
    const double lse = nothing ? 0 : largest + std::log(sum);
    const double lse_seen = lse_.get(b * args_.lse_batch_stride + h + row * args_.lse_row_stride);
    const double relative = std::expm1(2 * score_rounding) + 2 * score_error + kEps * (static_cast<double>(visible) / 4 + 30);
    if (!(std::fabs(lse_seen - lse) <= relative + 4 * kEps * std::fabs(lse))) {
      text << "logsumexp " << lse_seen << ", truth " << lse;
      return text.str();
    }
    for (std::int64_t i = 0; i < shape_.depth; ++i) {
      double truth = 0;
      double magnitude = 0;
      for (std::size_t key = 0; key < scores.size(); ++key) {
        const double term = nothing ? 0 : scores[key] / sum * v_.get(place(args_.v, b, kv, static_cast<std::int64_t>(key)) + i);
        truth += term;
        magnitude += std::fabs(term);
      }
      double bound = relative * magnitude;
      if (args_.dtype == DType::kBf16) bound += magnitude / 256 + (std::fabs(truth) + magnitude / 256) / 256;
      if (rounds_) bound += magnitude / 128;
      const double seen = out_.get(b * args_.out_batch_stride + h * shape_.depth + row * args_.out_row_stride + i);
      if (!(std::fabs(seen - truth) <= bound)) {
        text << i << " is " << seen << ", truth " << truth << ", bound " << bound;
        return text.str();
      }
    }
    return "";
  }

  static std::int64_t place(const Heads& heads, std::int64_t b, std::int64_t h, std::int64_t row) {
    return b * heads.batch_stride + h * heads.head_stride + row * heads.row_stride;
  }

  Shape shape_;
  AttentionArgs args_;
  bool rounds_ = false;
  Buffer q_, k_, v_, mask_, out_, lse_;
};

class AttentionOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20240613};

  void check(const Shape& shape, Kind kind, std::int64_t step = 1) {
    Problem problem(shape, kind, random_);
    problem.rounds_at(GetParam());
    ASSERT_TRUE(attention(problem.args(), thread_parallel(shape.threads), GetParam())) << describe(shape, kind);
    EXPECT_EQ(problem.difference(step), "");
  }
  /// Those that differ at this level.
  static std::vector<Kind> kinds() {
    std::vector<Kind> all(std::begin(kTypes), std::end(kTypes));
    if (isa_has(GetParam(), kIsaAmxBf16)) all.emplace_back(DType::kF32, true);
    return all;
  }
  template <std::size_t N>
  std::int64_t one_of(const std::int64_t (&values)[N]) {
    return values[random_() % N];
  }
};

TEST_P(AttentionOnIsa, SizesAroundEachBlock) {
  constexpr std::int64_t kRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 17, 31, 47, 48, 49, 53, 96, 97};
  constexpr std::int64_t kKeys[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 77, 97, 127, 128, 129, 197};
  constexpr std::int64_t kDepths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65, 72, 80, 96};
  for (int i = 0; i < sampled(400) && !HasFailure(); ++i) {
    Shape shape;
    shape.batch = 1 + static_cast<std::int64_t>(random_() % 2);
    shape.kv_heads = 1 + static_cast<std::int64_t>(random_() % 3);
    shape.heads = shape.kv_heads * (1 + static_cast<std::int64_t>(random_() % 2));
    shape.rows = one_of(kRows);
    shape.keys = one_of(kKeys);
    shape.depth = one_of(kDepths);
    shape.causal = random_() % 3 == 0;
    shape.mask = static_cast<Mask>(random_() % 5);
    shape.heads_inside = random_() % 2 == 0;
    shape.gap = random_() % 2 == 0 ? 0 : 5;
    shape.threads = 1 + static_cast<int>(random_() % 3);
    check(shape, {kTypes[i % 2], i % 4 == 0}, 1 + shape.rows / 16);
  }
}

/// Rows, keys and depths around two tiles and around a block of keys, up to the widest head.
TEST_P(AttentionOnIsa, SizesAroundTilesAndBlocksOfKeys) {
  constexpr std::int64_t kRows[] = {15, 16, 17, 31, 32, 33, 48, 63, 64, 65};
  constexpr std::int64_t kKeys[] = {31, 32, 33, 223, 224, 225, 255, 256, 257, 287, 288, 289, 383, 384, 385, 511, 512, 513};
  constexpr std::int64_t kDepths[] = {1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 160, 192, 255, 256};
  for (int i = 0; i < sampled(120) && !HasFailure(); ++i) {
    Shape shape;
    shape.kv_heads = 1 + static_cast<std::int64_t>(random_() % 2);
    shape.heads = shape.kv_heads * (1 + static_cast<std::int64_t>(random_() % 2));
    shape.rows = one_of(kRows);
    shape.keys = one_of(kKeys);
    shape.depth = one_of(kDepths);
    shape.causal = random_() % 2 == 0;
    shape.mask = random_() % 2 == 0 ? Mask::kNone : static_cast<Mask>(random_() % 5);
    shape.heads_inside = random_() % 2 == 0;
    shape.gap = random_() % 2 == 0 ? 0 : 3;
    shape.threads = 1 + static_cast<int>(random_() % 3);
    check(shape, {i % 2 == 0 ? DType::kF32 : DType::kBf16, i % 4 == 0}, 1 + shape.rows / 8);
  }
}

TEST_P(AttentionOnIsa, ManyBlocksOfKeys) {
  for (const Kind kind : kinds()) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t keys : {511, 513, 1100, 1536}) {
        for (const std::int64_t rows : {1, 9, 700}) {
          check({.heads = 2,
                 .kv_heads = 1,
                 .rows = rows,
                 .keys = keys,
                 .depth = 20,
                 .causal = causal,
                 .mask = Mask::kRowOfKeys,
                 .threads = 2},
                kind, 1 + rows / 8);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(AttentionOnIsa, KeysThatScratchDoesNotHoldAtOnce) {
  for (const Kind kind : kinds()) {
    check({.heads = 2, .kv_heads = 2, .rows = 60, .keys = 4500, .depth = 128}, kind, 20);
    check({.rows = 60, .keys = 4500, .depth = 128, .causal = true, .mask = Mask::kRowOfKeys}, kind, 20);
  }
}

TEST_P(AttentionOnIsa, NothingIsFine) {
  EXPECT_TRUE(attention({}, {}, GetParam()));
  AttentionArgs args;
  args.batch = args.heads = args.kv_heads = args.depth = args.keys = 3;
  EXPECT_TRUE(attention(args, {}, GetParam()));
}

TEST_P(AttentionOnIsa, RowsThatSeeNothingAreZero) {
  for (const Kind kind : kinds()) {
    for (const std::int64_t keys : {5, 40, 600}) {
      Problem problem({.rows = 9, .keys = keys, .depth = 16, .mask = Mask::kWhole}, kind, random_);
      for (std::int64_t key = 0; key < keys; ++key) problem.mask().set(4 * keys + key, -kInf);
      problem.rounds_at(GetParam());
      ASSERT_TRUE(attention(problem.args(), {}, GetParam()));
      EXPECT_EQ(problem.difference(), "");
      for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(problem.out(4, i), 0.0);
      EXPECT_EQ(problem.lse(4), 0.0);
    }
  }
}

/// The lowest float is no -inf: such rows are means.
TEST_P(AttentionOnIsa, RowsMaskedWithTheLowestFloatAreMeans) {
  for (const Kind kind : kinds()) {
    for (const std::int64_t rows : {1, 9}) {
      Problem problem({.rows = rows, .keys = 530, .depth = 16, .mask = Mask::kWhole}, kind, random_);
      for (std::int64_t i = 0; i < rows * 530; ++i) problem.mask().set(i, kLowest);
      problem.rounds_at(GetParam());
      ASSERT_TRUE(attention(problem.args(), {}, GetParam()));
      EXPECT_EQ(problem.difference(), "");
      EXPECT_NE(problem.out(0, 0), 0.0);
    }
  }
}

/// The first block of keys is hidden altogether, the second is not, and the other way round.
TEST_P(AttentionOnIsa, BlocksThatSeeNothing) {
  for (const Kind kind : kinds()) {
    for (const bool first : {true, false}) {
      Problem problem({.rows = 9, .keys = 1030, .depth = 16, .mask = Mask::kWhole}, kind, random_);
      for (std::int64_t i = 0; i < 9 * 1030; ++i) problem.mask().set(i, (i % 1030 < 515) == first ? -kInf : 0.5f);
      problem.rounds_at(GetParam());
      ASSERT_TRUE(attention(problem.args(), {}, GetParam()));
      EXPECT_EQ(problem.difference(), "");
    }
  }
}

TEST_P(AttentionOnIsa, LargeScores) {
  for (const Kind kind : kinds()) {
    Problem problem({.rows = 13, .keys = 600, .depth = 16}, kind, random_);
    for (const float scale : {-1.0f, 0.0f, kind.inside ? 40.0f : 100.0f}) {  // see ScoresThatRoundingWouldSpoil
      problem.args().scale = scale;
      problem.rounds_at(GetParam());
      ASSERT_TRUE(attention(problem.args(), {}, GetParam()));
      EXPECT_EQ(problem.difference(), "") << scale;
    }
  }
}

/// The largest score comes late, so late weights are huge beside the first keys' (or would overflow): what was summed has to be redone.
TEST_P(AttentionOnIsa, ScoresThatGrow) {
  for (const Kind kind : kinds()) {
    for (const float top : {12.0f, 45.0f, 80.0f, 300.0f}) {
      for (const float large : {1.0f, 1e34f, 1e36f}) {
        for (const bool masked : {false, true}) {
          Problem problem({.rows = 35, .keys = 300, .depth = 16, .mask = masked ? Mask::kRowOfKeys : Mask::kNone}, kind, random_);
          problem.args().scale = 1;
          for (std::int64_t i = 0; i < 35 * 16; ++i) problem.q().set(i, i % 16 == 0 ? 1.0f : 0.0f);
          for (std::int64_t i = 0; i < 300 * 16; ++i) problem.k().set(i, masked ? 0.0f : static_cast<float>(i / 16) * top / 300);
          if (masked) {
            for (std::int64_t key = 0; key < 300; ++key) problem.mask().set(key, static_cast<float>(key) * top / 300);
          }
          for (std::int64_t i = 0; i < 300 * 16; ++i) problem.v().set(i, i % 2 == 0 ? large : -large);
          problem.rounds_at(GetParam());
          ASSERT_TRUE(attention(problem.args(), {}, GetParam()));
          EXPECT_EQ(problem.difference(), "") << top << " " << large << " " << masked;
        }
      }
    }
  }
}

/// One key far above all before it: its weight has an exponent that no float has.
TEST_P(AttentionOnIsa, ScoresThatJump) {
  for (const Kind kind : kinds()) {
    for (const float top : {80.0f, 88.0f, 89.0f, 90.0f, 100.0f, 130.0f, 176.0f, 178.0f, 180.0f, 266.0f, 300.0f, 700.0f}) {
      Problem problem({.rows = 33, .keys = 140, .depth = 16}, kind, random_);
      problem.args().scale = 1;
      for (std::int64_t i = 0; i < 33 * 16; ++i) problem.q().set(i, i % 16 == 0 ? 1.0f : 0.0f);
      for (std::int64_t i = 0; i < 140 * 16; ++i) problem.k().set(i, i == 100 * 16 ? top : 0.0f);
      problem.rounds_at(GetParam());
      ASSERT_TRUE(attention(problem.args(), {}, GetParam()));
      EXPECT_EQ(problem.difference(), "") << top;
    }
  }
}

/// The rule for one op in bf16, however large the scores are; those so large that two parts of bf16 do not hold them are refused.
TEST_P(AttentionOnIsa, ScoresThatRoundingWouldSpoil) {
  if (!isa_has(GetParam(), kIsaAmxBf16)) GTEST_SKIP() << "nothing is rounded";
  for (const float large : {0.1f, 1.0f, 1.4f, 3.0f, 20.0f, 90.0f, 2000.0f}) {
    for (const Shape& shape :
         {Shape{.rows = 70, .keys = 600, .depth = 64}, Shape{.rows = 40, .keys = 4500, .depth = 128, .causal = true}}) {
      Problem problem(shape, {DType::kF32, true}, random_);
      for (std::int64_t i = 0; i < problem.q().count(); ++i) problem.q().set(i, static_cast<float>(problem.q().get(i)) * large);
      Problem exact(shape, DType::kF32, random_);
      exact.args().scale = problem.args().scale = 0.125f;
      exact.args().q = problem.args().q;
      exact.args().k = problem.args().k;
      exact.args().v = problem.args().v;
      ASSERT_TRUE(attention(exact.args(), {}, GetParam()));
      EXPECT_EQ(attention(problem.args(), {}, GetParam()), large < 1000) << large;
      if (large > 1000) continue;
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        double difference = 0;
        double size = 0;
        for (std::int64_t i = 0; i < shape.depth; ++i) {
          difference += std::pow(problem.out(row, i) - exact.out(row, i), 2);
          size += std::pow(exact.out(row, i), 2);
        }
        ASSERT_LE(std::sqrt(difference / size), 8e-3) << large << " row " << row;
      }
    }
  }
}

TEST_P(AttentionOnIsa, FewRowsAreNotRounded) {
  for (const std::int64_t rows : {1, 2, 4, 5}) {
    Problem problem({.rows = rows, .keys = 77, .depth = 24}, {DType::kF32, true}, random_);
    EXPECT_EQ(attention_bf16_inside(problem.args(), GetParam()), rows == 5 && isa_has(GetParam(), kIsaAmxBf16));
    problem.rounds_at(GetParam());
    ASSERT_TRUE(attention(problem.args(), {}, GetParam()));
    EXPECT_EQ(problem.difference(), "");
    problem.args().dtype = DType::kBf16;
    EXPECT_FALSE(attention_bf16_inside(problem.args(), GetParam()));
  }
}

/// Rows of a block whose first keys are hidden, beside rows that see them.
TEST_P(AttentionOnIsa, FirstKeysHiddenFromSomeRows) {
  for (const Kind kind : kinds()) {
    for (const float hidden : {-kInf, -1e4f}) {
      Problem problem({.rows = 40, .keys = 330, .depth = 16, .mask = Mask::kWhole}, kind, random_);
      for (std::int64_t i = 0; i < 40 * 330; ++i) problem.mask().set(i, i / 330 % 3 == 1 && i % 330 < 260 ? hidden : 0.25f);
      problem.rounds_at(GetParam());
      ASSERT_TRUE(attention(problem.args(), {}, GetParam()));
      EXPECT_EQ(problem.difference(), "") << hidden;
    }
  }
}

TEST_P(AttentionOnIsa, NanAndInfinity) {
  constexpr std::int64_t kDepth = 20;
  for (const Kind kind : kinds()) {
    for (const std::int64_t rows : {3, 13}) {
      for (const std::int64_t keys : {7, 40, 600}) {
        const Shape shape{.rows = rows, .keys = keys, .depth = kDepth};
        const auto nan_at = [&](const Problem& problem, std::int64_t row, std::int64_t i) { return std::isnan(problem.out(row, i)); };
        Problem q(shape, kind, random_);  // a NaN in Q: that row
        q.q().set(2 * kDepth + 3, kNan);
        ASSERT_TRUE(attention(q.args(), {}, GetParam()));
        for (std::int64_t row = 0; row < rows; ++row) {
          EXPECT_EQ(std::isnan(q.lse(row)), row == 2);
          for (std::int64_t i = 0; i < kDepth; ++i) ASSERT_EQ(nan_at(q, row, i), row == 2) << rows << " " << keys << " " << row;
        }
        Problem k(shape, kind, random_);  // in K: all rows
        k.k().set(5 * kDepth + 3, kNan);
        ASSERT_TRUE(attention(k.args(), {}, GetParam()));
        for (std::int64_t row = 0; row < rows; ++row) ASSERT_TRUE(nan_at(k, row, 0)) << rows << " " << keys << " " << row;
        Problem v(shape, kind, random_);  // in V: that column
        v.v().set((keys - 1) * kDepth + 3, kNan);
        ASSERT_TRUE(attention(v.args(), {}, GetParam()));
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t i = 0; i < kDepth; ++i) ASSERT_EQ(nan_at(v, row, i), i == 3) << rows << " " << keys << " " << row;
        }
        Problem infinite({.rows = rows, .keys = keys, .depth = kDepth, .mask = Mask::kWhole}, kind, random_);  // a score of +inf
        for (std::int64_t i = 0; i < rows * keys; ++i) infinite.mask().set(i, i == 2 * keys + 1 ? kInf : 0.0f);
        ASSERT_TRUE(attention(infinite.args(), {}, GetParam()));
        for (std::int64_t row = 0; row < rows; ++row) ASSERT_EQ(nan_at(infinite, row, 0), row == 2) << rows << " " << keys << " " << row;
      }
    }
  }
}

TEST_P(AttentionOnIsa, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Kind kind : kinds()) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t rows : {2, 150}) {
        Problem problem({.batch = 2, .heads = 3, .kv_heads = 3, .rows = rows, .keys = 530, .depth = 40, .causal = causal}, kind, random_);
        problem.rounds_at(GetParam());
        ASSERT_TRUE(attention(problem.args(), {}, GetParam()));
        const std::string expected = problem.results();
        for (int threads = 2; threads <= 7; ++threads) {
          std::memset(problem.args().out, 0x7f, problem.out().bytes().size());
          ASSERT_TRUE(attention(problem.args(), thread_parallel(threads), GetParam()));
          EXPECT_EQ(problem.results(), expected) << threads << " threads, rows " << rows << " causal " << causal;
        }
      }
    }
  }
}

TEST_P(AttentionOnIsa, WithoutLogsumexp) {
  for (const std::int64_t rows : {1, 20}) {
    Problem problem({.rows = rows, .keys = 40, .depth = 16}, DType::kF32, random_);
    ASSERT_TRUE(attention(problem.args(), {}, GetParam()));
    const std::string expected = problem.out().bytes();
    problem.args().logsumexp = nullptr;
    ASSERT_TRUE(attention(problem.args(), {}, GetParam()));
    EXPECT_EQ(problem.out().bytes(), expected);
  }
}

TEST_P(AttentionOnIsa, UsesTheVariantOfItsLevel) {
  const AttentionVariants table = attention_variants(DType::kBf16);
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(attention_variant(DType::kBf16, GetParam()), table.first[i].name);
      EXPECT_EQ(attention_supported(DType::kBf16, GetParam()), i + 1 < table.count);
    }
  }
  const std::string of_fp32 = attention_variant(DType::kF32, GetParam());
  EXPECT_TRUE(of_fp32 == "ref" || of_fp32 == "avx2" || of_fp32 == "avx512") << of_fp32;
}

INSTANTIATE_TEST_SUITE_P(Levels, AttentionOnIsa, testing::ValuesIn(levels_of(attention_variants(DType::kBf16))),
                         [](const auto& level) { return std::string(attention_variant(DType::kBf16, level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
