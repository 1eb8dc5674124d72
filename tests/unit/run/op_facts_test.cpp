// The risk: counts of ops that are read wrongly, or counted under the wrong name, or twice.
#include "launcher/run/op_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::Pair;

IpexrunEvent event(IpexrunEventKind kind, const std::string& text, std::initializer_list<std::int64_t> values) {
  IpexrunEvent out{};
  out.kind = kind;
  std::copy(values.begin(), values.end(), out.value);
  text.copy(out.text, sizeof out.text - 1);
  return out;
}

OpFact op(const std::string& name, std::int64_t calls, std::int64_t taken) {
  OpFact out;
  out.op = name;
  out.calls = calls;
  out.taken = taken;
  return out;
}

TEST(OpFacts, TheLatestStateOfEachCounts) {
  const OpFacts facts = op_facts_of(
      {event(IPEXRUN_EVENT_OP, "mm\tsmall=1", {5, 1, 1, 10, 5, 1}), event(IPEXRUN_EVENT_SITE, "mm|a\tstock\tslower", {4, 0, 4, 10, 12, 6}),
       event(IPEXRUN_EVENT_SITE, "mm|b\town_bf16\tfaster", {4, 3, 1, 10, 4, 6}),
       event(IPEXRUN_EVENT_SITE, "mm|a\tstock\tslower", {40, 0, 40, 10, 12, 6}), event(IPEXRUN_EVENT_TOTALS, "", {60, 3, 57, 18, 1000, 2}),
       event(IPEXRUN_EVENT_OP, "mm\tlayout=3,kind of tensor=13", {60, 3, 16, 30, 18, 2})});
  ASSERT_EQ(facts.ops.size(), 1u);
  EXPECT_EQ(facts.ops[0].op, "mm");
  EXPECT_EQ(facts.calls(), 60);
  EXPECT_EQ(facts.taken(), 3);
  EXPECT_EQ(facts.ops[0].declined, 16);
  EXPECT_EQ(facts.ops[0].stock_ns, 30);
  EXPECT_EQ(facts.ops[0].saved_ns, 18);
  EXPECT_EQ(facts.ops[0].sites, 2);
  EXPECT_THAT(facts.ops[0].reasons, ElementsAre(Pair("kind of tensor", 13), Pair("layout", 3)));
  EXPECT_EQ(facts.pack_bytes, 1000);
  ASSERT_EQ(facts.sites.size(), 2u);
  EXPECT_EQ(facts.sites[0].key, "mm|b");  // the one that saves most
  EXPECT_EQ(facts.sites[0].choice, "own_bf16");
  EXPECT_EQ(facts.sites[0].reason, "faster");
  EXPECT_EQ(facts.sites[0].saved_ns(), 18);
  EXPECT_EQ(facts.sites[1].calls, 40);
}

TEST(OpFacts, ModulesAreNoOperators) {
  const OpFacts facts =
      op_facts_of({event(IPEXRUN_EVENT_SITE, "module:Net|-|-|key=1|t=2|amx|2.13\tcaptured\tfaster", {9, 5, 4, 100, 25, 7}),
                   event(IPEXRUN_EVENT_SITE, "module:Head|-|-|key=2|t=2|amx|2.13\tstock\tslower", {9, 0, 9, 10, 12, 7})});
  EXPECT_TRUE(facts.ops.empty());
  EXPECT_TRUE(facts.sites.empty());
  ASSERT_EQ(facts.modules.size(), 2u);
  EXPECT_EQ(facts.modules[0].name(), "Net");
  EXPECT_DOUBLE_EQ(facts.modules[0].speed(), 4);
  EXPECT_EQ(modules_text(facts.modules), "Net captured (4.0x), Head stock");
}

TEST(OpFacts, SitesStandInForTotalsThatWereNeverWritten) {
  const OpFacts facts = op_facts_of({event(IPEXRUN_EVENT_SITE, "mm|a\tstock\tslower", {4, 0, 4, 10, 12, 6}),
                                     event(IPEXRUN_EVENT_SITE, "mm|b\town_bf16\tfaster", {4, 3, 1, 10, 4, 6})});
  ASSERT_EQ(facts.ops.size(), 1u);
  EXPECT_EQ(facts.ops[0].op, "mm");
  EXPECT_EQ(facts.calls(), 8);
  EXPECT_EQ(facts.ops[0].stock_ns, 30);
  EXPECT_EQ(facts.ops[0].saved_ns, 18);
}

