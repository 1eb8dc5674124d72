// The risk: the table and the JSON say something else than the event file, or than each other.
#include "launcher/bench/op_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/event_file.h"
#include "tests/unit/run/temp_folder.h"

namespace ipexrun::launcher::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

class OpReportTest : public testing::Test {
 protected:
  OpReportTest() {
    file_.header().shim_state = IPEXRUN_SHIM_ACTIVE;
    file_.add(IPEXRUN_EVENT_PROCESS, "torch 2.13.0+cpu, amx, 2 threads");
    InstanceOutcome instance;
    instance.index = 3;
    instance.events_path = file_.path();
    outcome_.instances = {instance};
  }

  void fill() {
    file_.add(IPEXRUN_EVENT_SITE, "addmm|f32|c|m=8|t=2|amx|2.13\town_bf16\tfaster", {30, 24, 6, 100'000, 40'000, 6});
    file_.add(IPEXRUN_EVENT_SITE, "convolution|f32|c|n=1|t=2|amx|2.13\tstock\tslower", {53, 0, 53, 50'000, 60'000, 6});
    file_.add(IPEXRUN_EVENT_OP, "addmm\tlayout=3,small=12", {45, 24, 15, 2'400'000, 1'440'000, 1});
    file_.add(IPEXRUN_EVENT_SITE, "mm|f32|c|m=1|t=2|amx|2.13\tstock\t", {1, 0, 1, 0, 0, 0});
    file_.add(IPEXRUN_EVENT_OP, "mm\t", {1, 0, 0, 0, 0, 1});
    file_.add(IPEXRUN_EVENT_OP, "convolution\t", {53, 0, 0, 0, 0, 1});
    file_.add(IPEXRUN_EVENT_TOTALS, "", {98, 24, 74, 1'440'000, 43'000'000, 2});
  }

  std::string text() { return op_report_text(read_op_reports(outcome_)); }
  nlohmann::json json() { return nlohmann::json::parse(op_report_json(read_op_reports(outcome_))); }

  TempFolder folder_;
  EventFile file_{folder_.path("0.events")};
  RunOutcome outcome_;
};

TEST_F(OpReportTest, RegionsOfTorchScriptStandInTableAndJson) {
  file_.add(IPEXRUN_EVENT_REGION, "encoder.layer.0\tstock", {0, 83, 10, 0, 0, 0});
  file_.add(IPEXRUN_EVENT_REGION, "decoder\tstock: nothing to fuse", {1, 3, 9, 0, 0, 0});
  file_.add(IPEXRUN_EVENT_REGION, "encoder.layer.0\tbf16: 2 linear layers", {0, 83, 40, 25, 1260, 2'000'000});
  EXPECT_THAT(text(), HasSubstr("captured graphs\n"
                                "  nodes  calls  taken  speed  error  form                    where\n"
                                "     83     40     25   1.26   0.2%  bf16: 2 linear layers   encoder.layer.0\n"
                                "      3      9      0      -      -  stock: nothing to fuse  decoder\n"));
  const auto report = json();
  const auto& regions = report["instances"][0]["regions"];
  ASSERT_EQ(regions.size(), 2);
  EXPECT_EQ(regions[0]["taken"], 25);
  EXPECT_TRUE(regions[1]["speed"].is_null());
  for (const auto& field : report["region_fields"]) EXPECT_TRUE(regions[0].contains(field["name"])) << field;
}

TEST_F(OpReportTest, OneThreadIsOneThread) {
  file_.add(IPEXRUN_EVENT_PROCESS, "torch 2.13.0+cpu, amx, 1 threads");
  fill();
  EXPECT_THAT(text(), HasSubstr("amx, 1 thread: "));
}

