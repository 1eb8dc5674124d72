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

}  // namespace
}  // namespace ipexrun
