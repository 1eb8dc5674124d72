// The launcher's table of contents: command line -> machine -> context -> plan -> print, run or measure. The only place of the
// launcher that prints errors and returns exit codes.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "launcher/bench/bench.h"
#include "launcher/cli/cli.h"
#include "launcher/distributed/communication.h"
#include "launcher/distributed/rank_plan.h"
#include "launcher/distributed/show_job.h"
#include "launcher/machine/machine_devices.h"
#include "launcher/machine/tree.h"
#include "launcher/plan/machine.h"
#include "launcher/plan/planner.h"
#include "launcher/plan/show.h"
#include "launcher/run/context.h"
#include "launcher/run/decisions.h"
#include "launcher/run/doctor.h"
#include "launcher/run/gather_run.h"
#include "launcher/run/malloc_exercise.h"
#include "launcher/run/ranks.h"
#include "launcher/run/runner.h"
#include "launcher/run/summary.h"
#include "launcher/run/warden.h"

namespace ipexrun::launcher {
namespace {

using SignalHandler = void (*)(int);

/// Adds to each run what holds for all of them (several in a comparison): the warden, the time limit, restarts. And SIGPIPE: a closed pipe
/// on stdout or stderr must end our output, not the supervisor of running instances, but programs inherit what is ignored, so while they
/// are started and supervised the caller's own disposition is back (the runner does its own ignoring).
class SupervisedRunner final : public Runner {
 public:
  SupervisedRunner(Runner& inner, SignalHandler callers) : inner_(inner), callers_(callers) {}

  /// From now on there are two processes (warden.h), and the clock of --timeout runs.
  void begin(const Options& options) {
    warden_ = split_off_warden();
    max_restarts_ = options.max_restarts;
    log_keep_ = options.log_keep;
    if (options.timeout_seconds > 0) {
      const std::chrono::duration<double> limit(options.timeout_seconds);
      time_limit_ = TimeLimit{std::chrono::steady_clock::now() + std::chrono::ceil<std::chrono::milliseconds>(limit), limit.count()};
    }
  }

  Result<RunOutcome> run(const LaunchPlan& plan, const RunSettings& settings) override {
    RunSettings all = settings;
    all.warden = &warden_;
    all.time_limit = time_limit_;
    all.max_restarts = max_restarts_;
    all.log_keep = log_keep_;
    std::signal(SIGPIPE, callers_);
    Result<RunOutcome> outcome = inner_.run(plan, all);
    std::signal(SIGPIPE, SIG_IGN);
    timed_out_ = timed_out_ || (outcome.ok() && outcome->timed_out);
    return outcome;
  }

  /// A run was ended at the time limit, whatever came of it.
  [[nodiscard]] bool timed_out() const { return timed_out_; }

 private:
  Runner& inner_;
  SignalHandler callers_;
  Warden warden_;
  int max_restarts_ = 0;
  int log_keep_ = 0;
  std::optional<TimeLimit> time_limit_;
  bool timed_out_ = false;
};

/// A rank ends with its engine: nobody else is left to end it when another rank fails.
class WatchingRunner final : public Runner {
 public:
  WatchingRunner(Runner& inner, std::function<bool()> watch) : inner_(inner), watch_(std::move(watch)) {}

  Result<RunOutcome> run(const LaunchPlan& plan, const RunSettings& settings) override {
    RunSettings watched = settings;
    watched.tick_ms = settings.tick ? settings.tick_ms : kWatchMs;
    watched.tick = [&] { return watch_() && (!settings.tick || settings.tick()); };
    return inner_.run(plan, watched);
  }

 private:
  static constexpr int kWatchMs = 1000;
  Runner& inner_;
  std::function<bool()> watch_;
};

int fail(const Error& error) {
  log::error(error.line());
  return error.code;
}

/// Text of ours for stdout; a reader that went away (ipexrun --help | head) is no failure.
int print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return kExitOk;
}

std::string version_text() {
  std::string out = "ipexrun " IPEXRUN_VERSION "\n";
  std::string plugins;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(find_lib_dir() + "/plugins", ignored))
    if (entry.path().extension() == ".so") plugins += (plugins.empty() ? "" : ", ") + entry.path().filename().string();
  out += "plugins: " + (plugins.empty() ? "none (programs are launched, not optimized)" : plugins) + "\n";
  return out + "hwloc API " + topology_library_version() + "\n";
}

