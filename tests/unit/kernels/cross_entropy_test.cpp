// The risk: a block that is scaled wrongly to the next, a tail that joins a sum, an ignored row that counts, a target beyond the row.
#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBf16};
constexpr Reduction kReductions[] = {Reduction::kNone, Reduction::kSum, Reduction::kMean};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Half the distance of two neighbours of a bf16.
double half_of(double truth, DType dtype) { return dtype == DType::kBf16 ? std::fabs(truth) / 256 : 0; }

class CrossEntropyOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20240613};

  struct Kind {
    DType dtype = DType::kF32;
    double smoothing = 0;
    int weights = 0;  ///< 0 none, 1 fp32, 2 bf16
    Reduction reduction = Reduction::kMean;
    float mean = 0;
    float deviation = 3;
    bool in_place = false;
    int threads = 1;
  };

  void check(std::int64_t rows, std::int64_t n, const Kind& kind) {
    const std::int64_t stride = n + 3;
    Buffer logits(kind.dtype, rows * stride - 3, n % 7);
    logits.fill(random_, kind.mean, kind.deviation);
    const DType weight_dtype = kind.weights == 2 ? DType::kBf16 : DType::kF32;
    Buffer weight(weight_dtype, n, n % 3);
    for (std::int64_t i = 0; i < n; ++i) weight.set(i, 0.25f + static_cast<float>(i % 5));
    std::vector<std::int64_t> targets(static_cast<std::size_t>(rows));
    for (auto& target : targets) target = static_cast<std::int64_t>(random_() % 0x7fffffffu) % n;
    targets[0] = n - 1;
    if (rows > 1) targets[1] = -100;
    const bool none = kind.reduction == Reduction::kNone;
    const DType loss_dtype = kind.dtype;
    const Buffer loss(loss_dtype, none ? rows : 1);
    const Buffer lse(DType::kF32, rows);
    double divisor = -1;
    CrossEntropyArgs args;
    args.logits = logits.data();
    args.dtype = kind.dtype;
    args.rows = rows;
    args.columns = n;
    args.row_stride = stride;
    args.targets = targets.data();
    args.weight = kind.weights == 0 ? nullptr : weight.data();
    args.weight_dtype = weight_dtype;
    args.smoothing = kind.smoothing;
    args.reduction = kind.reduction;
    args.loss = loss.data();
    args.loss_dtype = loss_dtype;
    args.lse = reinterpret_cast<float*>(lse.data());
    args.divisor = &divisor;
    const Parallel parallel = kind.threads > 1 ? thread_parallel(kind.threads) : Parallel{};
    ASSERT_TRUE(cross_entropy(args, parallel, GetParam()));

    const auto w = [&](std::int64_t i) { return kind.weights == 0 ? 1.0 : weight.get(i); };
    std::vector<double> truth_lse(static_cast<std::size_t>(rows));
    double total = 0;
    double counted = 0;
    double allowed = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto x = [&](std::int64_t i) { return logits.get(row * stride + i); };
      double largest = -HUGE_VAL;
      double least = HUGE_VAL;
      double sum = 0;
      double smooth = 0;
      double weights = 0;
      for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, x(i));
      for (std::int64_t i = 0; i < n; ++i) least = std::min(least, x(i));
      for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x(i) - largest);
      const double truth = truth_lse[static_cast<std::size_t>(row)] = largest + std::log(sum);
      for (std::int64_t i = 0; i < n; ++i) weights += w(i);
      for (std::int64_t i = 0; i < n; ++i) smooth += w(i) * (truth - x(i));
      ASSERT_NEAR(lse.get(row), truth, 1e-6 * (1 + std::fabs(truth))) << "columns " << n << " row " << row;
      const std::int64_t target = targets[static_cast<std::size_t>(row)];
      double value = 0;
      double bound = 0;
      if (target >= 0) {
        value = (1 - kind.smoothing) * w(target) * (truth - x(target)) + kind.smoothing / static_cast<double>(n) * smooth;
        bound = 1e-6 * (1 + truth - least) * (w(target) + weights / static_cast<double>(n));
        counted += w(target);
      }
      total += value;
      allowed += bound;
      if (none) {
        ASSERT_NEAR(loss.get(row), value, bound + half_of(value, loss_dtype)) << n << " row " << row;
      }
    }
    EXPECT_DOUBLE_EQ(divisor, counted);
    if (!none) {
      const double by = kind.reduction == Reduction::kMean ? counted : 1;
      ASSERT_NEAR(loss.get(0), total / by, allowed / by + half_of(total / by, loss_dtype)) << n;
    }

    Buffer before(kind.dtype, logits.count());
    std::memcpy(before.data(), logits.data(), static_cast<std::size_t>(logits.count() * bytes_of(kind.dtype)));
    const Buffer apart(kind.dtype, rows * stride - 3, 5);
    const Buffer& grad = kind.in_place ? logits : apart;
    Buffer loss_grad(loss_dtype, none ? rows : 1);
    loss_grad.fill(random_, 2);
    CrossEntropyGradArgs back;
    static_cast<CrossEntropyRows&>(back) = args;
    back.lse = args.lse;
    back.loss_grad = loss_grad.data();
    back.loss_grad_dtype = loss_dtype;
    back.loss_grad_stride = none ? 1 : 0;
    back.divisor = kind.reduction == Reduction::kMean ? divisor : 1;
    back.grad = grad.data();
    back.grad_stride = stride;
    ASSERT_TRUE(cross_entropy_grad(back, parallel, GetParam()));
    EXPECT_TRUE(grad.front_is_clean());
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t target = targets[static_cast<std::size_t>(row)];
      const double g = loss_grad.get(none ? row : 0) / back.divisor;
      const double log_sum = truth_lse[static_cast<std::size_t>(row)];
      double weights = 0;
      for (std::int64_t i = 0; i < n; ++i) weights += w(i);
      for (std::int64_t i = 0; i < n; ++i) {
        double value = 0;
        double bound = 0;
        if (target >= 0) {
          const double own = (1 - kind.smoothing) * w(target);
          const double part = kind.smoothing / static_cast<double>(n);
          const double softmax = std::exp(before.get(row * stride + i) - log_sum) * (own + part * weights);
          value = g * (softmax - (i == target ? own : 0) - part * w(i));
          bound = std::fabs(g) * (1e-6 * (1 + std::fabs(log_sum)) * softmax + 3e-7 * part * w(i) + 1e-37 * (own + part * weights)) + 1e-37;
          if (i == target) bound += std::fabs(g) * own * 1e-7;
        }
        ASSERT_NEAR(grad.get(row * stride + i), value, bound + half_of(value, kind.dtype) + half_of(bound, kind.dtype))
            << n << " smoothing " << kind.smoothing << " weights " << kind.weights << " row " << row << " at " << i << " target " << target;
      }
      for (std::int64_t i = n; i < stride && row + 1 < rows; ++i) {
        EXPECT_EQ(grad.get(row * stride + i), kind.in_place ? before.get(row * stride + i) : apart.get(row * stride + i));
      }
    }
  }
};

