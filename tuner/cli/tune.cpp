#include "tuner/cli/tune.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "launcher/bench/output.h"
#include "launcher/plan/show.h"
#include "launcher/plan/text.h"
#include "launcher/run/allocators.h"
#include "launcher/run/library_search.h"
#include "launcher/run/print.h"
#include "launcher/run/program.h"
#include "tuner/cli/progress.h"
#include "tuner/cli/settings_table.h"
#include "tuner/cli/workers.h"
#include "tuner/report/result.h"
#include "tuner/strategies/optuna.h"
#include "tuner/study/study.h"

namespace ipexrun::tuner {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kJournalBegin = 5;  // {"r":

std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

/// ipexrun beside this program, else that of PATH.
Result<std::string> find_ipexrun() {
  std::error_code failure;
  const fs::path self = fs::read_symlink("/proc/self/exe", failure);
  const fs::path beside = self.parent_path() / "ipexrun";
  if (!failure && ::access(beside.c_str(), X_OK) == 0) return beside.string();
  return launcher::resolve_program("ipexrun", env::get_named("PATH").value_or(""));
}

StudyHead head_of(const Settings& s, const launcher::Machine& machine) {
  StudyHead out;
  std::random_device chance;
  out.id = fmt::format("{:08x}{:08x}", chance(), chance());
  out.objective = s.has_objectives ? objectives_text(s.objectives) : "what the program prints, else throughput";
  out.program = s.program;
  out.space = space_text(s.space);
  out.strategy = s.strategy;
  out.seed = s.seed;
  out.max_trials = s.max_trials;
  out.repeats = s.repeats;
  out.machine = fmt::format("{} ({})", machine.name, launcher::count_text(machine.cores.size(), "core"));
  out.started = local_time();
  out.prefer = s.prefer;
  out.old_rule = s.old_rule;
  for (const Parameter& one : s.space.parameters) out.parameters.push_back(one.name);
  out.constraints = s.constraints;
  const std::uint64_t grid = grid_size(s.space);
  out.grid = grid < (std::uint64_t{1} << 40) ? static_cast<double>(grid) : 0;
  return out;
}

/// What of a study may not change when it goes on. "" = nothing did.
std::string difference(const StudyHead& then, const StudyHead& now) {
  if (then.program != now.program) return "another program or other arguments";
  if (then.space != now.space) return "another space";
  if (then.strategy != now.strategy) return "the strategy " + then.strategy;
  if (then.seed != now.seed) return fmt::format("the seed {}", then.seed);
  if (then.repeats != now.repeats) return fmt::format("--repeats {}", then.repeats);
  if (then.constraints != now.constraints) return "other constraints";
  if (!then.objective.empty() && then.objective != now.objective) return "another objective: " + then.objective;
  if (then.prefer != now.prefer) return then.prefer.empty() ? "no --prefer" : "--prefer " + then.prefer;
  return "";
}

void put_aside(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / "journal.jsonl", ignored)) return;
  fs::path old;
  for (int i = 1; old.empty() || fs::exists(old, ignored); ++i) old = folder / fmt::format("older-{}", i);
  fs::create_directories(old, ignored);
  for (const char* name : {"journal.jsonl", "record.csv", "best.yaml", "report.html", "trials", "rounds", "optuna.db", "optuna.db-journal"})
    if (fs::exists(folder / name, ignored)) fs::rename(folder / name, old / name, ignored);
}

/// A file of a folder without a study that the study would overwrite or add to; "" = there is none.
std::string file_of_others(const fs::path& folder, bool journal_is_ours) {
  std::error_code ignored;
  for (const char* name : {"best.yaml", "record.csv", "report.html"})
    if (fs::symlink_status(folder / name, ignored).type() != fs::file_type::not_found) return (folder / name).string();
  const fs::path journal = folder / "journal.jsonl";
  if (!fs::is_regular_file(journal, ignored)) return "";
  // Begun and killed at its first line is ours too.
  std::ifstream file(journal, std::ios::binary);
  const std::string begin = journal_line(Record::object()).substr(0, kJournalBegin);
  std::string head(begin.size(), '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  return journal_is_ours || begin.starts_with(head) ? "" : journal.string();
}

Status open_study(const Settings& s, const launcher::Machine& machine, const std::string& path) {
  std::error_code ignored;
  const bool made = fs::symlink_status(path, ignored).type() == fs::file_type::not_found;
  Result<Journal> journal = Journal::open(path);
  if (!journal.ok()) return journal.error();
  const Journal::Lock lock(*journal);
  Result<std::vector<Record>> records = journal->read_new();
  if (!records.ok()) return records.error();
  History history;
  for (const Record& one : *records) apply(one, &history);
  const StudyHead head = head_of(s, machine);
  if (!history.head) {
    const std::string others = file_of_others(fs::path(path).parent_path(), !records->empty());
    if (others.empty()) return journal->append({record_of(head)});
    if (made) ::unlink(path.c_str());
    return Error{kExitUsage, "'" + others + "' is there already, and no study of hypertune: it is not overwritten",
                 "--output-dir names another folder"};
  }
  const std::string other = difference(*history.head, head);
  if (other.empty() && history.head->machine != head.machine)
    log::warn("the study was begun on another machine, " + history.head->machine + ": numbers of the two do not compare");
  if (other.empty()) return ok_status();
  return Error{kExitUsage, "'" + s.output_dir + "' holds a study with " + other, "--fresh puts it aside, --output-dir names another place"};
}

/// Workers 1 to jobs-1 of this machine; this process goes on as worker 0. In each the number of its slice is returned.
struct Crew {
  int index = 0;
  std::vector<pid_t> others;
};

Crew fork_crew(int jobs) {
  Crew out;
  const pid_t parent = ::getpid();
  for (int i = 1; i < jobs; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (::getppid() != parent) ::_exit(kExitFailure);
      return {i, {}};
    }
    if (pid > 0) out.others.push_back(pid);
  }
  return out;
}