Result<Machine> machine_for(const Options& options) {
  Result<Machine> machine =
      options.topology.empty() ? read_machine(options.sysroot) : machine_from_topology(options.topology, options.sysroot);
  // Only where they are asked for: a large server has hundreds of PCI devices. A text or an XML file describes none.
  const bool wants_gpus = options.command == Command::kXpu || options.command == Command::kTopology;
  const bool has_place = options.topology.empty() || !options.sysroot.empty();
  if (machine.ok() && wants_gpus && has_place) machine->gpus = read_gpus(options.sysroot);
  return machine;
}

void say_notes(const Options& options) {
  for (const std::string& note : options.notes) log::warn(note);
}

void say_reasons(const LaunchPlan& plan, bool all) {
  std::istringstream lines(all ? reasons_text(plan) : "");
  for (std::string line; std::getline(lines, line);) std::fputs(("ipexrun: " + line + "\n").c_str(), stderr);
  for (const Reason& reason : plan.reasons)
    if (reason.warn && !all) log::warn(reason.text);
}

/// What all ranks of a host would say alike is said by the first of them.
bool speaks(const RankPlace* place) { return place == nullptr || place->rank.local_rank == 0; }

int show_plan(const Options& options, const LaunchPlan& plan) {
  if (options.json) return print(plan_json(plan));
  if (!options.dry_run) return print(reasons_text(plan));  // --explain for a machine that is not there
  return print(plan_table(plan) + (options.explain ? "\n" + reasons_text(plan) : ""));
}

int run_plan(const Options& options, LaunchPlan plan, const RankPlace* place, const std::string& run_dir, Runner& runner) {
  const Status pinned = pin_decisions(options, run_dir, &plan);
  if (!pinned.ok()) return fail(pinned.error());
  RunSettings settings;
  settings.run_dir = run_dir;
  Result<RunOutcome> outcome = runner.run(plan, settings);
  if (!outcome.ok()) return fail(outcome.error());
  if (speaks(place) || outcome->exit_code != kExitOk) std::fputs(summary_text(options, plan, *outcome).c_str(), stderr);
  if (place != nullptr && options.distributed.as_rank) report_failure(place->rank, *outcome);
  const Status verdict = require_shim_verdict(plan, *outcome);
  if (!verdict.ok()) {
    const int code = fail(verdict.error());
    if (outcome->exit_code == kExitOk) return code;
  }
  return outcome->exit_code;
}

int run_measured(const Options& options, const Machine& machine, const PlanContext& context, const RankPlace* place,
                 const std::string& run_dir, Runner& runner) {
  const PlanForVariant plan_for = [&](const std::string& variant) {
    Result<LaunchPlan> plan =
        place != nullptr ? make_rank_plan(options, machine, context, *place) : make_variant_plan(variant, options, machine, context);
    if (!plan.ok() || variant != "ipexrun") return plan;
    const Status pinned = pin_decisions(options, run_dir, &*plan);
    return pinned.ok() ? plan : Result<LaunchPlan>(pinned.error());
  };
  Result<int> code = run_bench(options, machine, plan_for, runner, run_dir);
  return code.ok() ? *code : fail(code.error());
}

