// The slice of a rank: disjoint from the others', on one node where possible, and no second cut where the engine has made one.
#include "launcher/distributed/rank_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "launcher/plan/show.h"
#include "tests/unit/launcher/made_up.h"

namespace ipexrun::launcher {
namespace {

using Kind = RankPlace::Kind;
using made_up::context;
using made_up::has_reason;
using made_up::has_warning;
using made_up::machine;
using made_up::options;

Rank rank(int local, int size, Engine engine = Engine::kTorchrun) {
  Rank out;
  out.engine = engine;
  out.local_rank = out.rank = local;
  out.local_size = out.world_size = size;
  out.marker = "LOCAL_RANK";
  return out;
}

EngineProcess engine(std::vector<int> all, std::vector<int> own) {
  EngineProcess out;
  out.found = out.environment_known = true;
  out.cpus_allowed = std::move(all);
  out.cpus_of_rank = std::move(own);
  return out;
}

RankPlace sliced(int local, int size) { return decide_place({}, rank(local, size), {}, engine({0, 1, 2, 3}, {0, 1, 2, 3})); }

std::string cpus(const Result<LaunchPlan>& plan) {
  if (!plan.ok()) return "error: " + plan.error().line();
  return cpu_list_text(plan->instances.at(0).cpus) + " x" + std::to_string(plan->instances[0].threads) + (plan->pin ? "" : " unpinned");
}

TEST(RankPlan, slices_are_disjoint_and_keep_to_a_node) {
  for (const int size : {1, 2, 3, 4, 7, 16}) {
    std::set<int> seen;
    for (int local = 0; local < size; ++local) {
      Options pinned = options();
      pinned.pin_asked = true;  // else ranks of one core share
      const auto plan = make_rank_plan(pinned, machine({8, 8}, 2), context(), sliced(local, size));
      ASSERT_TRUE(plan.ok()) << plan.error().line();
      ASSERT_EQ(plan->instances.size(), 1u);
      const InstancePlan& own = plan->instances[0];
      EXPECT_EQ(own.threads, static_cast<int>(own.cpus.size()));
      EXPECT_EQ(own.index, local);
      EXPECT_EQ(own.env.at("IPEXRUN_INSTANCES"), std::to_string(size));
      EXPECT_EQ(own.env.at("IPEXRUN_RANK"), std::to_string(local) + "/" + std::to_string(size));
      for (const int cpu : own.cpus) EXPECT_TRUE(seen.insert(cpu).second) << "CPU " << cpu << " twice with " << size << " ranks";
      const bool fits = size == 2 || size == 4 || size == 16;
      EXPECT_TRUE(!fits || own.numa_nodes.size() == 1) << size << " ranks";
    }
  }
}

TEST(RankPlan, is_the_same_as_the_slices_that_the_job_shows) {
  const auto slices = make_slices(options(), machine({4, 4}), context(), 4);
  ASSERT_TRUE(slices.ok());
  for (int local = 0; local < 4; ++local)
    EXPECT_EQ(make_rank_plan(options(), machine({4, 4}), context(), sliced(local, 4))->instances[0].cpus, slices->instances[local].cpus);
}

TEST(RankPlan, ranks_of_one_core_share_the_cores_of_their_node) {
  for (int local = 0; local < 8; ++local) {
    const auto plan = make_rank_plan(options(), machine({4, 4}), context(), sliced(local, 8));
    EXPECT_EQ(cpus(plan), local < 4 ? "0-3 x1" : "4-7 x1");
    EXPECT_TRUE(has_reason(*plan, "ranks", "gloo's threads"));
  }
  const auto slices = make_slices(options(), machine({4, 4}), context(), 8);
  ASSERT_TRUE(slices.ok());
  EXPECT_EQ(cpu_list_text(slices->instances[5].cpus), "4-7");

  Options own = options();
  own.pin_asked = true;
  EXPECT_EQ(cpus(make_rank_plan(own, machine({4, 4}), context(), sliced(5, 8))), "5 x1") << "--pin";
  EXPECT_EQ(cpus(make_rank_plan(options(), machine({2}), context(), sliced(1, 2))), "1 x1") << "two are as fast on cores of their own";
  EXPECT_EQ(cpus(make_rank_plan(options(), machine({4, 4}), context(), sliced(1, 4))), "2-3 x2") << "room for gloo's threads";
}

TEST(RankPlan, a_mask_of_the_engine_is_the_slice) {
  const RankPlace place = decide_place({}, rank(1, 2), {}, engine({0, 1, 2, 3}, {2, 3}));
  EXPECT_EQ(place.kind, Kind::kMask);
  EXPECT_EQ(place.sharers, 1);
  EXPECT_EQ(cpus(make_rank_plan(options(), machine({2}), context(), place)), "0-1 x2") << "the machine is what the mask left";
}

TEST(RankPlan, the_same_mask_as_the_engine_is_no_binding) { EXPECT_EQ(sliced(0, 2).kind, Kind::kSlice); }

TEST(RankPlan, masks_that_cannot_all_be_different_are_shared) {
  const RankPlace place = decide_place({}, rank(3, 4), {}, engine({0, 1, 2, 3, 4, 5, 6, 7}, {4, 5, 6, 7}));
  EXPECT_EQ(place.kind, Kind::kMask);
  EXPECT_EQ(place.sharers, 2);
  const auto plan = make_rank_plan(options(), machine({4}), context(), place);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->pin);
  EXPECT_EQ(plan->instances[0].threads, 2);
}

TEST(RankPlan, slurms_own_word_beats_what_masks_look_like) {
  Rank task = rank(1, 4, Engine::kSlurm);
  task.unbound_by_slurm = true;
  EXPECT_EQ(decide_place({}, task, {}, engine({0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3})).kind, Kind::kSlice)
      << "the allocation is a part of the node";
  task.unbound_by_slurm = false;
  task.bound_by_slurm = true;
  const std::map<std::string, std::string> env = {{"SLURM_CPU_BIND_LIST", "0x3,0x3,0xC,0xC"}};
  const RankPlace place = decide_place({}, task, env, engine({0, 1, 2, 3, 4, 5, 6, 7}, {0, 1}));
  EXPECT_EQ(place.kind, Kind::kMask);
  EXPECT_EQ(place.sharers, 2);
}

TEST(RankPlan, no_slice_where_none_is_due) {
  EXPECT_EQ(decide_place({}, rank(0, 1), {}, engine({0, 1}, {0, 1})).kind, Kind::kWhole);
  DistributedOptions whole;
  whole.rank_slice = false;
  EXPECT_EQ(decide_place(whole, rank(0, 2), {}, engine({0, 1}, {0, 1})).kind, Kind::kWhole);
  EXPECT_EQ(decide_place({}, rank(0, 2), {{"IPEXRUN_RANK", "0/2"}}, engine({0, 1}, {0, 1})).kind, Kind::kWhole) << "a descendant of a rank";
  DistributedOptions again;
  again.as_rank = true;
  EXPECT_EQ(decide_place(again, rank(0, 2), {{"IPEXRUN_RANK", "0/2"}}, engine({0, 1}, {0, 1})).kind, Kind::kSlice)
      << "a rank of a job that a rank started";
  EXPECT_EQ(decide_place({}, rank(0, 2), {}, EngineProcess{}).kind, Kind::kMask) << "a container that was given the variables of a rank";
}

TEST(RankPlan, torchruns_own_omp_num_threads_is_nobodys_wish) {
  const std::map<std::string, std::string> one = {{"OMP_NUM_THREADS", "1"}};
  PlanContext with = context();
  with.env = one;
  RankPlace place = decide_place({}, rank(0, 2), one, engine({0, 1, 2, 3}, {0, 1, 2, 3}));
  EXPECT_TRUE(place.omp_threads_by_engine);
  const auto plan = make_rank_plan(options(), machine({4}), with, place);
  EXPECT_EQ(plan->instances[0].threads, 2);
  EXPECT_EQ(plan->instances[0].env.at("OMP_NUM_THREADS"), "2");
  EXPECT_TRUE(has_reason(*plan, "threads", "torchrun put it there"));

  EngineProcess asked = engine({0, 1, 2, 3}, {0, 1, 2, 3});
  asked.own_omp_threads = "1";
  place = decide_place({}, rank(0, 2), one, asked);
  EXPECT_FALSE(place.omp_threads_by_engine);
  EXPECT_EQ(make_rank_plan(options(), machine({4}), with, place)->instances[0].threads, 1)
      << "torchrun was started with it: somebody wanted it";
  asked = engine({0, 1}, {0, 1});
  asked.environment_known = false;
  EXPECT_FALSE(decide_place({}, rank(0, 2), one, asked).omp_threads_by_engine);
  EXPECT_FALSE(decide_place({}, rank(0, 2, Engine::kOpenMpi), one, engine({0, 1}, {0, 1})).omp_threads_by_engine) << "mpirun sets none";
}

TEST(RankPlan, more_ranks_than_cores) {
  Options asked = options();
  asked.distributed.as_rank = true;
  const auto refused = make_rank_plan(asked, machine({2}), context(), sliced(2, 3));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, kExitUsage);
  EXPECT_NE(refused.error().line().find("--nprocs-per-node 3"), std::string::npos) << refused.error().line();
  const auto crowded = make_rank_plan(options(), machine({2}), context(), sliced(2, 3));
  ASSERT_TRUE(crowded.ok());
  EXPECT_FALSE(crowded->pin);
  EXPECT_EQ(crowded->instances[0].threads, 1);
  EXPECT_TRUE(has_warning(*crowded, "3 ranks"));
}

TEST(RankPlan, a_rank_is_one_process) {
  Options two = options();
  two.ninstances = 2;
  const auto refused = make_rank_plan(two, machine({4}), context(), sliced(0, 2));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().line().find("--no-rank-slice"), std::string::npos);
}

TEST(RankPlan, only_whole_runs_cannot_be_compared_from_inside_a_rank) {
  Options bench = options();
  bench.bench.enabled = true;
  EXPECT_TRUE(make_rank_plan(bench, machine({4}), context(), sliced(0, 2)).ok());
  bench.bench.compare = {"stock"};
  EXPECT_FALSE(make_rank_plan(bench, machine({4}), context(), sliced(0, 2)).ok());
}

TEST(RankPlan, logs_of_ranks_have_names_of_their_own) {
  Options logged = options();
  logged.log_dir = "/logs";
  const auto plan = make_rank_plan(logged, machine({4}), context(), sliced(1, 2));
  EXPECT_NE(plan->instances[0].log_path.find("/run_rank1_"), std::string::npos) << plan->instances[0].log_path;
}

}  // namespace
}  // namespace ipexrun::launcher
