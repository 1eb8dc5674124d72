// What an engine is told to start for each rank.
#include <gtest/gtest.h>

#include "launcher/cli/cli.h"

namespace ipexrun::launcher {
namespace {

std::string words(const std::vector<std::string>& command_line) {
  const auto options = parse_command_line(command_line);
  if (!options.ok()) return "error: " + options.error().line();
  std::string out;
  for (const std::string& word : rank_arguments(*options)) out += (out.empty() ? "" : "|") + word;
  return out;
}

TEST(RankArguments, options_of_the_job_stay_with_the_job) {
  EXPECT_EQ(words({"--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint", "h:1", "--master-port", "5", "--dtype", "float32",
                   "--no-pin", "train.py", "--dtype", "x y"}),
            "--as-rank|--dtype=float32|--no-pin|train.py|--dtype|x y");
  EXPECT_EQ(words({"--nproc-per-node", "2", "--ccl-worker-count", "1", "--logical-cores-for-ccl", "a"}),
            "--as-rank|--ccl-worker-count=1|--logical-cores-for-ccl|a");
  EXPECT_EQ(words({"--nproc-per-node", "2", "--dry-run", "--explain", "a"}), "--as-rank|a");
  EXPECT_EQ(words({"--nproc-per-node", "2", "--bench-output", "a.json", "--bench-output", "b.md", "a"}),
            "--as-rank|--bench|--bench-output=a.json|--bench-output=b.md|a");
}

TEST(RankArguments, the_program_is_found_again_as_it_was_given) {
  EXPECT_EQ(words({"--nproc-per-node", "2", "-m", "pkg.train", "-m"}), "--as-rank|-m|pkg.train|-m");
  EXPECT_EQ(words({"--nproc-per-node", "2", "--no-python", "x.py"}), "--as-rank|--no-python|x.py");
  EXPECT_EQ(words({"--nproc-per-node", "2", "--", "-odd", "--"}), "--as-rank|--|-odd|--");
  EXPECT_EQ(words({"--nproc-per-node", "2", "--", "doctor"}), "--as-rank|doctor");
}

TEST(RankArguments, and_parse_to_the_same_options) {
  const auto options = parse_command_line(
      {"--nprocs-per-node", "2", "--cores-list", "0-3", "--log-dir", "l", "--memory-allocator", "jemalloc", "x.py", "y"});
  ASSERT_TRUE(options.ok());
  const auto again = parse_command_line(rank_arguments(*options));
  ASSERT_TRUE(again.ok()) << again.error().line();
  EXPECT_TRUE(options->distributed.asked());
  EXPECT_FALSE(again->distributed.asked());
  EXPECT_TRUE(again->distributed.as_rank);
  EXPECT_EQ(again->cores_list, options->cores_list);
  EXPECT_EQ(again->log_dir, "l");
  EXPECT_EQ(again->memory_allocator, "jemalloc");
  EXPECT_EQ(again->program, "x.py");
  EXPECT_EQ(again->args, options->args);
}

TEST(RankArguments, bad_values_are_one_line) {
  for (const std::vector<std::string>& bad : std::vector<std::vector<std::string>>{{"--nnodes", "0"},
                                                                                   {"--nnodes", "4:2"},
                                                                                   {"--nnodes", "x"},
                                                                                   {"--nprocs-per-node", "-1"},
                                                                                   {"--nprocs-per-node", "gpu"},
                                                                                   {"--rdzv-endpoint", "h:x"},
                                                                                   {"--rdzv-endpoint", "h:70000"},
                                                                                   {"--rdzv-endpoint", ":1"},
                                                                                   {"--rdzv-endpoint", "a b:1"},
                                                                                   {"--rdzv-endpoint", "[::1:1"},
                                                                                   {"--rdzv-endpoint", "::1"},
                                                                                   {"--master-port", "0"},
                                                                                   {"--master-addr", "-x"},
                                                                                   {"--engine", "ssh"},
                                                                                   {"--ccl-worker-count", "x"},
                                                                                   {"--nprocs-per-node", "2", "--ninstances", "2"},
                                                                                   {"--nprocs-per-node", "2", "--latency-mode"}}) {
    std::vector<std::string> line = bad;
    line.emplace_back("true");
    const auto options = parse_command_line(line);
    ASSERT_FALSE(options.ok()) << bad[0] << " " << bad[1];
    EXPECT_EQ(options.error().code, kExitUsage);
    EXPECT_NE(options.error().what.find(bad[0].substr(2)), std::string::npos) << options.error().what;
  }
  for (const char* good : {"h:1", "h", "10.0.0.1:29400", "[::1]:29400", "localhost:0"})
    EXPECT_TRUE(parse_command_line({"--nproc-per-node", "1", "--rdzv-endpoint", good, "true"}).ok()) << good;
}

TEST(RankArguments, names_of_ipex_and_torchrun) {
  EXPECT_EQ(*parse_command_line({"--nproc_per_node", "3", "true"})->distributed.nprocs_per_node, 3);
  EXPECT_EQ(*parse_command_line({"--nprocs-per-node", "auto", "true"})->distributed.nprocs_per_node, 0);
  EXPECT_EQ(parse_command_line({"--distributed", "true"})->distributed.nnodes, "1");
  EXPECT_EQ(parse_command_line({"--nnodes", "2", "--standalone", "true"})->distributed.nnodes, "2");
  EXPECT_EQ(parse_command_line({"--more-mpi-params", "-x A", "true"})->distributed.extra_mpi_params, "-x A");
}

}  // namespace
}  // namespace ipexrun::launcher
