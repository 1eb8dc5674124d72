#include <string>
#include <vector>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "launcher/cli/cli.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/common.h"
#include "launcher/distributed/show_job.h"
#include "launcher/plan/planner.h"
#include "launcher/plan/show.h"
#include "launcher/run/context.h"
#include "launcher/run/ranks.h"

namespace ipexrun::launcher {
namespace {

/// The engine's exit code, or that of the first rank of this host that failed: torchrun has one code for all failures.
int code_of_job(const RunOutcome& outcome, const std::string& run_dir) {
  const auto failure = first_failure(run_dir);
  if (outcome.exit_code == kExitOk || outcome.stop_signal != 0 || !failure) return outcome.exit_code;
  log::warn("rank " + std::to_string(failure->rank) +
            (failure->signal != 0 ? " was ended by signal " + std::to_string(failure->signal)
                                  : " exited with code " + std::to_string(failure->exit_code)));
  return failure->exit_code;
}

Result<int> show_job(const Options& options, const Job& job, LaunchPlan slices) {
  if (options.json) return print(job_json(job, slices));
  slices.reasons.insert(slices.reasons.begin(), job.reasons.begin(), job.reasons.end());
  if (!options.dry_run) return print(reasons_text(slices));  // --explain for a machine that is not there
  return print(job_table(job, slices) + (options.explain ? "\n" + reasons_text(slices) : ""));
}

Result<int> run_engine(const Job& job, SupervisedRunner& runner) {
  const Result<std::string> made = make_run_dir();
  const std::string run_dir = made.ok() ? *made : "";
  LaunchPlan plan;
  plan.pin = false;
  plan.instances.push_back(job.process);
  if (!run_dir.empty()) plan.instances.front().env[env::name(env::Id::kRankDir)] = run_dir;
  const Result<RunOutcome> outcome = runner.run(plan, RunSettings{});
  Result<int> code = outcome.ok() ? Result<int>(code_of_job(*outcome, run_dir)) : Result<int>(outcome.error());
  remove_run_dir(run_dir);
  return with_time_limit(std::move(code), runner.timed_out());
}

}  // namespace

Result<int> run_job(const Options& options, SupervisedRunner& runner) {
  Options of_engine = options;
  of_engine.max_restarts = 0;  // the engine starts ranks again, not we the engine
  if (!plans_only(options)) runner.begin(of_engine);
  const Result<Machine> machine = machine_for(options);
  if (!machine.ok()) return machine.error();
  const Result<PlanContext> context = make_context(options, *machine);
  if (!context.ok()) return context.error();
  const Result<JobFacts> facts = look_up_engines(options, *machine, *context, rank_arguments(options));
  if (!facts.ok()) return facts.error();
  Result<Job> job = make_job(options, *facts);
  if (!job.ok()) return job.error();
  Result<LaunchPlan> slices = make_slices(options, *machine, *context, job->ranks_per_host);
  if (!slices.ok()) return slices.error();
  if (!options.save_config.empty()) {
    const Status saved = save_config(options, options.save_config);
    if (!saved.ok()) return saved.error();
  }
  give_threads(*slices, context->env, *job);

  say_notes(options);
  if (plans_only(options)) return show_job(options, *job, std::move(*slices));
  // What holds for each rank is said by the ranks; only what became of OMP_NUM_THREADS is known here alone.
  if (!options.explain) std::erase_if(slices->reasons, [](const Reason& reason) { return reason.subject != "threads"; });
  slices->reasons.insert(slices->reasons.begin(), job->reasons.begin(), job->reasons.end());
  say_reasons(*slices, options.explain);
  return run_engine(*job, runner);
}

}  // namespace ipexrun::launcher