TEST_P(CrossEntropyOnIsa, ColumnsAroundEachBlock) {
  for (const DType dtype : kTypes) {
    for (std::int64_t n = 1; n <= 140; ++n) {
      for (const double smoothing : {0.0, 0.1}) {
        check(3, n, {.dtype = dtype, .smoothing = smoothing, .weights = static_cast<int>(n % 3), .in_place = n % 2 == 0});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CrossEntropyOnIsa, LongRows) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : {2047, 2048, 2049, 4095, 4096, 4097, 12289, 32000}) {
      for (const Reduction reduction : kReductions) {
        const int weights = static_cast<int>(n % 3);
        check(4, n, {.dtype = dtype, .smoothing = n % 2 == 0 ? 0.2 : 0.0, .weights = weights, .reduction = reduction});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CrossEntropyOnIsa, WeightsSmoothingAndLargeMeans) {
  for (const DType dtype : kTypes) {
    for (const double smoothing : {0.0, 0.3, 1.0}) {
      for (const int weights : {0, 1, 2}) {
        for (const float mean : {0.0f, 200.0f, -200.0f}) {
          check(5, 4500, {.dtype = dtype, .smoothing = smoothing, .weights = weights, .mean = mean, .deviation = mean == 0 ? 20.0f : 1.0f});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// The largest element in the first block, the last, and growing from block to block.
TEST_P(CrossEntropyOnIsa, BlocksOfUnequalSize) {
  constexpr std::int64_t kColumns = 3 * 4096 + 17;
  for (int shape = 0; shape < 4; ++shape) {
    std::vector<float> x(kColumns);
    for (std::int64_t i = 0; i < kColumns; ++i) {
      const auto block = static_cast<float>(i / 4096);
      x[static_cast<std::size_t>(i)] = shape == 0   ? 100 - 30 * block
                                       : shape == 1 ? 30 * block
                                       : shape == 2 ? 200 * block
                                                    : (i < 5000 ? -kInf : 1);
    }
    double sum = 0;
    const double largest = static_cast<double>(*std::max_element(x.begin(), x.end()));
    for (const float value : x) sum += std::exp(static_cast<double>(value) - largest);
    const std::int64_t target = 6000;
    float loss = 0;
    float lse = 0;
    CrossEntropyArgs args;
    args.logits = x.data();
    args.rows = 1;
    args.columns = args.row_stride = kColumns;
    args.targets = &target;
    args.loss = &loss;
    args.lse = &lse;
    ASSERT_TRUE(cross_entropy(args, {}, GetParam()));
    EXPECT_NEAR(static_cast<double>(lse), largest + std::log(sum), 1e-6 * (1 + largest)) << shape;
    EXPECT_NEAR(static_cast<double>(loss), largest + std::log(sum) - static_cast<double>(x[6000]), 1e-6 * (1 + largest)) << shape;
  }
}

/// The first element of a row, one in the middle, the last, and all of them; the rows around show what leaks.
TEST_P(CrossEntropyOnIsa, NanAndInfinity) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : {5, 33, 100, 4100}) {
      for (const float value : {kNan, kInf, -kInf}) {
        for (const std::int64_t place : {std::int64_t{0}, n / 2, n - 1, std::int64_t{-1}}) {
          Buffer x(dtype, 3 * n);
          x.fill(random_);
          for (std::int64_t i = 0; i < n; ++i) {
            if (place < 0 || i == place) x.set(n + i, value);
          }
          const std::vector<std::int64_t> targets(3, 1);
          const Buffer loss(DType::kF32, 3);
          const Buffer lse(DType::kF32, 3);
          const Buffer grad(dtype, 3 * n);
          CrossEntropyArgs args;
          args.logits = x.data();
          args.dtype = dtype;
          args.rows = 3;
          args.columns = args.row_stride = n;
          args.targets = targets.data();
          args.reduction = Reduction::kNone;
          args.loss = loss.data();
          args.lse = reinterpret_cast<float*>(lse.data());
          ASSERT_TRUE(cross_entropy(args, {}, GetParam()));
          const bool spoiled = place < 0 || value != -kInf;
          for (int row = 0; row < 3; ++row) {
            EXPECT_EQ(std::isnan(loss.get(row)), row == 1 && spoiled) << n << " " << value << " at " << place << " row " << row;
          }
          constexpr float kOne = 1;
          CrossEntropyGradArgs back;
          static_cast<CrossEntropyRows&>(back) = args;
          back.lse = args.lse;
          back.loss_grad = &kOne;
          back.grad = grad.data();
          back.grad_stride = n;
          ASSERT_TRUE(cross_entropy_grad(back, {}, GetParam()));
          for (std::int64_t i = 0; i < 3 * n; ++i) {
            if (i / n != 1) {
              ASSERT_TRUE(std::isfinite(grad.get(i)));
            } else if (std::isnan(value) || place < 0) {
              ASSERT_TRUE(std::isnan(grad.get(i))) << n << " " << value << " at " << place << ", " << i;
            } else if (value < 0) {
              ASSERT_TRUE(std::isfinite(grad.get(i)));
              if (i - n == place && place != 1) {
                ASSERT_EQ(grad.get(i), 0.0);
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(CrossEntropyOnIsa, TargetsThatAreNoColumns) {
  Buffer x(DType::kF32, 2 * 5);
  x.fill(random_);
  for (const std::int64_t wrong : {std::int64_t{5}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    const std::int64_t targets[] = {0, wrong};
    const Buffer loss(DType::kF32, 1);
    const Buffer grad(DType::kF32, 10);
    const Buffer lse(DType::kF32, 2);
    CrossEntropyArgs args;
    args.logits = x.data();
    args.rows = 2;
    args.columns = args.row_stride = 5;
    args.targets = targets;
    args.loss = loss.data();
    EXPECT_FALSE(cross_entropy(args, {}, GetParam()));
    EXPECT_TRUE(loss.untouched(0));
    CrossEntropyGradArgs back;
    static_cast<CrossEntropyRows&>(back) = args;
    back.grad = grad.data();
    back.lse = reinterpret_cast<const float*>(lse.data());
    EXPECT_FALSE(cross_entropy_grad(back, {}, GetParam()));
    EXPECT_TRUE(grad.untouched(0));
    args.ignored = wrong;
    EXPECT_TRUE(cross_entropy(args, {}, GetParam()));
    EXPECT_TRUE(std::isfinite(loss.get(0)));
  }
}

TEST_P(CrossEntropyOnIsa, NothingThatCounts) {
  const Buffer loss(DType::kF32, 1);
  CrossEntropyArgs args;
  args.loss = loss.data();
  ASSERT_TRUE(cross_entropy(args, {}, GetParam()));
  EXPECT_TRUE(std::isnan(loss.get(0)));
  args.reduction = Reduction::kSum;
  ASSERT_TRUE(cross_entropy(args, {}, GetParam()));
  EXPECT_EQ(loss.get(0), 0.0);
  EXPECT_TRUE(cross_entropy_grad({}, {}, GetParam()));
}

TEST_P(CrossEntropyOnIsa, AnyNumberOfThreads) {
  for (const DType dtype : kTypes) {
    for (int threads = 2; threads <= 5; ++threads) {
      check(37, 1000, {.dtype = dtype, .smoothing = 0.1, .weights = 1, .threads = threads});
    }
  }
  constexpr std::int64_t kRows = 37;
  Buffer x(DType::kF32, kRows * 1000);
  x.fill(random_);
  const std::vector<std::int64_t> targets(kRows, 7);
  float expected = 0;
  for (int threads = 1; threads <= 5; ++threads) {
    float loss = 0;
    CrossEntropyArgs args;
    args.logits = x.data();
    args.rows = kRows;
    args.columns = args.row_stride = 1000;
    args.targets = targets.data();
    args.loss = &loss;
    ASSERT_TRUE(cross_entropy(args, thread_parallel(threads), GetParam()));
    if (threads == 1) expected = loss;
    EXPECT_EQ(loss, expected) << threads;
  }
}

TEST_P(CrossEntropyOnIsa, UsesTheVariantOfItsLevel) {
  const CrossEntropyVariants table = cross_entropy_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(cross_entropy_variant(GetParam()), table.first[i].name);
      EXPECT_EQ(cross_entropy_supported(GetParam()), i + 1 < table.count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, CrossEntropyOnIsa, testing::ValuesIn(levels_of(cross_entropy_variants())),
                         [](const auto& level) { return std::string(cross_entropy_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
