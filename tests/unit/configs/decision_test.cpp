// The text form of a site key is stored in files and compared between processes: it must survive a round trip.
#include "configs/contract/decision.h"

#include <gtest/gtest.h>

namespace ipexrun {
namespace {

SiteKey example() { return SiteKey{"addmm", "f32,f32,f32", "ct", "m=128,n=768,k=768", 2, "amx", "2.13"}; }

TEST(SiteKey, TextIsStable) { EXPECT_EQ(example().text(), "addmm|f32,f32,f32|ct|m=128,n=768,k=768|t=2|amx|2.13"); }

TEST(SiteKey, SurvivesARoundTrip) {
  SiteKey parsed;
  ASSERT_TRUE(parse_site_key(example().text(), &parsed));
  EXPECT_EQ(parsed, example());
}

TEST(SiteKey, RejectsTextOfAnotherShape) {
  SiteKey parsed;
  for (const char* text : {"", "addmm", "addmm|f32|c|m=1|2|amx|2.13", "addmm|f32|c|m=1|t=x|amx|2.13", "addmm|f32|c|m=1|t=2|amx",
                           "addmm|f32|c|m=1|t=2|amx|2.13|more", "addmm|f32|c|m=1|t=|amx|2.13"}) {
    EXPECT_FALSE(parse_site_key(text, &parsed)) << text;
  }
}

Decision outcome() { return Decision{example(), "own_bf16", 1200, 300, 9, "faster", "auto", 1763700000}; }

TEST(DecisionLine, SurvivesARoundTrip) {
  Decision parsed;
  ASSERT_TRUE(parse_decision_line(decision_line(outcome()), &parsed));
  EXPECT_EQ(parsed.site, outcome().site);
  EXPECT_EQ(parsed.choice, "own_bf16");
  EXPECT_EQ(parsed.stock_ns, 1200);
  EXPECT_EQ(parsed.choice_ns, 300);
  EXPECT_EQ(parsed.samples, 9);
  EXPECT_EQ(parsed.reason, "faster");
  EXPECT_EQ(parsed.dtype, "auto");
  EXPECT_EQ(parsed.decided_at, 1763700000);
}

TEST(DecisionLine, IgnoresFieldsOfLaterVersions) {
  Decision parsed;
  EXPECT_TRUE(parse_decision_line(decision_line(outcome()) + "\tnew\tfields", &parsed));
  EXPECT_EQ(parsed.decided_at, 1763700000);
}

TEST(DecisionLine, RejectsDamage) {
  const std::string whole = decision_line(outcome());
  Decision parsed;
  for (std::size_t cut = 0; cut < whole.find_last_of('\t') + 1; ++cut)
    EXPECT_FALSE(parse_decision_line(whole.substr(0, cut), &parsed)) << cut;
  for (const char* text : {"\t\t\t\t\t\t\t", "a\tb\tc\td\te\tf\tg\th"}) EXPECT_FALSE(parse_decision_line(text, &parsed)) << text;
  for (const std::string& choice : {std::string("\xff\xfe"), std::string(65, 'a'), std::string("a\x01"), std::string(5000, '9')}) {
    Decision damaged = outcome();
    damaged.choice = choice;
    EXPECT_FALSE(parse_decision_line(decision_line(damaged), &parsed)) << choice;
  }
  Decision negative = outcome();
  negative.stock_ns = -5;
  EXPECT_FALSE(parse_decision_line(decision_line(negative), &parsed));
}

}  // namespace
}  // namespace ipexrun
