#include "launcher/distributed/rank_plan.h"

#include <algorithm>
#include <map>

#include "configs/contract/env.h"
#include "launcher/distributed/communication.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/show.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

bool within(const std::vector<int>& small, const std::vector<int>& large) {
  return small.size() < large.size() && std::includes(large.begin(), large.end(), small.begin(), small.end());
}

/// How often this rank's mask is in Slurm's list of the masks of a node's tasks; 0 = there is no list.
int tasks_with_our_mask(const std::string& list, int local_rank) {
  std::vector<std::string> masks;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    masks.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  if (masks.empty()) return 0;
  const std::string& own = masks[static_cast<std::size_t>(local_rank) % masks.size()];
  return static_cast<int>(std::count(masks.begin(), masks.end(), own));
}

/// Ranks that must share this rank's CPUs, since all masks of this size together are more than there is.
int sharers_of(const Rank& rank, const std::map<std::string, std::string>& env, const EngineProcess& engine) {
  if (const int tasks = tasks_with_our_mask(value_of(env, "SLURM_CPU_BIND_LIST"), rank.local_rank); rank.bound_by_slurm && tasks > 0)
    return tasks;
  if (!engine.cpus_allowed || !engine.cpus_of_rank || engine.cpus_allowed->empty()) return 1;
  const std::size_t all = engine.cpus_of_rank->size() * static_cast<std::size_t>(rank.local_size);
  return static_cast<int>((all + engine.cpus_allowed->size() - 1) / engine.cpus_allowed->size());
}

std::string name_of(const Rank& rank) {
  return "rank " + std::to_string(rank.rank) + " of " + std::to_string(rank.world_size) + " (local rank " +
         std::to_string(rank.local_rank) + " of " + std::to_string(rank.local_size) + ")";
}

/// The planner speaks of instances that somebody asked for; here they are ranks.
std::string of_ranks(std::string text) {
  const std::string theirs = "--ninstances ";
  for (std::size_t at = text.find(theirs); at != std::string::npos; at = text.find(theirs, at))
    text.replace(at, theirs.size(), "--nprocs-per-node ");
  return text;
}

Result<LaunchPlan> plan_as_ranks(Options options, const Machine& machine, const PlanContext& context, int ranks, bool asked) {
  options.ninstances = ranks;
  options.slices_are_ranks = !asked;
  Result<LaunchPlan> plan = make_plan(options, machine, context);
  if (!plan.ok()) return Error{plan.error().code, of_ranks(plan.error().what), of_ranks(plan.error().hint)};
  for (Reason& reason : plan->reasons) reason.text = of_ranks(reason.text);
  return plan;
}

/// More ranks than cores: each runs with one thread wherever the system puts it.
Result<LaunchPlan> plan_crowded(Options options, const Machine& machine, const PlanContext& context, const Rank& rank) {
  options.ninstances = 1;
  options.ncores_per_instance = 1;
  options.pin = false;
  Result<LaunchPlan> plan = make_plan(options, machine, context);
  if (plan.ok())
    plan->reasons.push_back({"ranks", std::to_string(rank.local_size),
                             count_text(static_cast<std::size_t>(rank.local_size), "rank") +
                                 " on this host are more than it has usable cores: each gets one thread and is not pinned",
                             true});
  return plan;
}

/// Several ranks were bound to the same CPUs: they stay there, each with its part of the threads.
Result<LaunchPlan> plan_shared(Options options, const Machine& machine, const PlanContext& context, int sharers) {
  options.pin = false;
  return plan_as_ranks(std::move(options), machine, context, sharers, false);
}

/// Two ranks were as fast or faster on a core of their own; from four on they lost, the more the more there were.
constexpr std::size_t kFewestThatFloat = 3;

