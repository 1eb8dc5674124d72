#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "launcher/bench/bench.h"
#include "launcher/bench/op_report.h"
#include "launcher/cli/cli.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/common.h"
#include "launcher/commands/last_run.h"
#include "launcher/distributed/communication.h"
#include "launcher/distributed/rank_plan.h"
#include "launcher/plan/planner.h"
#include "launcher/plan/show.h"
#include "launcher/run/context.h"
#include "launcher/run/decisions.h"
#include "launcher/run/ranks.h"
#include "launcher/run/summary.h"

namespace ipexrun::launcher {
namespace {

/// What all ranks of a host would say alike is said by the first of them.
bool speaks(const RankPlace* place) { return place == nullptr || place->rank.local_rank == 0; }

Result<int> show_plan(const Options& options, const LaunchPlan& plan) {
  if (options.json) return print(plan_json(plan));
  if (!options.dry_run) return print(reasons_text(plan));  // --explain for a machine that is not there
  return print(plan_table(plan) + (options.explain ? "\n" + reasons_text(plan) : ""));
}

Result<int> run_plan(const Options& options, LaunchPlan plan, const RankPlace* place, const std::string& run_dir, Runner& runner) {
  const Status pinned = pin_decisions(options, run_dir, &plan);
  if (!pinned.ok()) return pinned.error();
  if (Status writable = bench::check_op_report_output(options.report_output); !writable.ok()) return writable.error();
  RunSettings settings;
  settings.run_dir = run_dir;
  const Result<RunOutcome> outcome = runner.run(plan, settings);
  if (!outcome.ok()) return outcome.error();
  if (speaks(place) || outcome->exit_code != kExitOk) std::fputs(summary_text(options, plan, *outcome).c_str(), stderr);
  if (place != nullptr && options.distributed.as_rank) report_failure(place->rank, *outcome);
  if (speaks(place) && options.optimize) keep_last_run(options, plan, *outcome);
  Status verdict = require_shim_verdict(plan, *outcome);
  if (!options.save_config.empty() && options.optimize && speaks(place)) {
    Options found = options;
    found.decisions = decisions_found(options, *outcome);
    Status saved = save_config(found, options.save_config);
    if (verdict.ok()) verdict = std::move(saved);
  }
  if (options.report) {
    Status shown = bench::show_op_reports(options, bench::read_op_reports(*outcome));
    if (verdict.ok()) verdict = std::move(shown);
  }
  if (verdict.ok()) return outcome->exit_code;
  // A program that failed by itself keeps its code.
  return Error{outcome->exit_code == kExitOk ? verdict.error().code : outcome->exit_code, verdict.error().what, verdict.error().hint};
}

/// Keeps each run with kernels of ours for explain-last: the next one, stock's say, replaces its event files.
class KeepingRunner : public Runner {
 public:
  KeepingRunner(Runner& inner, const Options& options) : inner_(inner), options_(options) {}
  Result<RunOutcome> run(const LaunchPlan& plan, const RunSettings& settings) override {
    Result<RunOutcome> outcome = inner_.run(plan, settings);
    const auto& variables = plan.instances.front().env;
    const auto mode = variables.find(env::name(env::Id::kMode));
    if (outcome.ok() && options_.optimize && mode != variables.end() && mode->second == "optimize") keep_last_run(options_, plan, *outcome);
    return outcome;
  }