/// IPEXRUN_DISABLE: only the program counts; no other option can fail, and nothing is said or looked up for it.
int run_plainly(const Options& options, Runner& runner) {
  Options plain;
  plain.program_kind = options.program_kind;
  plain.program = options.program;
  plain.args = options.args;
  Result<PlanContext> context = make_context(plain, Machine{});
  if (!context.ok()) return fail(context.error());
  Result<LaunchPlan> plan = make_plan(plain, Machine{}, *context);
  if (!plan.ok()) return fail(plan.error());
  // An engine that ipexrun started finds its ranks all the same: without these variables there would be no job.
  if (const RankSearch search = find_rank(context->env); options.distributed.as_rank && search.rank)
    add_rank_variables(options, *search.rank, context->env, *plan);
  Result<RunOutcome> outcome = runner.run(*plan, RunSettings{});
  return outcome.ok() ? outcome->exit_code : fail(outcome.error());
}

bool plans_only(const Options& options) { return options.dry_run || !options.topology.empty() || !options.sysroot.empty(); }

/// The engine's exit code, or that of the first rank of this host that failed: torchrun has one code for all failures.
int code_of_job(const RunOutcome& outcome, const std::string& run_dir) {
  const auto failure = first_failure(run_dir);
  if (outcome.exit_code == kExitOk || outcome.stop_signal != 0 || !failure) return outcome.exit_code;
  log::warn("rank " + std::to_string(failure->rank) +
            (failure->signal != 0 ? " was ended by signal " + std::to_string(failure->signal)
                                  : " exited with code " + std::to_string(failure->exit_code)));
  return failure->exit_code;
}

/// A job of ranks: an engine starts this program again, once a rank, with --as-rank.
int run_job(const Options& options, SupervisedRunner& runner) {
  Options of_engine = options;
  of_engine.max_restarts = 0;  // the engine starts ranks again, not we the engine
  if (!plans_only(options)) runner.begin(of_engine);
  Result<Machine> machine = machine_for(options);
  if (!machine.ok()) return fail(machine.error());
  Result<PlanContext> context = make_context(options, *machine);
  if (!context.ok()) return fail(context.error());
  Result<JobFacts> facts = look_up_engines(options, *machine, *context, rank_arguments(options));
  if (!facts.ok()) return fail(facts.error());
  Result<Job> job = make_job(options, *facts);
  if (!job.ok()) return fail(job.error());
  Result<LaunchPlan> slices = make_slices(options, *machine, *context, job->ranks_per_host);
  if (!slices.ok()) return fail(slices.error());
  if (!options.save_config.empty()) {
    const Status saved = save_config(options, options.save_config);
    if (!saved.ok()) return fail(saved.error());
  }
  give_threads(*slices, context->env, *job);

  say_notes(options);
  if (plans_only(options)) {
    if (options.json) return print(job_json(*job, *slices));
    slices->reasons.insert(slices->reasons.begin(), job->reasons.begin(), job->reasons.end());
    return options.dry_run ? print(job_table(*job, *slices) + (options.explain ? "\n" + reasons_text(*slices) : ""))
                           : print(reasons_text(*slices));
  }
  // What holds for each rank is said by the ranks; only what became of OMP_NUM_THREADS is known here alone.
  if (!options.explain) std::erase_if(slices->reasons, [](const Reason& reason) { return reason.subject != "threads"; });
  slices->reasons.insert(slices->reasons.begin(), job->reasons.begin(), job->reasons.end());
  say_reasons(*slices, options.explain);

  const Result<std::string> made = make_run_dir();
  const std::string run_dir = made.ok() ? *made : "";
  LaunchPlan plan;
  plan.pin = false;
  plan.instances.push_back(job->process);
  if (!run_dir.empty()) plan.instances.front().env[env::name(env::Id::kRankDir)] = run_dir;
  Result<RunOutcome> outcome = runner.run(plan, RunSettings{});
  const int code = outcome.ok() ? code_of_job(*outcome, run_dir) : fail(outcome.error());
  remove_run_dir(run_dir);
  return runner.timed_out() ? static_cast<int>(kExitTimeLimit) : code;
}