TEST_F(OpReportTest, TimesByOperatorAreSummedOverGraphsThatAnswered) {
  file_.add(IPEXRUN_EVENT_REGION, "Encoder\tbf16: 2 linear layers", {7, 83, 40, 20, 1260, 2'000'000});
  file_.add(IPEXRUN_EVENT_REGION, "Decoder\tbf16: 1 linear layers", {8, 30, 40, 10, 1260, 2'000'000});
  file_.add(IPEXRUN_EVENT_REGION, "Head\tstock", {9, 5, 40, 0, 0, 0});
  file_.add(IPEXRUN_EVENT_OP_TIME, "addmm", {7, 2, 900'000, 0, 0});  // an older state of the next
  file_.add(IPEXRUN_EVENT_OP_TIME, "addmm", {7, 2, 1'000'000, 0, 0});
  file_.add(IPEXRUN_EVENT_OP_TIME, "addmm", {8, 1, 500'000, 0, 0});
  file_.add(IPEXRUN_EVENT_OP_TIME, "addmm", {9, 1, 700'000, 0, 0});
  file_.add(IPEXRUN_EVENT_OP_TIME, "linear + gelu", {7, 0, 0, 2, 400'000});
  file_.add(IPEXRUN_EVENT_OP_TIME, "views", {7, 6, 60'000, 6, 3'000});
  EXPECT_THAT(text(), HasSubstr("time by operator in captured graphs: of one call of each, times the calls taken\n"
                                "  before_ms  after_ms  before  after  op\n"
                                "         25         -       3      0  addmm\n"
                                "          -         8       0      2  linear + gelu\n"
                                "        1.2      0.06       6      6  views\n"));
  const auto report = json();
  const auto& times = report["instances"][0]["times"];
  ASSERT_EQ(times.size(), 3);
  for (const auto& field : report["time_fields"]) EXPECT_TRUE(times[0].contains(field["name"])) << field;
}

TEST_F(OpReportTest, TheTableShowsOpsAndSites) {
  fill();
  EXPECT_EQ(text(),
            "report: instance 3, torch 2.13.0+cpu, amx, 2 threads: 24 of 46 linear calls, 0 of 53 convolutions taken; packs 43 MB\n"
            "  op           calls  taken  taken_share  stock  never_selected  stock_ms  saved_ms  saved_share  sites  reasons\n"
            "  addmm           45     24          53%      6              15       2.4      1.44          60%      1  small 12, layout 3\n"
            "  convolution     53      0           0%     53               0         -         -            -      1  -\n"
            "  mm               1      0           0%      1               0         -         -            -      1  -\n"
            "sites\n"
            "  saved_ms  calls  taken  stock_us  choice_us  samples  choice    reason     site\n"
            "      1.44     30     24       100         40        6  own_bf16  faster     addmm|f32|c|m=8|t=2|amx|2.13\n"
            "         -     53      0        50         60        6  stock     slower     convolution|f32|c|n=1|t=2|amx|2.13\n"
            "         -      1      0         -          -        0  stock     undecided  mm|f32|c|m=1|t=2|amx|2.13\n");
}

TEST_F(OpReportTest, JsonHasEveryFieldOfTheTables) {
  fill();
  const auto report = json();
  ASSERT_EQ(report["instances"].size(), 1u);
  const auto& one = report["instances"][0];
  EXPECT_EQ(one["instance"], 3);
  EXPECT_EQ(one["process"], "torch 2.13.0+cpu, amx, 2 threads");
  EXPECT_TRUE(one["problem"].is_null());
  EXPECT_EQ(one["pack_bytes"], 43'000'000);
  EXPECT_EQ(one["ops"][0]["saved_share"], 60.0);
  EXPECT_EQ(one["ops"][0]["reasons"], (nlohmann::json{{"small", 12}, {"layout", 3}}));
  EXPECT_TRUE(one["ops"][1]["saved_ms"].is_null());
  EXPECT_TRUE(one["ops"][1]["reasons"].empty());
  EXPECT_EQ(one["sites"][0]["site"], "addmm|f32|c|m=8|t=2|amx|2.13");
  for (const auto& field : report["op_fields"]) EXPECT_TRUE(one["ops"][0].contains(field["name"])) << field;
  for (const auto& field : report["site_fields"]) EXPECT_TRUE(one["sites"][0].contains(field["name"])) << field;
}

TEST_F(OpReportTest, DriftIsShownWhereItWasChecked) {
  fill();
  EXPECT_TRUE(json()["instances"][0]["drift"].is_null());
  file_.add(IPEXRUN_EVENT_DRIFT, "", {1, 1, 0, 0, 0, 30});
  EXPECT_THAT(text(), HasSubstr("drift of whole passes (at most 2%)\n"
                                "  checks  failed  unfinished  let_through  left_in_float32  waiting\n"
                                "       1       1           0            0                0       30\n"
                                "sites\n"));
  file_.add(IPEXRUN_EVENT_DRIFT, "1.881e-02", {6, 4, 1, 22, 8, 0});
  EXPECT_THAT(text(), HasSubstr("  checks  failed  unfinished  largest_drift  let_through  left_in_float32  waiting\n"
                                "       6       4           1           1.9%           22                8        0\n"));
  const auto report = json();
  const auto& drift = report["instances"][0]["drift"];
  for (const auto& field : report["drift_fields"]) EXPECT_TRUE(drift.contains(field["name"])) << field;
  EXPECT_DOUBLE_EQ(drift["largest_drift"], 1.881);
  EXPECT_EQ(drift["left_in_float32"], 8);
}

TEST_F(OpReportTest, TheTerminalShowsSomeSitesAndTheFileAll) {
  for (int i = 0; i < 14; ++i) file_.add(IPEXRUN_EVENT_SITE, "mm|" + std::to_string(i) + "\town_bf16\tfaster", {2, 1, 0, 1000 + i, 500, 6});
  EXPECT_THAT(text(), HasSubstr("the 10 of 14 sites that save most (--report-output FILE.json has all)\n"));
  EXPECT_THAT(text(), HasSubstr("mm|13"));
  EXPECT_THAT(text(), Not(HasSubstr("mm|3\n")));
  EXPECT_EQ(json()["instances"][0]["sites"].size(), 14u);
}

TEST_F(OpReportTest, SaysWhyThereIsNothing) {
  EXPECT_EQ(text(), "report: instance 3: the main process called no op that ipexrun has kernels for\n");
  file_.header().shim_state = IPEXRUN_SHIM_LOADED;
  EXPECT_EQ(text(), "report: instance 3: the program never loaded torch\n");
  EXPECT_EQ(json()["instances"][0]["problem"], "the program never loaded torch");
  file_.header().shim_state = IPEXRUN_SHIM_REFUSED;
  std::strcpy(file_.header().shim_reason, "no plugin for torch 2.12");
  EXPECT_EQ(text(), "report: instance 3: stock PyTorch ran: no plugin for torch 2.12\n");
  outcome_.instances[0].events_path = "";
  EXPECT_EQ(text(), "report: instance 3: there was no event file\n");
}

TEST_F(OpReportTest, TheFileIsWrittenAndCheckedBefore) {
  fill();
  Options options;
  options.report_output = folder_.path("report.json");
  ASSERT_TRUE(check_op_report_output(options.report_output).ok());
  EXPECT_FALSE(std::ifstream(options.report_output).good()) << "a check leaves nothing behind";
  ASSERT_TRUE(show_op_reports(options, read_op_reports(outcome_)).ok());
  std::ifstream file(options.report_output);
  EXPECT_EQ(nlohmann::json::parse(file), json());

  const Status missing = check_op_report_output(folder_.path("no/such/report.json"));
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().line(), HasSubstr("--report-output"));
}

}  // namespace
}  // namespace ipexrun::launcher::bench
