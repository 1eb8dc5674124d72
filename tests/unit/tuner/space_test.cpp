#include "tuner/space/space.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/unit/tuner/fakes.h"

namespace ipexrun::tuner {
namespace {

using fakes::category;
using fakes::range;

std::vector<std::string> texts(const std::vector<Value>& values) {
  std::vector<std::string> out;
  for (const Value& one : values) out.push_back(text_of(one));
  return out;
}

TEST(Values, KeepTheirKind) {
  EXPECT_EQ(text_of(parse_value("12")), "12");
  EXPECT_TRUE(std::holds_alternative<std::int64_t>(parse_value("12")));
  EXPECT_TRUE(std::holds_alternative<double>(parse_value("0.5")));
  EXPECT_TRUE(std::holds_alternative<std::string>(parse_value("tcmalloc")));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(parse_value("~")));
  EXPECT_EQ(key_of({{"b", std::int64_t{2}}, {"a", std::string("x")}}), "a=x; b=2");
}

TEST(Values, AreHandedOnAsTheyWereGiven) {
  for (const char* text : {"1.10", "3.0", "007", "1e-5", "inf", "nan", "-0", "0x10"}) EXPECT_EQ(text_of(parse_value(text)), text);
  EXPECT_EQ(number_of(parse_value("1.10")), 1.1);  // and compare as numbers
  EXPECT_EQ(number_of(parse_value("inf")), std::nullopt);
  const Condition above{"n", Condition::Op::kGreater, {parse_value("0.7")}};
  EXPECT_TRUE(above.holds({{"n", parse_value("1.0")}}));
}

TEST(GridValues, OfRanges) {
  EXPECT_THAT(texts(grid_values(range("n", 1, 4))), testing::ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(texts(grid_values(range("n", 1, 20, true))), testing::ElementsAre("1", "2", "4", "8", "16", "20"));
  Parameter steps = range("n", 2, 11);
  steps.step = 4;
  EXPECT_THAT(texts(grid_values(steps)), testing::ElementsAre("2", "6", "10"));
  Parameter real = range("x", 1, 100, true, Kind::kFloat);
  real.points = 3;
  EXPECT_THAT(texts(grid_values(real)), testing::ElementsAre("1", "10", "100"));
  EXPECT_EQ(grid_values(range("x", 0, 1, false, Kind::kFloat)).size(), 5u);
}

TEST(Grid, LeavesOutWhatAConditionRulesOut) {
  Space space;
  space.parameters = {category("malloc", {std::string("default"), std::string("jemalloc")}), range("arenas", 1, 2)};
  space.parameters[1].when = {{"malloc", Condition::Op::kIn, {std::string("jemalloc")}}};
  EXPECT_EQ(grid_size(space), 4u);
  std::set<std::string> keys;
  for (std::uint64_t i = 0; i < 4; ++i) keys.insert(key_of(grid_point(space, i)));
  EXPECT_THAT(keys, testing::ElementsAre("arenas=1; malloc=jemalloc", "arenas=2; malloc=jemalloc", "malloc=default"));
}

TEST(Conditions, CompareNumbersAndWords) {
  const Point point = {{"n", std::int64_t{4}}, {"w", std::string("a")}};
  EXPECT_TRUE((Condition{"n", Condition::Op::kGreater, {std::int64_t{3}}}).holds(point));
  EXPECT_FALSE((Condition{"n", Condition::Op::kLess, {4.0}}).holds(point));
  EXPECT_TRUE((Condition{"n", Condition::Op::kIn, {4.0}}).holds(point));
  EXPECT_FALSE((Condition{"w", Condition::Op::kNotIn, {std::string("a")}}).holds(point));
  EXPECT_FALSE((Condition{"w", Condition::Op::kLess, {1.0}}).holds(point));
  EXPECT_FALSE((Condition{"missing", Condition::Op::kNotIn, {1.0}}).holds(point));
}

TEST(GridValues, OfAHugeRangeAreFew) {
  const std::vector<Value> values = grid_values(range("n", 1, 9007199254740992));
  EXPECT_EQ(values.size(), 10000u);
  EXPECT_EQ(texts({values.front(), values.back()}), (std::vector<std::string>{"1", "9007199254740992"}));
  Parameter steps = range("x", 0, 1e9, false, Kind::kFloat);
  steps.step = 0.001;
  EXPECT_EQ(grid_values(steps).size(), 10000u);
}

TEST(RandomPoints, ComeFromTheSeedAndStayInTheRange) {
  Space space;
  space.parameters = {range("n", 1, 64, true), range("x", -1, 1, false, Kind::kFloat), category("c", fakes::numbers(1, 3))};
  Random a(7);
  Random b(7);
  std::set<std::string> small;
  for (int i = 0; i < 200; ++i) {
    const Point point = random_point(space, a);
    EXPECT_EQ(key_of(point), key_of(random_point(space, b)));
    const double n = *number_of(point.at("n"));
    EXPECT_GE(n, 1);
    EXPECT_LE(n, 64);
    EXPECT_LE(std::abs(*number_of(point.at("x"))), 1);
    if (n <= 8) small.insert(key_of(point));
  }
  EXPECT_GT(small.size(), 60u);  // a log range has as many below its geometric middle as above
}

TEST(DefaultPoint, SetsPlaceholdersAndWhatIsFixed) {
  Space space;
  space.parameters = {category("args.batch", fakes::numbers(4, 6), Target::kArg), category("dtype", {std::string("float32")}),
                      category("free", fakes::numbers(1, 2)), range("n", 1, 9)};
  space.parameters[3].fallback = std::int64_t{3};
  EXPECT_EQ(key_of(default_point(space)), "args.batch=4; dtype=float32; n=3");
}

TEST(CheckSpace, WantsPlaceholdersAndEarlierParameters) {
  Space space;
  space.parameters = {category("args.batch", fakes::numbers(1, 2), Target::kArg)};
  space.parameters[0].key = "batch";
  EXPECT_TRUE(check_space(space, {"--batch={batch}"}).ok());
  EXPECT_THAT(check_space(space, {"--batch={size}"}).error().line(), testing::HasSubstr("{size}"));
  Space order;
  order.parameters = {category("a", fakes::numbers(1, 2)), category("b", fakes::numbers(1, 2))};
  order.parameters[0].when = {{"b", Condition::Op::kIn, {std::int64_t{1}}}};
  EXPECT_THAT(check_space(order, {}).error().what, testing::HasSubstr("no parameter before it"));
}

TEST(Placeholders, AreWordsInBraces) {
  EXPECT_THAT(placeholders_in("--shape={h}x{w_1}"), testing::ElementsAre("h", "w_1"));
  EXPECT_TRUE(placeholders_in("{'a': 1} {} {0} {open").empty());
}

}  // namespace
}  // namespace ipexrun::tuner
