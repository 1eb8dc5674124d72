// The risk: a row read through an index that is out of range, a sum in another order, columns beyond a vector, a bag's bookkeeping.
#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Shape {
  std::int64_t rows = 50;
  std::int64_t columns = 16;
  std::vector<std::int64_t> bags = {3, 0, 1, 40, 2};  ///< indices of each
  std::int64_t extra_stride = 0;
  DType dtype = DType::kF32;
  BagMode mode = BagMode::kSum;
  bool wide = true;
  bool has_end = false;
  bool weighted = false;
  std::int64_t padding = -1;
};

/// Integers of one width, in a buffer that ends at an unreadable page.
class Integers {
 public:
  Integers(bool wide, const std::vector<std::int64_t>& values) : Integers(wide, static_cast<std::int64_t>(values.size())) {
    for (std::size_t i = 0; i < values.size(); ++i) set(static_cast<std::int64_t>(i), values[i]);
  }
  Integers(bool wide, std::int64_t count) : wide_(wide), count_(count), memory_(static_cast<std::size_t>(count * (wide ? 8 : 4))) {}

  [[nodiscard]] void* data() const { return memory_.data(); }
  void set(std::int64_t i, std::int64_t value) {
    const auto narrow = static_cast<std::int32_t>(value);
    wide_ ? std::memcpy(memory_.data() + i * 8, &value, 8) : std::memcpy(memory_.data() + i * 4, &narrow, 4);
  }
  [[nodiscard]] std::int64_t get(std::int64_t i) const {
    std::int64_t value = 0;
    std::int32_t narrow = 0;
    wide_ ? std::memcpy(&value, memory_.data() + i * 8, 8) : std::memcpy(&narrow, memory_.data() + i * 4, 4);
    return wide_ ? value : narrow;
  }
  [[nodiscard]] std::vector<std::int64_t> all() const {
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < count_; ++i) out.push_back(get(i));
    return out;
  }

 private:
  bool wide_;
  std::int64_t count_;
  Guarded memory_;
};

struct Result {
  bool done = false;
  std::string to;
  std::vector<std::int64_t> bag_of;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> places;
};

std::vector<std::int64_t> begins_of(const Shape& shape) {
  std::vector<std::int64_t> begins(shape.bags.size() + 1, 0);
  std::partial_sum(shape.bags.begin(), shape.bags.end(), begins.begin() + 1);
  if (!shape.has_end) begins.pop_back();
  return begins;
}

/// Table, indices and weights of a call.
struct Inputs {
  explicit Inputs(const Shape& made, std::uint32_t seed = 20250211)
      : shape(made),
        count(std::accumulate(made.bags.begin(), made.bags.end(), std::int64_t{0})),
        table(made.dtype, (made.rows - 1) * (made.columns + made.extra_stride) + made.columns, 3),
        weights(made.dtype, count, 1),
        indices(made.wide, count),
        offsets(made.wide, begins_of(made)) {
    std::mt19937 random(seed);
    table.fill(random);
    weights.fill(random);
    for (std::int64_t i = 0; i < count; ++i) indices.set(i, static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shape.rows)));
  }

  [[nodiscard]] Result run(IsaSet isa, const Parallel& parallel = {}) const {
    const auto bags = static_cast<std::int64_t>(shape.bags.size());
    const Buffer to(shape.dtype, bags * shape.columns, 5);
    const Integers bag_of(shape.wide, count);
    const Integers sizes(shape.wide, bags);
    const Integers places(shape.wide, bags * shape.columns);
    EmbeddingBagArgs args;
    args.table = table.data();
    args.rows = shape.rows;
    args.columns = shape.columns;
    args.row_stride = shape.columns + shape.extra_stride;
    args.dtype = shape.dtype;
    args.mode = shape.mode;
    args.wide = shape.wide;
    args.indices = indices.data();
    args.count = count;
    args.offsets = offsets.data();
    args.bags = bags;
    args.has_end = shape.has_end;
    args.weights = shape.weighted ? weights.data() : nullptr;
    args.padding = shape.padding;
    args.to = to.data();
    args.bag_of = bag_of.data();
    args.sizes = sizes.data();
    args.places = shape.mode == BagMode::kMax ? places.data() : nullptr;
    Result result;
    result.done = embedding_bag(args, parallel, isa);
    EXPECT_TRUE(to.front_is_clean());
    if (!result.done) return result;
    result.to = to.bytes();
    result.bag_of = bag_of.all();
    result.sizes = sizes.all();
    if (shape.mode == BagMode::kMax) result.places = places.all();
    return result;
  }

  Shape shape;
  std::int64_t count;
  Buffer table;
  Buffer weights;
  Integers indices;
  Integers offsets;
};

class EmbeddingOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  static void same_as_the_reference(const Inputs& inputs) {
    const Result expected = inputs.run(0);
    const Result result = inputs.run(GetParam());
    const std::string what =
        "columns " + std::to_string(inputs.shape.columns) + " mode " + std::to_string(static_cast<int>(inputs.shape.mode));
    ASSERT_TRUE(expected.done && result.done) << what;
    ASSERT_EQ(result.to, expected.to) << what;
    ASSERT_EQ(result.bag_of, expected.bag_of) << what;
    ASSERT_EQ(result.sizes, expected.sizes) << what;
    ASSERT_EQ(result.places, expected.places) << what;
  }

  /// Each mode with its options.
  static std::vector<Shape> forms(Shape shape) {
    std::vector<Shape> out;
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const bool wide : {true, false}) {
        shape.dtype = dtype;
        shape.wide = wide;
        shape.has_end = !wide;
        for (const std::int64_t padding : {-1, 7}) {
          shape.padding = padding;
          shape.weighted = false;
          for (const BagMode mode : {BagMode::kSum, BagMode::kMean, BagMode::kMax}) {
            shape.mode = mode;
            out.push_back(shape);
          }
        }
        shape.mode = BagMode::kSum;
        shape.padding = -1;
        shape.weighted = true;
        out.push_back(shape);
      }
    }
    return out;
  }
};

TEST_P(EmbeddingOnIsa, EveryNumberOfColumns) {
  for (std::int64_t columns = 1; columns <= 280; columns += columns < 140 ? 1 : 17) {
    for (const Shape& shape : forms({.columns = columns, .extra_stride = columns % 3})) {
      same_as_the_reference(Inputs(shape));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EmbeddingOnIsa, BagsOfAllKinds) {
  const std::vector<std::vector<std::int64_t>> kinds = {
      {1}, {0, 1}, {300}, {0, 0, 5, 0}, std::vector<std::int64_t>(100, 1), {17, 16, 15, 1, 0}};
  for (const auto& bags : kinds) {
    for (const Shape& shape : forms({.rows = 9, .columns = 33, .bags = bags})) {
      same_as_the_reference(Inputs(shape));
      if (HasFatalFailure()) return;
    }
  }
}

/// The numbers themselves, in double: what the reference is measured by.
TEST_P(EmbeddingOnIsa, SumsMeansAndTheLargest) {
  for (const Shape& shape : forms({.columns = 37, .extra_stride = 2})) {
    const Inputs inputs(shape);
    const Result result = inputs.run(GetParam());
    ASSERT_TRUE(result.done);
    std::int64_t i = 0;
    for (std::size_t bag = 0; bag < shape.bags.size(); ++bag) {
      const std::int64_t begin = i;
      std::int64_t size = 0;
      for (; i < begin + shape.bags[bag]; ++i) {
        EXPECT_EQ(result.bag_of[static_cast<std::size_t>(i)], static_cast<std::int64_t>(bag));
        size += inputs.indices.get(i) != shape.padding;
      }
      EXPECT_EQ(result.sizes[bag], size);
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        double sum = 0;
        double most = -1e30;
        for (std::int64_t k = begin; k < i; ++k) {
          if (inputs.indices.get(k) == shape.padding) continue;
          const double value = inputs.table.get(inputs.indices.get(k) * (shape.columns + shape.extra_stride) + column);
          sum += value * (shape.weighted ? inputs.weights.get(k) : 1.0);
          most = std::max(most, value);
        }
        if (size == 0) most = 0;
        const std::size_t at = bag * static_cast<std::size_t>(shape.columns) + static_cast<std::size_t>(column);
        const std::size_t bytes = shape.dtype == DType::kF32 ? 4 : 2;
        const Buffer one(shape.dtype, 1);
        std::memcpy(one.data(), result.to.data() + (at + 5) * bytes, bytes);
        const double expected = shape.mode == BagMode::kMax                ? most
                                : shape.mode == BagMode::kMean && size > 0 ? sum / static_cast<double>(size)
                                                                           : sum;
        EXPECT_NEAR(one.get(0), expected,
                    shape.mode == BagMode::kMax  ? 0
                    : shape.dtype == DType::kF32 ? 2e-5
                                                 : 0.02 * std::max(1.0, std::abs(expected)));
        if (shape.mode == BagMode::kMax && size > 0) {
          const std::int64_t place = result.places[at];
          EXPECT_EQ(inputs.table.get(place * (shape.columns + shape.extra_stride) + column), most);
        }
      }
    }
  }
}

TEST_P(EmbeddingOnIsa, NanInfinityAndZeros) {
  for (const Shape& shape : forms({.rows = 8, .columns = 21, .bags = {8, 8, 2, 30}})) {
    Inputs inputs(shape);
    for (std::int64_t i = 0; i < 8; ++i) inputs.indices.set(i, i);
    for (std::int64_t column = 0; column < 21; ++column) {
      inputs.table.set((column % 8) * 21 + column, column % 3 == 0 ? kNan : column % 3 == 1 ? kInf : -0.0f);
      if (column % 4 == 0) inputs.table.set(7 * 21 + column, -kInf);
    }
    inputs.weights.set(3, kNan);
    inputs.weights.set(9, 0.0f);
    same_as_the_reference(inputs);
    if (HasFatalFailure()) return;
  }
}

TEST_P(EmbeddingOnIsa, SumsOfHalvesThatLieBetweenTwo) {
  Shape shape{.rows = 2, .columns = 4, .bags = {2}, .dtype = DType::kBf16};
  Inputs inputs(shape);
  for (std::int64_t i = 0; i < 4; ++i) {
    inputs.table.set(i, i < 2 ? 1.0f : 1.0078125f);
    inputs.table.set(4 + i, 0.00390625f);  // half of the last place
  }
  for (const std::int64_t i : {0, 1}) inputs.indices.set(i, i);
  const auto first_two = [&](const Inputs& call) {
    const Result result = call.run(GetParam());
    std::uint16_t halves[4];
    std::memcpy(halves, result.to.data() + 5 * 2, sizeof(halves));
    return std::pair(bf16_to_f32(halves[0]), bf16_to_f32(halves[3]));
  };
  EXPECT_EQ(first_two(inputs), std::pair(1.0078125f, 1.015625f));  // away from zero
  inputs.shape.padding = 5;
  EXPECT_EQ(first_two(inputs), std::pair(1.0f, 1.015625f));  // to even
}

TEST_P(EmbeddingOnIsa, OutOfRangeIsRefusedBeforeItIsRead) {
  for (const Shape& shape : forms({.rows = 20, .columns = 40, .bags = {30, 5}})) {
    for (const std::int64_t place : {0, 17, 34}) {
      for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{20}, std::int64_t{INT32_MAX}, std::int64_t{INT32_MIN}}) {
        Inputs inputs(shape);
        inputs.indices.set(place, bad);
        EXPECT_FALSE(inputs.run(GetParam()).done) << place << " " << bad;
      }
    }
    if (!shape.wide) continue;
    Inputs far(shape);
    far.indices.set(20, std::int64_t{1} << 40);
    EXPECT_FALSE(far.run(GetParam()).done);
  }
}