/// A rank of one core has threads of communication (gloo's) beside the one that computes. Held to that core they take turns with it, and
/// every hop of a ring waits for such a turn. So the threads are those of the slice, but the ranks of one core of a NUMA node may each run
/// on all cores of these ranks. docs/distributed.md has the measurements.
void let_single_cores_float(const Options& options, LaunchPlan& plan) {
  if (!plan.pin || options.pin_asked) return;
  const auto is_single = [](const InstancePlan& one) { return one.cpus.size() == 1 && one.threads <= 1; };
  std::map<std::vector<int>, std::vector<int>> cpus_by_nodes;
  for (const InstancePlan& one : plan.instances)
    if (is_single(one)) cpus_by_nodes[one.numa_nodes].push_back(one.cpus.front());
  bool any = false;
  for (InstancePlan& one : plan.instances) {
    if (!is_single(one)) continue;
    std::vector<int> shared = cpus_by_nodes[one.numa_nodes];
    if (shared.size() < kFewestThatFloat) continue;
    std::sort(shared.begin(), shared.end());
    one.cpus = std::move(shared);
    any = true;
  }
  if (any)
    plan.reasons.push_back({"ranks", "not held to one core",
                            "ranks of one core share the cores of all such ranks of their NUMA node: gloo's threads would take turns with "
                            "the computation on a single one (--pin holds each rank to its own)"});
}

Status check(const Options& options, const Rank& rank) {
  for (const auto& [given, name] : {std::pair{options.ninstances > 0 || options.ninstances_auto, "--ninstances"},
                                    {options.latency_mode, "--latency-mode"},
                                    {options.throughput_mode, "--throughput-mode"},
                                    {!options.instance_idx.empty(), "--instance-idx"}})
    if (given)
      return Error{kExitUsage,
                   std::string(name) + " inside " + name_of(rank) + " of " + engine_name(rank.engine) + ": a rank is one process",
                   "--no-rank-slice plans for the whole host"};
  if (rank.world_size == 1) return ok_status();
  if (options.max_restarts > 0)
    return Error{kExitUsage, "--max-restarts inside " + name_of(rank) + ": started again alone it finds no other ranks",
                 "torchrun's own --max-restarts starts all again"};
  if (!options.bench.compare.empty())
    return Error{kExitUsage, "--bench-compare inside " + name_of(rank) + ": the other ranks do not start again with it",
                 "--bench alone measures rank 0"};
  if (options.bench.stop)
    return Error{kExitUsage, "--bench-stop inside " + name_of(rank) + ": the other ranks would wait for it",
                 "--bench alone measures rank 0"};
  return ok_status();
}

void keep_only(LaunchPlan& plan, std::size_t index, const Rank& rank) {
  InstancePlan own = std::move(plan.instances[index]);
  own.index = rank.local_rank;
  own.env[env::name(env::Id::kInstance)] = std::to_string(rank.local_rank);
  own.env[env::name(env::Id::kInstances)] = std::to_string(rank.local_size);
  own.env[env::name(env::Id::kRank)] = std::to_string(rank.rank) + "/" + std::to_string(rank.world_size);
  own.unset_env.emplace_back(env::name(env::Id::kRankDir));
  plan.instances.clear();
  plan.instances.push_back(std::move(own));
  plan.who = "rank " + std::to_string(rank.rank);
}

}  // namespace