TEST(OpFacts, TextThatWasCutOffIsLeftOut) {
  const OpFacts facts = op_facts_of(
      {event(IPEXRUN_EVENT_OP, "mm\tsmall=1,layout=", {5, 1, 1, 10, 5, 1}), event(IPEXRUN_EVENT_SITE, "mm|a", {4, 0, 4, 10, 12, 6})});
  EXPECT_THAT(facts.ops[0].reasons, ElementsAre(Pair("small", 1)));
  EXPECT_EQ(facts.sites[0].choice, "");
}

TEST(OpFacts, TheLatestStateOfDriftCounts) {
  EXPECT_FALSE(op_facts_of({event(IPEXRUN_EVENT_TOTALS, "", {60, 3, 57, 18, 1000, 2})}).drift) << "nothing had to be checked";
  const OpFacts facts =
      op_facts_of({event(IPEXRUN_EVENT_DRIFT, "", {1, 1, 0, 0, 0, 30}), event(IPEXRUN_EVENT_DRIFT, "1.881e-02", {6, 4, 1, 22, 8, 2})});
  ASSERT_TRUE(facts.drift);
  EXPECT_EQ(facts.drift->checks, 6);
  EXPECT_EQ(facts.drift->failed, 4);
  EXPECT_EQ(facts.drift->unfinished, 1);
  EXPECT_EQ(facts.drift->let_through, 22);
  EXPECT_EQ(facts.drift->left_in_float32, 8);
  EXPECT_EQ(facts.drift->waiting, 2);
  EXPECT_EQ(facts.drift->largest, 0.01881);
  EXPECT_EQ(facts.drift->text(), "8 of 32 weights and sites left in float32 (drift)");
}

TEST(OpFacts, DriftSaysInOneLineOnlyWhatKeepsStock) {
  const auto text = [](std::initializer_list<std::int64_t> values) {
    return op_facts_of({event(IPEXRUN_EVENT_DRIFT, "", values)}).drift->text();
  };
  EXPECT_EQ(text({2, 0, 0, 30, 0, 0}), "");
  EXPECT_EQ(text({0, 0, 0, 0, 0, 30}), "");  // the program was over before
  EXPECT_EQ(text({0, 0, 3, 0, 0, 30}), "no bf16: no whole pass could be checked for drift");
  EXPECT_FALSE(op_facts_of({event(IPEXRUN_EVENT_DRIFT, "", {1, 1, 0, 0, 0, 1})}).drift->largest) << "no check was good";
}

TEST(OpFacts, OverloadsAreCountedWithTheirOp) {
  EXPECT_EQ(calls_by_kind({op("addmm", 30, 20), op("addmm_", 2, 1), op("bmm.out", 8, 4), op("convolution2d", 53, 53)}),
            "53 of 53 convolutions, 25 of 40 linear calls");
  EXPECT_EQ(calls_by_kind({op("addmm", 30, 0), op("convolution", 53, 0)}, true), "53 convolutions, 30 linear calls");
}

TEST(OpFacts, AnOpWithoutAWordOfItsOwnGoesByItsName) {
  EXPECT_EQ(calls_by_kind({op("cumsum", 7, 5), op("mm", 0, 0)}), "5 of 7 cumsum calls");
  EXPECT_EQ(calls_by_kind({op("mkldnn_rnn_layer", 4, 4), op("gelu", 3, 1), op("tanh.out", 2, 1)}),
            "4 of 4 LSTM layers, 2 of 5 activations");
}

TEST(OpFacts, ManyKindsBecomeOthers) {
  EXPECT_EQ(calls_by_kind({op("a", 9, 9), op("b", 8, 8), op("c", 7, 7), op("d", 6, 6), op("e", 5, 4)}),
            "9 of 9 a calls, 8 of 8 b calls, 7 of 7 c calls, 10 of 11 other calls");
}

TEST(OpFacts, BytesAreShownForPeople) {
  EXPECT_EQ(bytes_text(43'000'000), "43 MB");
  EXPECT_EQ(bytes_text(12'300'000'000), "12.3 GB");
  EXPECT_EQ(bytes_text(900), "1 kB");
}

}  // namespace
}  // namespace ipexrun::launcher