TEST_P(EmbeddingOnIsa, OffsetsOutOfOrderAreRefused) {
  for (Shape shape : forms({.rows = 20, .columns = 8, .bags = {10, 5, 5}})) {
    for (const auto& [place, value] :
         {std::pair<std::int64_t, std::int64_t>{0, 1}, {0, -1}, {1, 16}, {1, -3}, {2, 21}, {2, INT32_MAX}, {2, 9}}) {
      Inputs inputs(shape);
      inputs.offsets.set(place, value);
      for (const Parallel& parallel : {Parallel{}, thread_parallel(3)})
        EXPECT_FALSE(inputs.run(GetParam(), parallel).done) << place << " " << value;
    }
    if (!shape.has_end) continue;
    Inputs inputs(shape);
    inputs.offsets.set(3, 19);
    EXPECT_FALSE(inputs.run(GetParam()).done);
  }
}

TEST_P(EmbeddingOnIsa, AnyNumberOfThreads) {
  for (const Shape& shape : forms({.rows = 100, .columns = 65, .bags = std::vector<std::int64_t>(77, 9)})) {
    const Inputs inputs(shape);
    const Result expected = inputs.run(GetParam());
    for (int threads = 2; threads <= 5; ++threads) {
      const Result result = inputs.run(GetParam(), thread_parallel(threads));
      EXPECT_TRUE(result.done);
      EXPECT_EQ(result.to, expected.to);
      EXPECT_EQ(result.bag_of, expected.bag_of);
      EXPECT_EQ(result.sizes, expected.sizes);
      EXPECT_EQ(result.places, expected.places);
    }
  }
}

TEST_P(EmbeddingOnIsa, NothingIsFine) { EXPECT_TRUE(embedding_bag({}, {}, GetParam())); }

TEST_P(EmbeddingOnIsa, UsesTheVariantOfItsLevel) {
  const EmbeddingVariants table = embedding_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(embedding_bag_variant(GetParam()), table.first[i].name);
      EXPECT_EQ(embedding_bag_supported(GetParam()), i + 1 < table.count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, EmbeddingOnIsa, testing::ValuesIn(levels_of(embedding_variants())),
                         [](const auto& level) { return std::string(embedding_bag_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
