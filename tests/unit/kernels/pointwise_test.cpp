// The risk: a tile's end that is missed or written past, a dimension that is joined where it must not be, functions far from where they are
// easy, NaN that get lost, bits that depend on threads.
#include "kernels/pointwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/dispatch.h"
#include "kernels/ref/pointwise.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kEps = std::numeric_limits<float>::epsilon();
constexpr int kLast = static_cast<int>(Point::kWhere);

int operands_of(Point what) { return what == Point::kWhere ? 3 : what >= Point::kAdd ? 2 : 1; }

/// Numbers at which functions change, then more of every size.
std::vector<float> numbers(Point what) {
  std::vector<float> found = {0.0f,   -0.0f,   1.0f,     -1.0f,       kInf,    -kInf, kNan,  1e-30f, -1e-30f, 1e-7f,
                              -1e-7f, 0.3465f, -0.3465f, 0.70710678f, 1.4142f, 20.0f, 20.1f, 88.7f,  88.73f,  -87.3f,
                              -88.0f, 104.0f,  -104.0f,  2e38f,       -2e38f,  16.6f, 17.4f, 24.5f};
  std::mt19937 random(11);
  std::uniform_real_distribution<float> exponent(-20, 20);
  std::normal_distribution<float> normal(0, 3);
  for (int i = 0; i < 400; ++i) {
    found.push_back(normal(random));
    const float large = std::exp2(exponent(random));
    found.push_back(i % 2 == 0 || what == Point::kLog ? large : -large);
  }
  return found;
}

bool near(Point what, double truth, double seen, double a) {
  if (std::isnan(truth)) return std::isnan(seen);
  if (std::isinf(truth) || std::fabs(truth) > static_cast<double>(std::numeric_limits<float>::max()))
    return std::isinf(seen) && (seen > 0) == (truth > 0);
  double bound = 4 * kEps * std::fabs(truth) + 2 * static_cast<double>(std::numeric_limits<float>::min()) * std::fmax(1.0, std::fabs(a));
  if (what == Point::kGelu && a < -1) bound += 2e-7 * std::fabs(a);
  if (what == Point::kGeluTanh) bound += a * a * kEps * std::fabs(truth);
  return std::fabs(seen - truth) <= bound;
}

class PointwiseOnIsa : public testing::TestWithParam<IsaSet> {};

TEST_P(PointwiseOnIsa, EachInstruction) {
  for (int which = 0; which <= kLast; ++which) {
    const auto what = static_cast<Point>(which);
    const std::vector<float> a = numbers(what);
    const std::size_t n = a.size();
    std::vector<float> b(n), c(n), to(n, -5.0f);
    for (std::size_t i = 0; i < n; ++i) {
      b[i] = i % 5 == 0 ? a[i] : a[(i * 7 + 3) % n];
      c[i] = a[(i * 5 + 1) % n];
    }
    PointOperand inputs[3];
    const std::vector<float>* from[3] = {&a, &b, &c};
    for (int i = 0; i < 3; ++i) {
      inputs[i].data = from[i]->data();
      inputs[i].strides[0] = 1;
    }
    const PointInstruction instruction{what, 3, 0, 1, 2};
    PointResult result;
    result.data = to.data();
    result.slot = 3;
    result.strides[0] = 1;
    PointwiseArgs args;
    args.dims = 1;
    args.sizes[0] = static_cast<std::int64_t>(n);
    args.inputs = inputs;
    args.input_count = 3;
    args.instructions = &instruction;
    args.instruction_count = 1;
    args.results = &result;
    args.result_count = 1;
    args.slots = 4;
    ASSERT_TRUE(pointwise(args, {}, GetParam()));
    for (std::size_t i = 0; i < n; ++i) {
      const double truth = ref::point_of(what, static_cast<double>(a[i]), static_cast<double>(b[i]), static_cast<double>(c[i]));
      const bool gelu_of_infinity = (what == Point::kGelu || what == Point::kGeluTanh || what == Point::kSilu) && std::isinf(a[i]);
      ASSERT_TRUE(gelu_of_infinity || near(what, truth, static_cast<double>(to[i]), static_cast<double>(a[i])))
          << which << " of " << a[i] << (operands_of(what) > 1 ? ", " + std::to_string(b[i]) : "") << " gives " << to[i] << ", not "
          << truth;
    }
  }
}