 private:
  Runner& inner_;
  const Options& options_;
};

/// What is about ranks says nothing where there are none.
Status check_without_ranks(const Options& options) {
  const DistributedOptions& wanted = options.distributed;
  for (const auto& [given, name] : {std::pair{wanted.ccl_worker_count > 0, "--ccl-worker-count"},
                                    {!wanted.master_addr.empty(), "--master-addr"},
                                    {wanted.master_port.has_value(), "--master-port"}})
    if (given)
      return Error{kExitUsage, std::string(name) + " is about ranks, and this run has none",
                   "--nprocs-per-node N, or --nnodes with --node-rank, makes it a job of ranks"};
  return ok_status();
}

Result<int> run_measured(const Options& options, const Machine& machine, const PlanContext& context, const RankPlace* place,
                         const std::string& run_dir, Runner& runner) {
  const PlanForVariant plan_for = [&](const std::string& variant) {
    Result<LaunchPlan> plan =
        place != nullptr ? make_rank_plan(options, machine, context, *place) : make_variant_plan(variant, options, machine, context);
    if (!plan.ok() || variant != "ipexrun") return plan;
    const Status pinned = pin_decisions(options, run_dir, &*plan);
    return pinned.ok() ? plan : Result<LaunchPlan>(pinned.error());
  };
  KeepingRunner keeping(runner, options);
  return run_bench(options, machine, plan_for, keeping, run_dir);
}

/// IPEXRUN_DISABLE: only the program counts; no other option can fail, and nothing is said or looked up for it.
Result<int> run_plainly(const Options& options, Runner& runner) {
  Options plain;
  plain.program_kind = options.program_kind;
  plain.program = options.program;
  plain.args = options.args;
  const Result<PlanContext> context = make_context(plain, Machine{});
  if (!context.ok()) return context.error();
  Result<LaunchPlan> plan = make_plan(plain, Machine{}, *context);
  if (!plan.ok()) return plan.error();
  // An engine that ipexrun started finds its ranks all the same: without these variables there would be no job.
  if (const RankSearch search = find_rank(context->env); options.distributed.as_rank && search.rank)
    add_rank_variables(options, *search.rank, context->env, *plan);
  const Result<RunOutcome> outcome = runner.run(*plan, RunSettings{});
  if (!outcome.ok()) return outcome.error();
  return outcome->exit_code;
}

}  // namespace

Result<int> run_program(const Options& asked, SupervisedRunner& supervised) {
  if (asked.distributed.asked()) return run_job(asked, supervised);
  const std::function<bool()> watch = engine_watch();  // while this process is still the child of the engine
  const bool disabled = env::get_flag(env::Id::kDisable);
  const bool plainly = disabled && !plans_only(asked);
  if (!plans_only(asked)) supervised.begin(plainly ? Options{} : asked);
  if (plainly) return run_plainly(asked, supervised);

  Options options = asked;
  const Result<Machine> machine = machine_for(options);
  if (!machine.ok()) return machine.error();
  const Result<PlanContext> context = make_context(options, *machine);
  if (!context.ok()) return context.error();
  const Result<std::optional<RankPlace>> found = disabled ? std::optional<RankPlace>() : find_place(options, *context);
  if (!found.ok()) return found.error();
  const RankPlace* place = *found ? &**found : nullptr;
  if (place == nullptr && !disabled && options.distributed.rank_slice)
    if (Status sense = check_without_ranks(options); !sense.ok()) return sense.error();
  // The ranks go in step: one of them is measured.
  if (place != nullptr && place->rank.rank != 0) {
    options.bench.enabled = options.report = false;
    options.report_output.clear();
  }
  const Result<LaunchPlan> plan =
      place != nullptr ? make_rank_plan(options, *machine, *context, *place) : make_plan(options, *machine, *context);
  if (!plan.ok()) return plan.error();
  if (!options.save_config.empty()) {
    const Status saved = save_config(options, options.save_config);
    if (!saved.ok()) return saved.error();
  }

  if (speaks(place) && !options.distributed.as_rank) say_notes(options);
  if (plans_only(options)) return show_plan(options, *plan);
  if (speaks(place)) say_reasons(*plan, options.explain);

  const Result<std::string> made = make_run_dir();
  if (!made.ok()) log::warn(made.error().line());
  const std::string run_dir = made.ok() ? *made : "";
  WatchingRunner watching(supervised, watch);
  Runner& runner = options.distributed.as_rank ? static_cast<Runner&>(watching) : supervised;
  Result<int> code = options.bench.enabled ? run_measured(options, *machine, *context, place, run_dir, runner)
                                           : run_plan(options, *plan, place, run_dir, runner);
  remove_run_dir(run_dir);
  return with_time_limit(std::move(code), supervised.timed_out());
}

}  // namespace ipexrun::launcher
