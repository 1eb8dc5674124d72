#include "launcher/run/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>

#include "tests/unit/event_file.h"
#include "tests/unit/run/temp_folder.h"

namespace ipexrun::launcher {
namespace {

using testing::HasSubstr;

class SummaryTest : public testing::Test {
 protected:
  SummaryTest() {
    InstancePlan instance;
    instance.threads = 2;
    plan_.instances = {instance};
    InstanceOutcome one;
    one.events_path = file_.path();
    outcome_.instances = {one};
    std::strcpy(file_.header().mask_at_start, "0-1");
    std::strcpy(file_.header().mems_at_start, "0");
  }

  std::string text() { return summary_text(options_, plan_, outcome_); }

  TempFolder folder_;
  EventFile file_{folder_.path("0.events")};
  Options options_;
  LaunchPlan plan_;
  RunOutcome outcome_;
};

TEST_F(SummaryTest, SaysNothingOfAProgramWithoutTorch) {
  file_.header().shim_state = IPEXRUN_SHIM_LOADED;
  EXPECT_EQ(text(), "");
  outcome_.instances[0].exit_code = outcome_.exit_code = 3;  // the program's own affair
  EXPECT_EQ(text(), "");
}

TEST_F(SummaryTest, SaysNothingWithoutAnEventFile) {
  outcome_.instances[0].events_path = "";
  EXPECT_EQ(text(), "");
  outcome_.instances[0].events_path = folder_.path("missing");
  EXPECT_EQ(text(), "");
}

TEST_F(SummaryTest, TellsWhereItRanAndWhatWasGained) {
  file_.header().shim_state = IPEXRUN_SHIM_ACTIVE;
  file_.add(IPEXRUN_EVENT_PROCESS, "torch 2.13.0+cpu, amx, 2 threads");
  file_.add(IPEXRUN_EVENT_OP, "addmm\t", {8, 2, 0, 200, 100, 1});
  file_.add(IPEXRUN_EVENT_SITE, "addmm|a\tbf16_amx\tfaster", {8, 2, 0, 100, 50, 6});  // an older state of the same site
  file_.add(IPEXRUN_EVENT_SITE, "addmm|a\tbf16_amx\tfaster", {38, 30, 0, 100, 50, 6});
  file_.add(IPEXRUN_EVENT_SITE, "mm|b\tpacked\tfaster", {10, 6, 0, 100, 100, 4});
  file_.add(IPEXRUN_EVENT_TOTALS, "", {101, 89, 12, 1500, 43'000'000, 2});
  file_.add(IPEXRUN_EVENT_OP, "addmm\t", {38, 30, 0, 3000, 1500, 1});
  file_.add(IPEXRUN_EVENT_OP, "mm\tsmall=4", {10, 6, 4, 600, 0, 1});
  file_.add(IPEXRUN_EVENT_OP, "convolution\t", {53, 53, 0, 0, 0, 1});
  EXPECT_EQ(text(),
            "ipexrun: instance 0: cores 0-1, node 0, 2 threads, torch 2.13.0+cpu, amx; "
            "53 of 53 convolutions, 36 of 48 linear calls on bf16_amx, packed, saves 42% of their time; packs 43 MB\n");
}

TEST_F(SummaryTest, SaysWhenStockWasKept) {
  file_.header().shim_state = IPEXRUN_SHIM_ACTIVE;
  file_.add(IPEXRUN_EVENT_SITE, "addmm|a\tstock\tslower", {40, 0, 40, 100, 120, 6});
  EXPECT_THAT(text(), HasSubstr("stock kernels kept for all 40 linear calls"));
}

TEST_F(SummaryTest, NamesGraphsThatAreNoCapturedModules) {
  file_.header().shim_state = IPEXRUN_SHIM_ACTIVE;
  file_.add(IPEXRUN_EVENT_REGION, "Net\tbf16", {0, 9, 60, 58, 2100, 0});
  file_.add(IPEXRUN_EVENT_OP, "addmm\t", {8, 0, 0, 0, 0, 1});
  EXPECT_THAT(text(), HasSubstr("; graph of Net answered 58 of 60 calls (2.1x); stock kernels kept for all 8 linear calls"));
  file_.add(IPEXRUN_EVENT_REGION, "b.py:3\tstock", {1, 9, 60, 0, 900, 0});
  file_.add(IPEXRUN_EVENT_REGION, "c.py:3\tfloat32", {2, 9, 40, 40, 1500, 0});
  EXPECT_THAT(text(), HasSubstr("58 of 60 calls (2.1x) and 1 more graph;"));
  file_.add(IPEXRUN_EVENT_SITE, "module:Net|a\tcaptured\tfaster", {60, 58, 0, 100, 50, 6});
  EXPECT_THAT(text(), AllOf(HasSubstr("; Net captured (2.0x);"), Not(HasSubstr("graph of"))));
}

TEST_F(SummaryTest, SaysWhatDriftLeavesInFloat32) {
  file_.header().shim_state = IPEXRUN_SHIM_ACTIVE;
  file_.add(IPEXRUN_EVENT_OP, "addmm\t", {40, 0, 0, 0, 0, 1});
  file_.add(IPEXRUN_EVENT_DRIFT, "", {0, 0, 3, 0, 0, 6});
  EXPECT_THAT(text(), HasSubstr("stock kernels kept for all 40 linear calls; no bf16: no whole pass could be checked for drift\n"));
  file_.add(IPEXRUN_EVENT_OP, "addmm\t", {80, 30, 0, 3000, 1500, 1});
  file_.add(IPEXRUN_EVENT_DRIFT, "1.2e-02", {4, 3, 3, 5, 1, 0});
  EXPECT_THAT(text(), HasSubstr("30 of 80 linear calls replaced; 1 of 6 weights and sites left in float32 (drift)\n"));
}

TEST_F(SummaryTest, SaysWhenNothingWasThereToTake) {
  file_.header().shim_state = IPEXRUN_SHIM_ACTIVE;
  EXPECT_THAT(text(), HasSubstr("the main process called no op that ipexrun has kernels for"));
}

TEST_F(SummaryTest, NamesLaunchOnly) {
  file_.header().shim_state = IPEXRUN_SHIM_ACTIVE;
  options_.optimize = false;
  EXPECT_THAT(text(), HasSubstr("launch only, stock kernels"));
}

TEST_F(SummaryTest, GivesTheReasonOfARefusal) {
  file_.header().shim_state = IPEXRUN_SHIM_REFUSED;
  std::strcpy(file_.header().shim_reason, "no plugin for torch 2.12");
  EXPECT_EQ(text(), "ipexrun: instance 0: cores 0-1, node 0, 2 threads; stock PyTorch ran: no plugin for torch 2.12\n");
}

TEST_F(SummaryTest, PassesNotesOnOnce) {
  file_.header().shim_state = IPEXRUN_SHIM_ACTIVE;
  file_.add(IPEXRUN_EVENT_NOTE, "AMX was refused");
  file_.add(IPEXRUN_EVENT_NOTE, "AMX was refused");
  const std::string out = text();
  EXPECT_EQ(out.find("AMX was refused"), out.rfind("AMX was refused"));
  EXPECT_THAT(out, HasSubstr("ipexrun: instance 0: AMX was refused\n"));
}

TEST_F(SummaryTest, NamesASignalThatNobodyAskedFor) {
  file_.header().shim_state = IPEXRUN_SHIM_LOADED;
  outcome_.instances[0].signal = SIGSEGV;
  outcome_.instances[0].wall_seconds = 1.25;
  outcome_.surroundings.core_files_allowed = true;
  EXPECT_EQ(text(), "ipexrun: instance 0 was ended by SIGSEGV (Segmentation fault) after 1.2 s\n");
  outcome_.instances[0].output_path = folder_.write("log", "loading\none\ntwo\n");
  EXPECT_THAT(text(), HasSubstr("after 1.2 s; its last lines:\nipexrun:   | loading\nipexrun:   | one\nipexrun:   | two\n"));
  outcome_.instances[0].stopped_by_us = true;
  EXPECT_EQ(text(), "");
  outcome_.instances[0].stopped_by_us = false;
  outcome_.stop_signal = SIGINT;
  EXPECT_EQ(text(), "");
}

TEST_F(SummaryTest, CountsRestartsAndLostOutput) {
  outcome_.instances[0].restarts = 2;
  outcome_.instances[0].output_lost_bytes = 77;
  outcome_.instances[0].output_path = "logs/a";
  EXPECT_EQ(text(), "ipexrun: instance 0 was started again 2 times\nipexrun: instance 0: 77 bytes of its output are missing in 'logs/a'\n");
}

TEST_F(SummaryTest, TextOfAForeignHandIsBounded) {
  file_.header().shim_state = IPEXRUN_SHIM_REFUSED;
  std::memset(file_.header().shim_reason, 'x', sizeof file_.header().shim_reason);
  std::memset(file_.header().mask_at_start, '1', sizeof file_.header().mask_at_start);
  EXPECT_LT(text().size(), 1200u);
}

TEST_F(SummaryTest, RequireShimWantsItActiveEverywhere) {
  EXPECT_TRUE(require_shim_verdict(plan_, outcome_).ok());  // not required
  plan_.require_shim = true;
  const std::pair<IpexrunShimState, const char*> cases[] = {{IPEXRUN_SHIM_ABSENT, "was not loaded"},
                                                            {IPEXRUN_SHIM_LOADED, "never loaded torch"},
                                                            {IPEXRUN_SHIM_TORCH_SEEN, "never started"},
                                                            {IPEXRUN_SHIM_REFUSED, "stayed out"}};
  for (const auto& [state, words] : cases) {
    file_.header().shim_state = state;
    const Status verdict = require_shim_verdict(plan_, outcome_);
    ASSERT_FALSE(verdict.ok());
    EXPECT_EQ(verdict.error().code, kExitFailure);
    EXPECT_THAT(verdict.error().line(), HasSubstr(words));
  }
  file_.header().shim_state = IPEXRUN_SHIM_ACTIVE;
  EXPECT_TRUE(require_shim_verdict(plan_, outcome_).ok());
  outcome_.instances[0].events_path = "";
  EXPECT_FALSE(require_shim_verdict(plan_, outcome_).ok());
}

}  // namespace
}  // namespace ipexrun::launcher