/// A tensor of some type with strides, 0 where it broadcasts, somewhere in a buffer.
struct Tensor {
  PointType type;
  std::vector<std::int64_t> strides;
  std::vector<char> bytes;
  [[nodiscard]] std::int64_t size() const { return type == PointType::kF32 ? 4 : type == PointType::kBf16 ? 2 : 1; }
  [[nodiscard]] float at(std::int64_t element) const {
    float value = 0;
    ref::point_load(bytes.data() + element * size(), type, 1, 1, 0, 1, &value);
    return value;
  }
};

struct Case {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides[4];  ///< of x, y, the mask and both results
};

/// y is added to x and the sum's sigmoid is taken where the mask is set: two results, two constants.
void check(const Case& one, PointType x_type, PointType y_type, PointType result_type, const Parallel& parallel, IsaSet isa) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 2);
  Tensor tensors[5] = {{x_type, one.strides[0], {}},
                       {y_type, one.strides[1], {}},
                       {PointType::kBool, one.strides[2], {}},
                       {result_type, one.strides[3], {}},
                       {PointType::kBool, one.strides[3], {}}};
  const auto dims = one.sizes.size();
  std::int64_t count = 1;
  for (const std::int64_t size : one.sizes) count *= size;
  for (Tensor& tensor : tensors) {
    std::int64_t last = 0;
    for (std::size_t dim = 0; dim < dims; ++dim) last += (one.sizes[dim] - 1) * tensor.strides[dim];
    tensor.bytes.assign(static_cast<std::size_t>((last + 33) * tensor.size()), 0x55);  // 32 beyond the end
  }
  for (int i = 0; i < 3; ++i) {
    const std::int64_t elements = static_cast<std::int64_t>(tensors[i].bytes.size()) / tensors[i].size();
    for (std::int64_t at = 0; at < elements; ++at) {
      const float value = i == 2 ? static_cast<float>(random() % 2) : normal(random);
      ref::point_store(&value, tensors[i].type, 1, 1, tensors[i].bytes.data() + at * tensors[i].size());
    }
  }
  PointOperand inputs[3];
  PointResult results[2];
  PointwiseArgs args;
  args.dims = static_cast<int>(dims);
  for (int i = 0; i < 5; ++i) {
    for (std::size_t dim = 0; dim < dims; ++dim) (i < 3 ? inputs[i].strides : results[i - 3].strides)[dim] = tensors[i].strides[dim];
    if (i < 3) {
      inputs[i].data = tensors[i].bytes.data();
      inputs[i].type = tensors[i].type;
    } else {
      results[i - 3].data = tensors[i].bytes.data();
      results[i - 3].type = tensors[i].type;
    }
  }
  for (std::size_t dim = 0; dim < dims; ++dim) args.sizes[dim] = one.sizes[dim];
  const float constants[] = {0.5f, -1.0f};
  const PointInstruction instructions[] = {{Point::kAdd, 5, 0, 1},
                                           {Point::kSigmoid, 6, 5},
                                           {Point::kMultiply, 7, 6, 3},
                                           {Point::kWhere, 8, 2, 7, 4},
                                           {Point::kGreater, 9, 5, 3}};
  results[0].slot = 8;
  results[1].slot = 9;
  args.inputs = inputs;
  args.input_count = 3;
  args.constants = constants;
  args.constant_count = 2;
  args.instructions = instructions;
  args.instruction_count = 5;
  args.results = results;
  args.result_count = 2;
  args.slots = 10;
  ASSERT_TRUE(pointwise(args, parallel, isa));
  std::vector<bool> written(tensors[3].bytes.size(), false);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t at[5] = {};
    std::int64_t rest = i;
    for (auto dim = static_cast<std::ptrdiff_t>(dims) - 1; dim >= 0; --dim) {
      const auto d = static_cast<std::size_t>(dim);
      for (int t = 0; t < 5; ++t) at[t] += rest % one.sizes[d] * tensors[t].strides[d];
      rest /= one.sizes[d];
    }
    const float sum = tensors[0].at(at[0]) + tensors[1].at(at[1]);
    const double gate = tensors[2].at(at[2]) != 0 ? 0.5 / (1 + std::exp(-static_cast<double>(sum))) : -1.0;
    ASSERT_NEAR(static_cast<double>(tensors[3].at(at[3])), gate, result_type == PointType::kBf16 ? 4e-3 : 1e-6)
        << "element " << i << " of " << count;
    ASSERT_EQ(tensors[4].at(at[4]) != 0, sum > 0.5f) << "element " << i << " of " << count;
    for (std::int64_t byte = 0; byte < tensors[3].size(); ++byte)
      written[static_cast<std::size_t>(at[3] * tensors[3].size() + byte)] = true;
  }
  for (std::size_t byte = 0; byte < written.size(); ++byte) {
    ASSERT_TRUE(written[byte] || tensors[3].bytes[byte] == 0x55) << "a byte that belongs to nothing was written, " << byte;
  }
}

