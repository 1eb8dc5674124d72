// What the variables of an engine say about a rank.
#include "launcher/distributed/rank.h"

#include <gtest/gtest.h>

namespace ipexrun::launcher {
namespace {

using Env = std::map<std::string, std::string>;

Env torchrun() {
  return {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"},    {"RANK", "3"},
          {"WORLD_SIZE", "4"}, {"TORCHELASTIC_RUN_ID", "x"}, {"TORCHELASTIC_RESTART_COUNT", "2"}};
}
Env open_mpi() {
  return {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"}};
}
Env hydra() { return {{"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}; }
Env slurm() {
  return {{"SLURM_JOB_ID", "7"},
          {"SLURM_STEP_ID", "1"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
          {"SLURM_PROCID", "3"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_STEP_NODELIST", "cn[08-09]"}};
}

TEST(Rank, every_engine_names_the_same_four_numbers) {
  for (const auto& [env, engine] :
       {std::pair{torchrun(), Engine::kTorchrun}, {open_mpi(), Engine::kOpenMpi}, {hydra(), Engine::kHydra}, {slurm(), Engine::kSlurm}}) {
    const auto found = find_rank(env).rank;
    ASSERT_TRUE(found) << engine_name(engine);
    EXPECT_EQ(found->engine, engine);
    EXPECT_EQ(found->local_rank, 1);
    EXPECT_EQ(found->local_size, 2);
    EXPECT_EQ(found->rank, 3);
    EXPECT_EQ(found->world_size, 4);
  }
  EXPECT_EQ(find_rank(torchrun()).rank->restarts, 2);
}

TEST(Rank, intel_mpi_is_hydra_with_a_name_of_its_own) {
  Env env = hydra();
  env["I_MPI_HYDRA_INFO"] = "yes";
  EXPECT_EQ(find_rank(env).rank->engine, Engine::kIntelMpi);
}

TEST(Rank, the_engine_nearest_to_the_program_counts) {
  Env env = slurm();
  env.merge(torchrun());
  EXPECT_EQ(find_rank(env).rank->engine, Engine::kTorchrun);
}

TEST(Rank, no_variables_no_rank) {
  EXPECT_FALSE(find_rank({}).rank);
  EXPECT_FALSE(find_rank({{"LOCAL_RANK", "0"}}).rank) << "how many ranks share this host?";
  EXPECT_EQ(find_rank({{"LOCAL_RANK", "0"}}).problem, "");
}

TEST(Rank, contradictions_are_no_rank_and_are_named) {
  for (const auto& [rank, size] : {std::pair{"2", "2"}, {"-1", "2"}, {"x", "2"}, {"0", "0"}, {"0", "99999999999"}}) {
    const RankSearch search = find_rank({{"LOCAL_RANK", rank}, {"LOCAL_WORLD_SIZE", size}});
    EXPECT_FALSE(search.rank) << rank << " of " << size;
    EXPECT_NE(search.problem.find(std::string("LOCAL_RANK=") + rank), std::string::npos) << search.problem;
  }
}

TEST(Rank, wrong_numbers_of_the_whole_job_do_not_cost_the_slice) {
  Env env = torchrun();
  env["WORLD_SIZE"] = "1";
  const auto found = find_rank(env).rank;
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->world_size, 2);
}

TEST(Rank, the_script_of_a_batch_job_is_no_task) {
  Env env = slurm();
  env.erase("SLURM_STEP_ID");
  env["SLURM_NTASKS_PER_NODE"] = "2";
  EXPECT_FALSE(find_rank(env).rank);
  env["SLURM_STEPID"] = "0";
  env.erase("SLURM_STEP_TASKS_PER_NODE");
  EXPECT_EQ(find_rank(env).rank->local_size, 2) << "SLURM_NTASKS_PER_NODE";
}

TEST(Rank, slurm_says_whether_it_bound_the_tasks) {
  Env env = slurm();
  env["SLURM_CPU_BIND_TYPE"] = "mask_cpu:";
  EXPECT_TRUE(find_rank(env).rank->bound_by_slurm);
  env["SLURM_CPU_BIND_TYPE"] = "none";
  EXPECT_TRUE(find_rank(env).rank->unbound_by_slurm);
  EXPECT_FALSE(find_rank(env).rank->bound_by_slurm);
}

TEST(Rank, tasks_of_a_node) {
  EXPECT_EQ(tasks_on_node("2", 0), 2);
  EXPECT_EQ(tasks_on_node("2(x3),1", 2), 2);
  EXPECT_EQ(tasks_on_node("2(x3),1", 3), 1);
  EXPECT_EQ(tasks_on_node("2(x3),1", 4), std::nullopt);
  EXPECT_EQ(tasks_on_node("", 0), std::nullopt);
  EXPECT_EQ(tasks_on_node("2(x", 0), std::nullopt);
  EXPECT_EQ(tasks_on_node("a", 0), std::nullopt);
}

TEST(Rank, first_host_of_a_list) {
  EXPECT_EQ(first_host("cn7"), "cn7");
  EXPECT_EQ(first_host("cn7,cn8"), "cn7");
  EXPECT_EQ(first_host("cn[07-12,15],gpu1"), "cn07");
  EXPECT_EQ(first_host("a,cn[1-2]"), "a");
  EXPECT_EQ(first_host("r[1-2]n[3-4]"), "r1n3");
  EXPECT_EQ(first_host("cn[3]-ib,x"), "cn3-ib");
  EXPECT_EQ(first_host("cn["), "");
  EXPECT_EQ(first_host(""), "");
}

TEST(Rank, where_ranks_meet) {
  Env env = open_mpi();
  EXPECT_EQ(meeting_of(*find_rank(env).rank, env).address, "") << "Open MPI does not say which host has rank 0";
  env["OMPI_COMM_WORLD_SIZE"] = "2";
  env["OMPI_COMM_WORLD_RANK"] = "1";
  EXPECT_EQ(meeting_of(*find_rank(env).rank, env).address, "127.0.0.1");
  EXPECT_EQ(meeting_of(*find_rank(env).rank, env).port, "29500");
  env = slurm();
  EXPECT_EQ(meeting_of(*find_rank(env).rank, env).address, "cn08");
  const std::string port = meeting_of(*find_rank(env).rank, env).port;
  env["SLURM_STEP_ID"] = "2";
  EXPECT_NE(meeting_of(*find_rank(env).rank, env).port, port) << "two steps on one host";
  env["SLURM_JOB_ID"] = "4294967040";  // numbers beyond 2^24 are common on old clusters
  EXPECT_NE(meeting_of(*find_rank(env).rank, env).port, "29500");
  env["SLURM_JOB_ID"] = "99999999999999999999";
  EXPECT_EQ(meeting_of(*find_rank(env).rank, env).port, "29500");
}

}  // namespace
}  // namespace ipexrun::launcher
