#include "launcher/distributed/communication.h"

#include <gtest/gtest.h>

#include "launcher/distributed/rank_plan.h"
#include "tests/unit/launcher/made_up.h"

namespace ipexrun::launcher {
namespace {

using made_up::context;
using made_up::has_warning;
using made_up::machine;
using made_up::options;

Options with_workers(int count, bool logical = false) {
  Options out = options();
  out.distributed.ccl_worker_count = count;
  out.distributed.logical_cores_for_ccl = logical;
  return out;
}

RankPlace place(int local, int size, Engine engine = Engine::kTorchrun) {
  RankPlace out;
  out.rank.engine = engine;
  out.rank.local_rank = out.rank.rank = local;
  out.rank.local_size = out.rank.world_size = size;
  return out;
}

TEST(Communication, workers_take_the_first_cpus_of_each_rank) {
  const auto plan = make_rank_plan(with_workers(2), machine({8, 8}), context(), place(1, 2));
  ASSERT_TRUE(plan.ok()) << plan.error().line();
  const InstancePlan& own = plan->instances[0];
  EXPECT_EQ(own.cpus.size(), 8u) << "the mask holds the workers too";
  EXPECT_EQ(own.threads, 6);
  EXPECT_EQ(own.env.at("OMP_NUM_THREADS"), "6");
  EXPECT_EQ(own.env.at("TORCHINDUCTOR_COMPILE_THREADS"), "6");
  EXPECT_EQ(own.env.at("CCL_WORKER_COUNT"), "2");
  EXPECT_EQ(own.env.at("CCL_WORKER_AFFINITY"), "0,1,8,9") << "oneCCL wants the workers of all ranks of the host";
}

TEST(Communication, on_second_hardware_threads_no_thread_is_given_up) {
  const auto plan = make_rank_plan(with_workers(1, true), machine({4}, 2), context(), place(0, 2));
  ASSERT_TRUE(plan.ok()) << plan.error().line();
  EXPECT_EQ(plan->instances[0].threads, 2);
  EXPECT_EQ(plan->instances[0].env.at("CCL_WORKER_AFFINITY"), "4,6");
}

TEST(Communication, a_rank_that_knows_only_itself_repeats_itself) {
  RankPlace bound = place(1, 2);
  bound.kind = RankPlace::Kind::kMask;
  const auto plan = make_rank_plan(with_workers(1), machine({4}), context(), bound);
  EXPECT_EQ(plan->instances[0].env.at("CCL_WORKER_AFFINITY"), "0,0");
}

TEST(Communication, what_does_not_fit_is_one_line) {
  for (const auto& [wanted, on, part] : {std::tuple{with_workers(2), machine({4}), "leaves nothing to compute with"},
                                         {with_workers(1, true), machine({4}), "no second hardware thread"},
                                         {with_workers(0, true), machine({4}), "without --ccl-worker-count"}}) {
    const auto plan = make_rank_plan(wanted, on, context(), place(0, 2));
    ASSERT_FALSE(plan.ok()) << part;
    EXPECT_EQ(plan.error().code, kExitUsage);
    EXPECT_NE(plan.error().line().find(part), std::string::npos) << plan.error().line();
  }
  Options both = with_workers(1, true);
  both.use_logical_cores = true;
  EXPECT_FALSE(make_rank_plan(both, machine({4}, 2), context(), place(0, 2)).ok());
}

TEST(Communication, threads_that_the_user_chose_stay) {
  PlanContext with = context();
  with.env["OMP_NUM_THREADS"] = "3";
  const auto plan = make_rank_plan(with_workers(1), machine({8}), with, place(0, 2));
  EXPECT_EQ(plan->instances[0].threads, 3);
}

TEST(Communication, ranks_of_mpirun_find_each_other_as_torchruns_do) {
  PlanContext with = context();
  const auto torchrun = make_rank_plan(options(), machine({4}), with, place(1, 2));
  EXPECT_EQ(torchrun->instances[0].env.count("RANK"), 0u) << "torchrun has set them";
  const auto mpi = make_rank_plan(options(), machine({4}), with, place(1, 2, Engine::kHydra));
  const auto& env = mpi->instances[0].env;
  EXPECT_EQ(env.at("RANK"), "1");
  EXPECT_EQ(env.at("WORLD_SIZE"), "2");
  EXPECT_EQ(env.at("LOCAL_RANK"), "1");
  EXPECT_EQ(env.at("LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(env.at("MASTER_ADDR"), "127.0.0.1");
  EXPECT_EQ(env.at("MASTER_PORT"), "29500");
  EXPECT_EQ(env.count("GLOO_SOCKET_IFNAME"), 0u);
  with.env["MASTER_ADDR"] = "head";
  const auto own = make_rank_plan(options(), machine({4}), with, place(1, 2, Engine::kHydra));
  EXPECT_EQ(own->instances[0].env.count("MASTER_ADDR"), 0u) << "the user's own stays";
  Options asked = options();
  asked.distributed.master_addr = "boss";
  asked.distributed.master_port = 77;
  const auto told = make_rank_plan(asked, machine({4}), with, place(1, 2, Engine::kHydra));
  EXPECT_EQ(told->instances[0].env.at("MASTER_ADDR"), "boss");
  EXPECT_EQ(told->instances[0].env.at("MASTER_PORT"), "77");
}

TEST(Communication, an_address_that_cannot_be_known_is_said) {
  RankPlace far = place(0, 2, Engine::kOpenMpi);
  far.rank.world_size = 4;
  const auto plan = make_rank_plan(options(), machine({4}), context(), far);
  EXPECT_EQ(plan->instances[0].env.count("MASTER_ADDR"), 0u);
  EXPECT_TRUE(has_warning(*plan, "MASTER_ADDR is not set"));
}

}  // namespace
}  // namespace ipexrun::launcher
