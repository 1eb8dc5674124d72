// The risk: one of the five renderings says something else than the others, breaks its format, or leaves a field out.
#include "launcher/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "launcher/bench/environment.h"
#include "launcher/bench/output.h"
#include "launcher/bench/warnings.h"

namespace ipexrun::launcher::bench {
namespace {

Row row(const std::string& variant, int instance, int n, double ms) {
  Row out;
  out.variant = variant;
  out.instance = instance;
  out.source = Source::kModuleCalls;
  out.calls.module = "BertModel";
  for (int i = 0; i < n; ++i) {
    out.calls.start_s.push_back(0.01 * i);
    out.calls.duration_ms.push_back(ms + 0.25 * (i % 5));
    out.calls.batch.push_back(16);
  }
  out.calls.seen = n + 12;
  out.calls.warmup = 10;
  out.calls.explored = 2;
  out.calls.first_ms = 250;
  out.calls.busy_seconds = 0.008 * n;
  out.calls.span_seconds = 0.01 * n;
  out.calls.total_ms = 8.0 * n + 500;
  out.samples_per_second = 2000;
  out.calls_per_second = 125;
  out.wall_seconds = 3.5;
  out.cpu_seconds = 6.25;
  out.max_rss_bytes = 512.0 * 1024 * 1024;
  out.cpus = "0-1";
  out.cores = 2;
  out.threads = 2;
  out.ops_taken = 4800;
  out.ops_declined = 12;
  return out;
}

Report sample_report() {
  Report report;
  report.command = "python 'my app.py' --text 'a, \"b\" | <c>'";
  report.headline = "p50 of BertModel";
  report.environment = {{"date", "2026-01-02T03:04:05Z", "when"}, {"cpu", "A CPU <model>", "CPU model"}, {"governor", "", "governor"}};
  report.rows = {row("stock", -1, 100, 16), row("ipexrun", -1, 100, 8)};
  report.rows.front().ops_taken.reset();
  report.modules = {row("ipexrun", -1, 100, 8), row("ipexrun", -1, 100, 1)};
  report.modules.back().calls.module = "CrossEntropyLoss";
  report.modules.back().calls.total_ms = 100;
  Comparison comparison;
  comparison.variant = "ipexrun";
  comparison.baseline = "stock";
  comparison.ratios = {1.9, 2.0, 2.1};
  comparison.speedup = 2;
  comparison.interval = Interval{1.9, 2.1};
  comparison.test = {3, 0.25, true, 0.25};
  report.comparisons = {comparison};
  report.notes = {"how it was measured"};
  report.warnings = {"the machine was <busy>"};
  return report;
}

/// Compares with golden/<name>; IPEXRUN_UPDATE_GOLDEN=1 writes it instead.
void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(GOLDEN_DIR) + "/" + name;
  if (std::getenv("IPEXRUN_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << text;
  std::ifstream file(path, std::ios::binary);
  const std::string golden(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(text, golden) << "if this is intended: IPEXRUN_UPDATE_GOLDEN=1";
}

TEST(Report, TerminalGolden) { expect_golden("report.txt", report_text(sample_report())); }
TEST(Report, JsonGolden) { expect_golden("report.json", report_json(sample_report())); }
TEST(Report, CsvGolden) { expect_golden("report.csv", report_csv(sample_report())); }
TEST(Report, MarkdownGolden) { expect_golden("report.md", report_markdown(sample_report())); }
TEST(Report, HtmlGolden) { expect_golden("report.html", report_html(sample_report())); }

TEST(Report, PercentilesThatTheCountCannotSupportSaySo) {
  const std::string text = report_text(sample_report());
  EXPECT_THAT(text, testing::HasSubstr("p99 needs n >= 662, have 100"));
  EXPECT_THAT(text, testing::HasSubstr("p95 needs n >= 130, have 100"));
  const auto json = nlohmann::json::parse(report_json(sample_report()));
  EXPECT_TRUE(json["rows"][1]["p99_ms"].is_null());
  EXPECT_EQ(json["rows"][1]["missing"]["p99_ms"], "p99 needs n >= 662, have 100");
  EXPECT_DOUBLE_EQ(json["rows"][1]["p90_ms"].get<double>(), 9.0);
}

TEST(Report, EveryFieldIsInEveryFile) {
  const Report report = sample_report();
  const auto json = nlohmann::json::parse(report_json(report));
  const std::string csv = report_csv(report);
  const std::string markdown = report_markdown(report);
  const std::string html = report_html(report);
  for (const Field& field : fields()) {
    const std::string name = field.name;
    EXPECT_TRUE(json["rows"][0].contains(name)) << name;
    EXPECT_THAT(csv.substr(0, csv.find('\n')) + ",", testing::HasSubstr(name + ",")) << name;
    EXPECT_THAT(markdown, testing::HasSubstr("| " + name + " |")) << name;
    EXPECT_THAT(html, testing::HasSubstr("<td>" + name + "</td>")) << name;
  }
}

TEST(Report, HtmlIsSelfContainedAndEscaped) {
  const std::string html = report_html(sample_report());
  for (const char* outside : {"http://", "https://", "<script", "<link", "src=", "@import", "url("}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  EXPECT_EQ(html.find("<busy>"), std::string::npos);
  EXPECT_EQ(html.find("<model>"), std::string::npos);
}

TEST(Report, BrokenUtf8DoesNotBreakJson) {
  Report report = sample_report();
  report.notes = {"\xff\xfe"};
  EXPECT_FALSE(nlohmann::json::parse(report_json(report))["notes"][0].get<std::string>().empty());
}

TEST(Report, EmptyReportHasAllForms) {
  const Report empty;
  EXPECT_FALSE(report_json(empty).empty());
  EXPECT_FALSE(report_html(empty).empty());
  EXPECT_FALSE(report_csv(empty).empty());
  EXPECT_EQ(report_text(empty), "");
}

TEST(Report, NumbersHaveFourDigits) {
  EXPECT_EQ(show_number(1234.567), "1235");
  EXPECT_EQ(show_number(8.13149), "8.131");
  EXPECT_EQ(show_number(0.5), "0.5");
  EXPECT_EQ(show_number(0), "0");
  EXPECT_EQ(show_ratio(1.829), "1.83x");
}

TEST(Outputs, WrongEndingAndFolderAreSeenBeforeAnythingStarts) {
  EXPECT_EQ(check_outputs({"report.txt"}).error().code, kExitUsage);
  const Status absent = check_outputs({"/nonexistent-folder/r.json"});
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(absent.error().what, testing::HasSubstr("'/nonexistent-folder/r.json': No such file"));
  EXPECT_TRUE(check_outputs({testing::TempDir() + "r.json"}).ok());
}

TEST(Outputs, FilesAreReplacedWhole) {
  const std::string path = testing::TempDir() + "ipexrun-report.csv";
  ASSERT_TRUE(write_outputs(sample_report(), {path}).ok());
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), report_csv(sample_report()));
  EXPECT_FALSE(write_outputs(sample_report(), {"/nonexistent-folder/r.csv", path}).ok());
}

TEST(Environment, ProcessTextIsTakenApart) {
  const ProcessFacts facts = parse_process("torch 2.13.0+cpu, avx512_bf16, 12 threads");
  EXPECT_EQ(facts.torch, "2.13.0+cpu");
  EXPECT_EQ(facts.isa, "avx512_bf16");
  EXPECT_EQ(facts.threads, "12");
  EXPECT_EQ(parse_process("").torch, "");
}

TEST(Environment, CommandIsQuotedForAShell) {
  EXPECT_EQ(shell_quoted({"python", "a b.py", "--x=1", "it's", ""}), "python 'a b.py' --x=1 'it'\\''s' ''");
}

TEST(Warnings, a_load_is_held_against_the_machines_cores) {
  const Options options;
  Machine machine;
  machine.cores.resize(1);
  const Row measured = row("ipexrun", -1, 40, 10);
  const Headline headline{};
  const std::vector<Comparison> none;
  WarningInput input;
  input.options = &options;
  input.machine = &machine;
  input.load = 0.78;
  input.row = &measured;
  input.headline = &headline;
  input.comparisons = &none;
  EXPECT_THAT(collect_warnings(input), testing::Contains(testing::HasSubstr("load average 0.78 on 1 core; times")));
  machine.total_cores = 64;  // of which this run may use one
  EXPECT_THAT(collect_warnings(input), testing::Not(testing::Contains(testing::HasSubstr("load average"))));
}

}  // namespace
}  // namespace ipexrun::launcher::bench