std::unique_ptr<Strategy> native_strategy(const Settings& s) {
  const StrategySettings settings{s.seed, s.max_trials, s.old_rule};
  if (s.strategy == "grid") return grid_strategy(s.space, settings);
  if (s.strategy == "random") return random_strategy(s.space, settings);
  if (s.strategy == "climb") return climb_strategy(s.space, settings);
  return s.strategy == "halving" ? halving_strategy(s.space, settings) : nullptr;
}

/// Feasibility in a child's memory only: what is looked up is the same for all workers.
World make_world(TrialRunner& runner, Strategy& strategy, LaunchPlanner& planner, StopSignals& signals, Progress& progress,
                 const Worker& worker, const std::string& folder) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  World out;
  out.runner = &runner;
  out.strategy = &strategy;
  out.plan = [&planner](const LaunchWords& words) { return planner.check(words); };
  out.now = [began] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  out.sleep = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
  out.stop_signal = [&signals] { return signals.pending(); };
  out.alive = [folder](const std::string& name) { return worker_alive(folder, name); };
  out.say = [](const std::string& text) { log::warn(text); };
  out.progress = [&progress, now = out.now](const History& history, const std::string& doing) { progress.show(history, doing, now()); };
  out.worker = worker.name();
  return out;
}

std::vector<std::string> installed_allocators() {
  std::vector<std::string> out;
  std::map<std::string, std::string> variables;
  for (const char* name : {"LD_LIBRARY_PATH", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX"}) variables[name] = env::get_named(name).value_or("");
  const std::vector<std::string> folders = launcher::library_folders(variables, launcher::find_python(env::get_named("PATH").value_or("")));
  for (const std::string& name : launcher::allocator_names())
    if (!launcher::find_allocator(name, folders).path.empty()) out.push_back(name);
  return out;
}

/// Until the other workers of this machine have ended; `now`: they are told to. The signal that this one got, 0 = none.
int wait_for(const Crew& crew, StopSignals& signals, bool now) {
  bool told = false;
  for (const pid_t pid : crew.others) {
    while (::waitpid(pid, nullptr, WNOHANG) == 0) {
      now = now || signals.pending() != 0;
      if (now && !told)
        for (const pid_t other : crew.others) ::kill(other, SIGTERM);
      told = told || now;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  return signals.pending();
}

/// Search and final measurement of this worker. The exit code, or what went wrong; the study's state is in *history in any case.
Result<int> work(const Settings& s, Study& study, const Crew& crew, const std::string& folder, StopSignals& signals) {
  Result<Ending> ended = study.search();
  const int signal = wait_for(crew, signals, !ended.ok() || ended->signal != 0);
  if (!ended.ok()) return ended.error();
  if (signal != 0) return 128 + signal;
  if (s.worker || crew.index > 0) return static_cast<int>(kExitOk);
  const launcher::Fd final_lock = try_lock(folder + "/final.lock");
  if (!final_lock.open()) {
    log::warn("another worker makes the final measurement");
    return static_cast<int>(kExitOk);
  }
  ended = study.finish();
  if (!ended.ok()) return ended.error();
  if (ended->signal != 0) return 128 + ended->signal;
  return static_cast<int>(study.history().best < 0 ? kExitFailure : kExitOk);
}

}  // namespace

Status write_results(const History& history, const Settings& s, const std::string& folder) {
  using launcher::bench::write_whole;
  Status out = write_whole("output", folder + "/record.csv", record_csv(history));
  const Trial* best = history.find(history.best);  // none where the journal lost it
  if (best != nullptr) {
    LaunchBase base{s.program, s.no_python, {}, 1};
    if (s.budget == "placeholder")
      for (const Trial& one : history.trials) base.budget = std::max(base.budget, one.budget);
    const std::string text = best_yaml(history, s.space, words_of(s.space, best->point, base));
    Status written = write_whole("output", folder + "/best.yaml", text);
    if (out.ok()) out = std::move(written);
  } else if (!history.verdict.empty() && history.best < 0) {
    std::error_code ignored;
    fs::remove(folder + "/best.yaml", ignored);  // of an earlier end of this study
  }
  Status page = write_whole("output", folder + "/report.html", study_html(history));
  return out.ok() ? page : out;
}

Result<int> run_tune(const std::vector<std::string>& args) {
  Result<Settings> first = parse_tune_command(args);
  if (!first.ok()) return first.error();
  Result<launcher::Machine> machine =
      first->topology.empty() ? launcher::read_machine(first->sysroot) : launcher::machine_from_topology(first->topology, first->sysroot);
  if (!machine.ok()) return machine.error();
  const Result<Settings> made = make_settings(args, *machine, installed_allocators);
  if (!made.ok()) return made.error();
  Settings s = *made;
  LaunchPlanner planner(*machine);
  if (s.dry_run) {
    const Status printed = launcher::print_text(dry_run_text(s, planner));
    return printed.ok() ? Result<int>(kExitOk) : Result<int>(printed.error());
  }
  const Result<std::string> ipexrun = find_ipexrun();
  if (!ipexrun.ok()) return ipexrun.error();
  // Before there is a study of it: with the program's name mended the command is another one.
  const Feasibility launch = planner.check(words_of(s.space, default_point(s.space), {s.program, s.no_python, {}, 1}));
  if (!launch.why.empty()) return Error{launch.code, "the default configuration cannot be launched: " + launch.why, ""};
  std::error_code failure;
  const std::string folder = fs::absolute(s.output_dir, failure).lexically_normal().string();
  if (failure)
    return Error{kExitUsage, "the current folder is gone: '" + s.output_dir + "' cannot be made in it", "cd to one that is there"};
  fs::create_directories(folder, failure);
  if (failure) return Error{kExitFailure, "cannot make '" + folder + "': " + failure.message(), "--output-dir names another folder"};
  if (s.fresh) put_aside(folder);

  if (Status opened = open_study(s, *machine, folder + "/journal.jsonl"); !opened.ok()) return opened.error();
  StopSignals signals;
  const Crew crew = fork_crew(s.jobs);
  if (crew.index > 0) s.quiet = true;
  const std::vector<int> mine = slice_of(*machine, s.jobs, crew.index);
  const std::vector<int> cpus = s.jobs > 1 ? mine : std::vector<int>{};  // one job may use them all without being told
  Result<Worker> worker = Worker::enter(folder);
  if (!worker.ok()) return worker.error();
  Result<Journal> journal = Journal::open(folder + "/journal.jsonl");
  if (!journal.ok()) return journal.error();

  std::unique_ptr<Strategy> strategy = native_strategy(s);
  if (strategy == nullptr) {
    Result<std::unique_ptr<Strategy>> outside = optuna_strategy(s, folder, crew.index);
    if (!outside.ok()) return outside.error();
    strategy = std::move(*outside);
  }
  Progress progress(s);
  ProcessTrialRunner runner(*ipexrun, mine, signals);
  Study study(s, s.space, LaunchBase{s.program, s.no_python, cpus, 1}, folder, *journal,
              make_world(runner, *strategy, planner, signals, progress, *worker, folder));
  const Result<int> code = work(s, study, crew, folder, signals);
  if (crew.index > 0) ::_exit(code.ok() ? *code : code.error().code);
  if (Status read = study.sync(); !read.ok() && code.ok()) return read.error();
  progress.show(study.history(), "", 0);
  progress.hide();
  const Status written = write_results(study.history(), s, folder);
  std::string text = result_text(study.history(), folder);
  if (code.ok() && *code == kExitOk && study.history().best >= 0)
    text += "run it: ipexrun --config " + launcher::shell_quoted(folder + "/best.yaml") + " ...; report: " + folder + "/report.html\n";
  if (code.ok() && *code > 128) text += "stopped; the same command goes on where this one ended\n";
  if (study.history().ended() > 0 || code.ok()) (void)launcher::print_text(text).ok();
  if (!code.ok()) return code;
  return written.ok() ? code : Result<int>(written.error());
}

Result<int> run_report(const Settings& s) {
  const Result<History> history = read_study(s.studies.front());
  if (!history.ok()) return history.error();
  const std::string text = s.output.ends_with(".html") ? study_html(*history)
                           : s.output.ends_with(".md") ? study_markdown(*history)
                                                       : result_text(*history, s.studies.front());
  if (!s.output.empty() && !s.output.ends_with(".html") && !s.output.ends_with(".md"))
    return Error{kExitUsage, "--output '" + s.output + "' has no form", "its name ends in .html or .md"};
  const Status done = s.output.empty() ? launcher::print_text(text) : launcher::bench::write_whole("--output", s.output, text);
  return done.ok() ? Result<int>(kExitOk) : Result<int>(done.error());
}

Result<int> run_compare(const Settings& s) {
  const Result<History> a = read_study(s.studies[0]);
  if (!a.ok()) return a.error();
  const Result<History> b = read_study(s.studies[1]);
  if (!b.ok()) return b.error();
  const Result<std::string> text = compare_studies(*a, *b, s.studies[0], s.studies[1], s.output);
  if (!text.ok()) return text.error();
  const Status done = s.output.empty() ? launcher::print_text(*text) : launcher::bench::write_whole("--output", s.output, *text);
  return done.ok() ? Result<int>(kExitOk) : Result<int>(done.error());
}

}  // namespace ipexrun::tuner
