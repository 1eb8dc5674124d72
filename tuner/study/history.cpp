#include "tuner/study/history.h"

#include <cmath>
#include <filesystem>

namespace ipexrun::tuner {
namespace {

Record value_record(const Value& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return nullptr;
}

Value value_from(const Record& record) {
  if (record.is_number_integer()) return record.get<std::int64_t>();
  if (record.is_number()) return record.get<double>();
  if (record.is_string()) return record.get<std::string>();
  return std::monostate{};
}

Record run_fields(const Run& run) {
  Record out{{"state", word_of(run.state)}, {"exit", run.exit_code}, {"seconds", run.seconds}};
  Record numbers = Record::object();
  for (const auto& [name, value] : run.numbers)
    if (std::isfinite(value)) numbers[name] = value;
  out["numbers"] = std::move(numbers);
  if (!run.why.empty()) out["why"] = run.why;
  for (const auto& [name, why] : run.missing) out["missing"][name] = why;
  out["folder"] = run.folder;
  return out;
}

Run run_from(const Record& r) {
  Run out;
  out.state = state_of(r.value("state", ""));
  out.exit_code = r.value("exit", 0);
  out.seconds = r.value("seconds", 0.0);
  out.why = r.value("why", "");
  out.folder = r.value("folder", "");
  if (r.contains("numbers"))
    for (const auto& [name, value] : r["numbers"].items())
      if (value.is_number()) out.numbers[name] = value.get<double>();
  if (r.contains("missing"))
    for (const auto& [name, why] : r["missing"].items())
      if (why.is_string()) out.missing[name] = why.get<std::string>();
  return out;
}

constexpr const char* kSources[] = {"printed", "bench", "regex"};

Objective objective_from(const Record& r) {
  Objective out;
  out.name = r.value("name", "");
  out.higher_is_better = r.value("higher_is_better", false);
  if (r.contains("target")) out.target = r["target"].get<double>();
  for (int i = 0; i < 3; ++i)
    if (r.value("source", "") == kSources[i]) out.source = static_cast<Source>(i);
  out.key = r.value("key", "");
  out.aggregate = parse_aggregate(r.value("aggregate", "auto")).value_or(Aggregate::kAuto);
  return out;
}

StudyHead head_from(const Record& r) {
  StudyHead out;
  out.schema = r.value("schema", 1);
  out.program = r.value("program", std::vector<std::string>{});
  out.id = r.value("id", "");
  out.objective = r.value("objective", "");
  out.space = r.value("space", "");
  out.strategy = r.value("strategy", "");
  out.seed = r.value("seed", std::uint64_t{0});
  out.max_trials = r.value("max_trials", 0);
  out.repeats = r.value("repeats", 1);
  out.machine = r.value("machine", "");
  out.started = r.value("started", "");
  out.prefer = r.value("prefer", "");
  out.old_rule = r.value("old_rule", false);
  out.parameters = r.value("parameters", std::vector<std::string>{});
  out.grid = r.value("grid", 0.0);
  if (r.contains("constraints"))
    for (const Record& one : r["constraints"])
      if (auto parsed = parse_constraint(one.get<std::string>()); parsed.ok()) out.constraints.push_back(*parsed);
  return out;
}

void start(const Record& r, History* history) {
  const int number = r.value("trial", -1);
  const int next = static_cast<int>(history->trials.size());
  if (number < 0 || number > next) {
    ++history->bad_records;
    return;
  }
  if (number == next) {
    history->trials.emplace_back();
    history->stop.clear();  // the search goes on
  }
  Trial& trial = history->trials[static_cast<std::size_t>(number)];
  trial.number = number;
  trial.worker = r.value("worker", "");
  ++trial.attempts;
  trial.budget = r.value("budget", 1.0);
  trial.rung = r.value("rung", 0);
  trial.from = r.value("from", -1);
  trial.outside = r.value("outside", -1);
  trial.point.clear();
  if (r.contains("point"))
    for (const auto& [name, value] : r["point"].items()) trial.point[name] = value_from(value);
}

Trial* trial_of(const Record& r, History* history) {
  const int number = r.value("trial", -1);
  if (number >= 0 && number < static_cast<int>(history->trials.size())) return &history->trials[static_cast<std::size_t>(number)];
  ++history->bad_records;
  return nullptr;
}

void apply_checked(const Record& r, History* history) {
  const std::string kind = r.value("kind", "");
  if (kind == "study") {
    if (!history->head) history->head = head_from(r);
  } else if (kind == "objectives") {
    history->objectives.clear();
    for (const Record& one : r.at("objectives")) history->objectives.push_back(objective_from(one));
  } else if (kind == "start") {
    start(r, history);
  } else if (kind == "left") {
    if (Trial* trial = trial_of(r, history)) --trial->attempts;  // the user asked for an end
  } else if (kind == "run") {
    if (Trial* trial = trial_of(r, history)) trial->runs.push_back(run_from(r));
  } else if (kind == "end") {
    Trial* trial = trial_of(r, history);
    if (trial == nullptr) return;
    if (trial->ended) ++history->bad_records;
    trial->ended = true;
    trial->state = state_of(r.value("state", ""));
    trial->why = r.value("why", "");
  } else if (kind == "round") {
    history->rounds.push_back({r.value("phase", ""), r.value("series", 0), r.value("round", 0), r.value("trial", 0), run_from(r)});
  } else if (kind == "dropped") {
    for (const auto& [why, count] : r.at("more").items()) history->dropped[why] += count.get<int>();
  } else if (kind == "stop") {
    history->stop = r.value("why", "");
  } else if (kind == "verdict") {
    history->verdict = r.value("text", "");
    history->best = r.value("best", -1);
  }
}

}  // namespace

Record record_of(const StudyHead& head) {
  Record constraints = Record::array();
  for (const Constraint& one : head.constraints) constraints.push_back(one.text());
  return {{"kind", "study"},
          {"schema", head.schema},
          {"program", head.program},
          {"strategy", head.strategy},
          {"seed", head.seed},
          {"max_trials", head.max_trials},
          {"repeats", head.repeats},
          {"machine", head.machine},
          {"id", head.id},
          {"objective", head.objective},
          {"started", head.started},
          {"prefer", head.prefer},
          {"old_rule", head.old_rule},
          {"parameters", head.parameters},
          {"constraints", constraints},
          {"grid", head.grid},
          {"space", head.space}};
}

Record record_of(const std::vector<Objective>& objectives) {
  Record list = Record::array();
  for (const Objective& one : objectives) {
    Record r{{"name", one.name},
             {"higher_is_better", one.higher_is_better},
             {"source", kSources[static_cast<int>(one.source)]},
             {"key", one.key},
             {"aggregate", text_of(one.aggregate)}};
    if (one.target && std::isfinite(*one.target)) r["target"] = *one.target;
    list.push_back(std::move(r));
  }
  return {{"kind", "objectives"}, {"objectives", list}};
}

Record start_record(const Trial& trial) {
  Record point = Record::object();
  for (const auto& [name, value] : trial.point) point[name] = value_record(value);
  Record out{{"kind", "start"}, {"trial", trial.number}, {"worker", trial.worker}, {"point", point}};
  if (trial.budget != 1 || trial.rung != 0) out.update({{"budget", trial.budget}, {"rung", trial.rung}});
  if (trial.from >= 0) out["from"] = trial.from;
  if (trial.outside >= 0) out["outside"] = trial.outside;
  return out;
}

Record run_record(int trial, const Run& run) {
  Record out{{"kind", "run"}, {"trial", trial}};
  out.update(run_fields(run));
  return out;
}

Record end_record(int trial, State state, const std::string& why) {
  Record out{{"kind", "end"}, {"trial", trial}, {"state", word_of(state)}};
  if (!why.empty()) out["why"] = why;
  return out;
}

Record round_record(const Round& round) {
  Record out{{"kind", "round"}, {"phase", round.phase}, {"series", round.series}, {"round", round.round}, {"trial", round.trial}};
  out.update(run_fields(round.run));
  return out;
}

Record dropped_record(const std::map<std::string, int>& more) {
  Record counts = Record::object();
  for (const auto& [why, count] : more) counts[why] = count;
  return {{"kind", "dropped"}, {"more", counts}};
}

Record stop_record(const std::string& why) { return {{"kind", "stop"}, {"why", why}}; }

Record verdict_record(const std::string& text, int best) { return {{"kind", "verdict"}, {"text", text}, {"best", best}}; }

void apply(const Record& record, History* history) {
  try {
    apply_checked(record, history);
  } catch (const nlohmann::json::exception&) {
    ++history->bad_records;  // whole by its checksum, but not of this form: of a later version
  }
}

Result<History> read_study(const std::string& place) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::string path = fs::is_directory(place, ignored) ? (fs::path(place) / "journal.jsonl").string() : place;
  if (!fs::is_regular_file(path, ignored))
    return Error{kExitUsage, "'" + place + "' is no study", "the folder given as --output-dir, or its journal.jsonl"};
  Result<Journal> journal = Journal::open(path, true);
  if (!journal.ok()) return journal.error();
  Result<std::vector<Record>> records = journal->read_new();
  if (!records.ok()) return records.error();
  History out;
  for (const Record& one : *records) apply(one, &out);
  out.bad_records += journal->bad_lines();
  if (!out.head) return Error{kExitUsage, "'" + path + "' holds no study", ""};
  return out;
}

}  // namespace ipexrun::tuner