int run_program(const Options& asked, SupervisedRunner& supervised) {
  if (asked.distributed.asked()) return run_job(asked, supervised);
  const std::function<bool()> watch = engine_watch();  // while this process is still the child of the engine
  const bool disabled = env::get_flag(env::Id::kDisable);
  const bool plainly = disabled && !plans_only(asked);
  if (!plans_only(asked)) supervised.begin(plainly ? Options{} : asked);
  if (plainly) return run_plainly(asked, supervised);

  Options options = asked;
  Result<Machine> machine = machine_for(options);
  if (!machine.ok()) return fail(machine.error());
  Result<PlanContext> context = make_context(options, *machine);
  if (!context.ok()) return fail(context.error());
  Result<std::optional<RankPlace>> found = disabled ? std::optional<RankPlace>() : find_place(options, *context);
  if (!found.ok()) return fail(found.error());
  const RankPlace* place = *found ? &**found : nullptr;
  if (place != nullptr && place->rank.rank != 0) options.bench.enabled = false;  // the ranks go in step: one of them is measured
  Result<LaunchPlan> plan = place != nullptr ? make_rank_plan(options, *machine, *context, *place) : make_plan(options, *machine, *context);
  if (!plan.ok()) return fail(plan.error());
  if (!options.save_config.empty()) {
    const Status saved = save_config(options, options.save_config);
    if (!saved.ok()) return fail(saved.error());
  }

  if (speaks(place) && !options.distributed.as_rank) say_notes(options);
  if (plans_only(options)) return show_plan(options, *plan);
  if (speaks(place)) say_reasons(*plan, options.explain);

  const Result<std::string> made = make_run_dir();
  if (!made.ok()) log::warn(made.error().line());
  const std::string run_dir = made.ok() ? *made : "";
  WatchingRunner watching(supervised, watch);
  Runner& runner = options.distributed.as_rank ? static_cast<Runner&>(watching) : supervised;
  const int code = options.bench.enabled ? run_measured(options, *machine, *context, place, run_dir, runner)
                                         : run_plan(options, *plan, place, run_dir, runner);
  remove_run_dir(run_dir);
  return supervised.timed_out() ? static_cast<int>(kExitTimeLimit) : code;
}

int show_topology(const Options& options) {
  Result<Machine> machine = machine_for(options);
  if (!machine.ok()) return fail(machine.error());
  return print(options.json ? machine_json(*machine) : machine_text(*machine));
}

int later(const char* what) {
  return fail({kExitUsage, std::string("ipexrun ") + what + " comes with a later version", "ipexrun --help shows what this one does"});
}

int dispatch(const Options& options, SupervisedRunner& runner) {
  switch (options.command) {
    case Command::kRun:
    case Command::kXpu:
      return run_program(options, runner);
    case Command::kTopology:
      return show_topology(options);
    case Command::kEnv:
      return options.docs ? print(env_docs()) : run_env(options);
    case Command::kDoctor:
      return run_doctor(options);
    case Command::kGather: {
      const Result<int> code = run_gather(options);
      return code.ok() ? *code : fail(code.error());
    }
    case Command::kVersion:
      return print(version_text());
    case Command::kHelp:
      return print(help_text(options.help_of));
    case Command::kCompletion:
      return print(completion_text());
    case Command::kManPage:
      return print(man_page(IPEXRUN_VERSION));
    case Command::kTune:
      return later("tune");
  }
  return kExitUsage;
}

}  // namespace
}  // namespace ipexrun::launcher

int main(int argc, char** argv) {
  using namespace ipexrun::launcher;  // NOLINT(google-build-using-namespace): this is its main()
  if (argc > 1 && std::strcmp(argv[1], kMallocExerciseWord) == 0) return exercise_malloc(argc > 2 ? argv[2] : nullptr);
  SupervisedRunner runner(posix_runner(), std::signal(SIGPIPE, SIG_IGN));
  const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  const ipexrun::Result<Options> options = parse_command_line(args);
  if (!options.ok()) return fail(options.error());
  const ipexrun::Result<Sysroot> sysroot = Sysroot::open(options->sysroot);
  if (!sysroot.ok()) return fail(sysroot.error());
  Options opened = *options;
  opened.sysroot = sysroot->folder();
  return dispatch(opened, runner);
}
