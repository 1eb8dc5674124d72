#include <fmt/format.h>

#include "launcher/bench/op_report.h"

namespace ipexrun::launcher::bench {
namespace {

constexpr double kNsInMs = 1e6;
constexpr double kNsInUs = 1e3;

double real(std::int64_t n) { return static_cast<double>(n); }

Value percent(double part, double whole, const char* why) { return whole > 0 ? Value(100 * part / whole) : Value(Missing{why}); }

/// Sites whose choice was forced, asked for or remembered may have no time measured.
Value time(std::int64_t ns, double unit) { return ns > 0 ? Value(real(ns) / unit) : Value(Missing{"not measured"}); }

}  // namespace

// clang-format off
const std::vector<FieldOf<OpFact>>& op_fields() {
  static const std::vector<FieldOf<OpFact>> table = {
    {"op", "", "name of the operator, with its overload", [](const OpFact& r) -> Value { return r.op; }},
    {"calls", "", "calls of the program", [](const OpFact& r) -> Value { return r.calls; }},
    {"taken", "", "calls that a candidate of ipexrun computed", [](const OpFact& r) -> Value { return r.taken; }},
    {"taken_share", "%", "share of the calls", [](const OpFact& r) -> Value { return percent(real(r.taken), real(r.calls), "no calls"); }},
    {"stock", "", "calls at sites where stock was kept or candidates were still measured: calls without those taken and never_selected",
     [](const OpFact& r) -> Value { return r.calls - r.taken - r.declined; }},
    {"never_selected", "", "calls that never came to selection", [](const OpFact& r) -> Value { return r.declined; }},
    {"stock_ms", "ms", "what stock would have taken for the calls taken: its median while the choice was made, times the calls",
     [](const OpFact& r) -> Value { return r.taken > 0 ? time(r.stock_ns, kNsInMs) : Value(Missing{"none taken"}); }},
    {"saved_ms", "ms", "how much less the choices took",
     [](const OpFact& r) -> Value { return r.taken == 0 ? Value(Missing{"none taken"}) : r.stock_ns > 0 ? Value(real(r.saved_ns) / kNsInMs) : Value(Missing{"not measured"}); }},
    {"saved_share", "%", "share of stock_ms", [](const OpFact& r) -> Value { return percent(real(r.saved_ns), real(r.stock_ns), "not measured"); }},
    {"sites", "", "kinds of call: each has a choice of its own", [](const OpFact& r) -> Value { return r.sites; }},
    {"reasons", "", "why calls never came to selection, with their number",
     [](const OpFact& r) -> Value {
       std::string text;
       for (const auto& [word, count] : r.reasons) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", word, count);
       return text.empty() ? Value(Missing{"none"}) : Value(text);
     }},
  };
  return table;
}

const std::vector<FieldOf<SiteFact>>& site_fields() {
  static const std::vector<FieldOf<SiteFact>> table = {
    {"saved_ms", "ms", "calls taken times the difference of the medians",
     [](const SiteFact& r) -> Value { return r.taken > 0 && r.stock_ns > 0 ? Value(r.saved_ns() / kNsInMs) : Value(Missing{"none taken, or not measured"}); }},
    {"calls", "", "calls of the program", [](const SiteFact& r) -> Value { return r.calls; }},
    {"taken", "", "calls that the choice computed", [](const SiteFact& r) -> Value { return r.taken; }},
    {"stock_us", "us", "median of one call on stock", [](const SiteFact& r) { return time(r.stock_ns, kNsInUs); }},
    {"choice_us", "us", "median of one call with the choice", [](const SiteFact& r) { return time(r.choice_ns, kNsInUs); }},
    {"samples", "", "paired measurements behind the two medians", [](const SiteFact& r) -> Value { return r.samples; }},
    {"choice", "", "stock, or the candidate in use", [](const SiteFact& r) -> Value { return r.choice; }},
    {"reason", "", "why this is the choice", [](const SiteFact& r) -> Value { return r.reason.empty() ? std::string("undecided") : r.reason; }},
    {"site", "", "op, dtypes, layouts, sizes, threads, instruction set, torch", [](const SiteFact& r) -> Value { return r.key; }},
  };
  return table;
}

const std::vector<FieldOf<DriftFact>>& drift_fields() {
  static const std::vector<FieldOf<DriftFact>> table = {
    {"checks", "", "whole passes that were computed twice to their end, by stock for the program and beside it with bf16", [](const DriftFact& r) -> Value { return r.checks; }},
    {"failed", "", "of these: bf16 moved the results by more than 2%, or might move other samples of few numbers so far, and some of it was taken back", [](const DriftFact& r) -> Value { return r.failed; }},
    {"unfinished", "", "checks that came to no end; after three in a row there are no more", [](const DriftFact& r) -> Value { return r.unfinished; }},
    {"largest_drift", "%", "how far bf16 moved the results in the worst check that was good; at most 2",
     [](const DriftFact& r) -> Value { return r.largest ? Value(100 * *r.largest) : Value(Missing{"no check was good"}); }},
    {"let_through", "", "weights that may be rounded, and sites of ops without weights", [](const DriftFact& r) -> Value { return r.let_through; }},
    {"left_in_float32", "", "of the same: stay in float32, because results would move too far; they race at sites whose keys hold `,exact`", [](const DriftFact& r) -> Value { return r.left_in_float32; }},
    {"waiting", "", "of the same: on stock until a pass is checked", [](const DriftFact& r) -> Value { return r.waiting; }},
  };
  return table;
}

const std::vector<FieldOf<ModuleFact>>& module_fields() {
  static const std::vector<FieldOf<ModuleFact>> table = {
    {"module", "", "class of the module", [](const ModuleFact& r) -> Value { return r.name(); }},
    {"calls", "", "calls of the program since it was looked at", [](const ModuleFact& r) -> Value { return r.calls; }},
    {"taken", "", "calls that the captured form answered for good", [](const ModuleFact& r) -> Value { return r.taken; }},
    {"stock_ms", "ms", "median of one uncaptured call, with the operators of ipexrun", [](const ModuleFact& r) { return time(r.stock_ns, kNsInMs); }},
    {"captured_ms", "ms", "median of one captured call", [](const ModuleFact& r) { return time(r.choice_ns, kNsInMs); }},
    {"choice", "", "captured, or stock: the module itself", [](const ModuleFact& r) -> Value { return r.choice; }},
    {"reason", "", "why, and the lines of the program that split it into several graphs", [](const ModuleFact& r) -> Value { return r.reason; }},
  };
  return table;
}

const std::vector<FieldOf<RegionFact>>& region_fields() {
  static const std::vector<FieldOf<RegionFact>> table = {
    {"nodes", "", "operators of the row", [](const RegionFact& r) -> Value { return r.nodes; }},
    {"calls", "", "calls of the program, without those of training", [](const RegionFact& r) -> Value { return r.calls; }},
    {"taken", "", "calls that a program of ipexrun computed", [](const RegionFact& r) -> Value { return r.taken; }},
    {"speed", "x", "stock's time over the program's, medians while the choice was made", [](const RegionFact& r) -> Value { return r.speed > 0 ? Value(r.speed) : Value(Missing{"not decided"}); }},
    {"error", "%", "how far its results lay from stock's, at most", [](const RegionFact& r) -> Value { return r.speed > 0 ? Value(100 * r.error) : Value(Missing{"not decided"}); }},
    {"form", "", "which form answers, how many of its steps each kernel computes where several race, and what is fused in it; or why stock's does", [](const RegionFact& r) -> Value { return r.form; }},
    {"where", "", "class of the captured module; of TorchScript the module of a traced program, else a line of the program's text", [](const RegionFact& r) -> Value { return r.where; }},
  };
  return table;
}

const std::vector<FieldOf<OpTimeFact>>& op_time_fields() {
  static const std::vector<FieldOf<OpTimeFact>> table = {
    {"before_ms", "ms", "time of the operator as captured, by torch's own kernels, in as many calls as programs of ipexrun answered", [](const OpTimeFact& r) { return r.before > 0 ? time(r.before_ns, kNsInMs) : Value(Missing{"not there"}); }},
    {"after_ms", "ms", "the same in these programs", [](const OpTimeFact& r) { return r.after > 0 ? time(r.after_ns, kNsInMs) : Value(Missing{"not there"}); }},
    {"before", "", "how often it stands in the graphs as captured", [](const OpTimeFact& r) -> Value { return r.before; }},
    {"after", "", "and in the programs", [](const OpTimeFact& r) -> Value { return r.after; }},
    {"op", "", "operator, with what is fused into it", [](const OpTimeFact& r) -> Value { return r.op; }},
  };
  return table;
}
// clang-format on

}  // namespace ipexrun::launcher::bench