RankPlace decide_place(const DistributedOptions& options, const Rank& rank, const std::map<std::string, std::string>& env,
                       const EngineProcess& engine) {
  RankPlace out;
  out.rank = rank;
  out.omp_threads_by_engine = rank.engine == Engine::kTorchrun && rank.local_size > 1 && value_of(env, "OMP_NUM_THREADS") == "1" &&
                              engine.found && engine.environment_known && engine.own_omp_threads.empty();
  const std::string name = name_of(rank) + " of " + engine_name(rank.engine);
  const std::string had = value_of(env, env::name(env::Id::kRank));
  const bool smaller = engine.found && engine.cpus_allowed && engine.cpus_of_rank && within(*engine.cpus_of_rank, *engine.cpus_allowed);
  if (!options.rank_slice) {
    out.kind = RankPlace::Kind::kWhole;
    out.why = name + ", but --no-rank-slice: it uses what the whole host offers";
  } else if (!options.as_rank && !had.empty()) {
    out.kind = RankPlace::Kind::kWhole;
    out.why = "started by rank " + had + ", which has its slice already";
  } else if (rank.local_size == 1) {
    out.kind = RankPlace::Kind::kWhole;
    out.why = name + ": it has this host to itself";
  } else if (rank.bound_by_slurm || (smaller && !rank.unbound_by_slurm)) {
    out.kind = RankPlace::Kind::kMask;
    out.sharers = sharers_of(rank, env, engine);
    out.why =
        name + ": the engine bound it to CPU " + (engine.cpus_of_rank ? cpu_list_text(*engine.cpus_of_rank) : "?") +
        (out.sharers > 1 ? ", together with others: " + count_text(static_cast<std::size_t>(out.sharers), "rank") + " share the threads"
                         : ": that is its slice");
  } else if (!engine.found) {
    out.kind = RankPlace::Kind::kMask;
    out.why = name + ": no process above it is the engine, so what it may use is taken for its slice";
  } else {
    out.why = name + ": the engine left it all that its ranks may use, so it takes its part";
  }
  return out;
}

Result<LaunchPlan> make_rank_plan(const Options& options, const Machine& machine, const PlanContext& context, const RankPlace& place) {
  const Rank& rank = place.rank;
  const bool asked = options.distributed.as_rank;
  if (place.kind != RankPlace::Kind::kWhole || asked)
    if (Status good = check(options, rank); !good.ok()) return good.error();
  Options own = options;
  own.max_restarts = 0;  // one rank that is started again alone finds no others
  own.log_file_prefix += "_rank" + std::to_string(rank.rank);
  PlanContext seen = context;
  if (asked || place.omp_threads_by_engine) seen.env.erase("OMP_NUM_THREADS");

  Result<LaunchPlan> plan = LaunchPlan{};
  std::size_t index = 0;
  if (place.kind == RankPlace::Kind::kSlice) {
    plan = plan_as_ranks(own, machine, seen, rank.local_size, false);
    index = static_cast<std::size_t>(rank.local_rank);
    if (!plan.ok() && !asked) {
      Result<LaunchPlan> crowded = plan_crowded(own, machine, seen, rank);
      if (crowded.ok()) plan = std::move(crowded);
      index = 0;
    }
  } else if (place.sharers > 1) {
    plan = plan_shared(own, machine, seen, place.sharers);
  } else {
    plan = make_plan(own, machine, seen);
  }
  if (!plan.ok()) return plan.error();
  if (place.kind == RankPlace::Kind::kWhole && plan->instances.size() > 1) {  // a rank that was given the whole host may start instances
    plan->reasons.insert(plan->reasons.begin(), {"ranks", "", place.why});
    return plan;
  }
  if (index >= plan->instances.size())
    return Error{kExitFailure, name_of(rank) + " has no place in a plan of " + count_text(plan->instances.size(), "instance"), ""};

  plan->reasons.insert(plan->reasons.begin(), {"ranks", std::to_string(rank.rank) + "/" + std::to_string(rank.world_size), place.why});
  if (place.omp_threads_by_engine)
    plan->reasons.push_back({"threads", "OMP_NUM_THREADS=1", "not counted: torchrun put it there, its own environment has none"});
  if (Status done = reserve_communication(own, machine, rank.local_size, *plan); !done.ok()) return done.error();
  if (place.kind == RankPlace::Kind::kSlice) let_single_cores_float(own, *plan);
  keep_only(*plan, index, rank);
  add_rank_variables(own, rank, context.env, *plan);
  return plan;
}

Result<LaunchPlan> make_slices(const Options& options, const Machine& machine, const PlanContext& context, int ranks) {
  Result<LaunchPlan> plan = plan_as_ranks(options, machine, context, ranks, true);
  if (!plan.ok()) return plan;
  if (Status done = reserve_communication(options, machine, ranks, *plan); !done.ok()) return done.error();
  let_single_cores_float(options, *plan);
  return plan;
}

}  // namespace ipexrun::launcher