std::vector<Case> cases() {
  std::vector<Case> found;
  for (const std::int64_t n : {1, 2, 15, 16, 17, 31, 33, 255, 256, 257, 272, 511, 515, 1024, 1040})
    found.push_back({{n}, {{1}, {1}, {1}, {1}}});
  found.push_back({{3, 40}, {{40, 1}, {0, 1}, {1, 0}, {40, 1}}});                                       // a bias, and a mask of rows
  found.push_back({{2, 5, 33}, {{165, 33, 1}, {5, 1, 0}, {0, 0, 1}, {165, 33, 1}}});                    // an image and its channels
  found.push_back({{2, 3, 4, 20}, {{300, 80, 20, 1}, {0, 20, 0, 1}, {0, 0, 0, 0}, {240, 80, 20, 1}}});  // with a gap, a number
  found.push_back({{7, 9}, {{1, 7}, {9, 1}, {9, 1}, {9, 1}}});                                          // transposed
  found.push_back({{4, 1, 300}, {{300, 7, 1}, {300, 300, 1}, {0, 0, 1}, {300, 300, 1}}});
  found.push_back({{64, 700}, {{700, 1}, {0, 1}, {700, 1}, {704, 1}}});
  found.push_back({{3, 50, 7}, {{350, 7, 1}, {50, 1, 0}, {0, 0, 1}, {350, 7, 1}}});  // short rows, several a tile
  found.push_back({{2, 41, 13}, {{600, 13, 1}, {0, 1, 0}, {13, 0, 1}, {700, 15, 1}}});
  found.push_back({{90, 1}, {{1, 1}, {1, 0}, {2, 1}, {1, 1}}});
  found.push_back({{5, 600}, {{600, 1}, {1, 0}, {600, 1}, {600, 1}}});
  return found;
}

TEST_P(PointwiseOnIsa, SizesStridesAndTypes) {
  for (const Case& one : cases()) {
    for (const PointType x : {PointType::kF32, PointType::kBf16}) {
      for (const PointType y : {PointType::kF32, PointType::kBf16}) {
        for (const PointType result : {PointType::kF32, PointType::kBf16}) check(one, x, y, result, {}, GetParam());
      }
    }
  }
}

TEST_P(PointwiseOnIsa, Threads) {
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{70000}, {300, 257}, {3, 40000}}) {
    const bool flat = sizes.size() == 1;
    const Case one = flat ? Case{sizes, {{1}, {1}, {1}, {1}}} : Case{sizes, {{sizes[1], 1}, {0, 1}, {1, 0}, {sizes[1], 1}}};
    check(one, PointType::kF32, PointType::kF32, PointType::kF32, thread_parallel(3), GetParam());
  }
}

TEST(Pointwise, NothingToDo) {
  PointwiseArgs args;
  args.dims = 2;
  args.sizes[0] = 4;
  EXPECT_TRUE(pointwise(args, {}, 0));
  EXPECT_STREQ(pointwise_variant(0), "ref");
  EXPECT_FALSE(pointwise_supported(0));
}

INSTANTIATE_TEST_SUITE_P(Levels, PointwiseOnIsa, testing::ValuesIn(levels_of(pointwise_variants())),
                         [](const auto& level) { return std::string(pointwise_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
