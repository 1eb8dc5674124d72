// The exact command line of every engine, and the one line of every request that makes no sense.
#include "launcher/distributed/job.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/distributed/show_job.h"
#include "tests/unit/launcher/made_up.h"

namespace ipexrun::launcher {
namespace {

JobFacts facts() {
  JobFacts out;
  out.env = {{"PATH", "/bin"}, {"SECRET", "x"}};
  out.self = "/opt/ipexrun";
  out.python = "/usr/bin/python";
  out.mpirun = "/usr/bin/mpirun";
  out.mpirun_version = "mpirun (Open MPI) 4.1.4";
  out.free_port = 4321;
  out.rank_words = {"--as-rank", "train.py", "a b"};
  return out;
}

JobFacts with_hosts(std::vector<std::string> names) {
  JobFacts out = facts();
  for (const std::string& name : names) out.hosts.push_back({name, false, false, static_cast<int>(out.hosts.size()) + 1});
  return out;
}

JobFacts in_slurm() {
  JobFacts out = facts();
  out.env["SLURM_JOB_ID"] = "7";
  out.env["SLURM_JOB_NUM_NODES"] = "2";
  out.srun = "/usr/bin/srun";
  return out;
}

Options ranks(int count) {
  Options out = made_up::options();
  out.distributed.nprocs_per_node = count;
  return out;
}

/// The command line, words separated by '|', or "error CODE: LINE".
std::string command(const Options& options, const JobFacts& with) {
  const auto job = make_job(options, with);
  if (!job.ok()) return "error " + std::to_string(job.error().code) + ": " + job.error().line();
  std::string out;
  for (const std::string& word : job->process.argv) out += (out.empty() ? "" : "|") + word;
  return out;
}

void expect_refused(const Options& options, const JobFacts& with, const std::string& part, int code = kExitUsage) {
  const std::string seen = command(options, with);
  EXPECT_EQ(seen.rfind("error " + std::to_string(code), 0), 0u) << seen;
  EXPECT_NE(seen.find(part), std::string::npos) << seen;
  EXPECT_EQ(seen.find('\n'), std::string::npos) << seen;
}

TEST(Job, torchrun_on_one_host) {
  EXPECT_EQ(command(ranks(2), facts()),
            "/usr/bin/python|-m|torch.distributed.run|--nnodes=1|--nproc-per-node=2|--standalone|--no-python|/opt/"
            "ipexrun|--as-rank|train.py|a b");
  Options options = ranks(2);
  options.distributed.master_port = 29501;
  options.max_restarts = 3;
  EXPECT_EQ(
      command(options, facts()),
      "/usr/bin/python|-m|torch.distributed.run|--nnodes=1|--nproc-per-node=2|--master-addr=127.0.0.1|--master-port=29501|--max-restarts=3|"
      "--no-python|/opt/ipexrun|--as-rank|train.py|a b");
}

TEST(Job, torchrun_on_many_hosts) {
  Options options = ranks(4);
  options.distributed.nnodes = "2";
  options.distributed.rdzv_endpoint = "head:29400";
  EXPECT_EQ(
      command(options, facts()),
      "/usr/bin/"
      "python|-m|torch.distributed.run|--nnodes=2|--nproc-per-node=4|--rdzv-backend=c10d|--rdzv-endpoint=head:29400|--rdzv-id=ipexrun|"
      "--no-python|/opt/ipexrun|--as-rank|train.py|a b");
  options.distributed.rdzv_id = "j";
  options.distributed.rdzv_backend = "etcd-v2";
  options.distributed.local_addr = "10.0.0.2";
  options.distributed.nnodes = "1:4";
  EXPECT_EQ(command(options, facts()),
            "/usr/bin/"
            "python|-m|torch.distributed.run|--nnodes=1:4|--nproc-per-node=4|--rdzv-backend=etcd-v2|--rdzv-endpoint=head:29400|--rdzv-id=j|"
            "--local-addr=10.0.0.2|--no-python|/opt/ipexrun|--as-rank|train.py|a b");
}

TEST(Job, the_host_of_the_meeting_place_is_told_so_where_its_name_leads_elsewhere) {
  Options options = ranks(1);
  options.distributed.nnodes = "2";
  options.distributed.rdzv_endpoint = "10.0.0.1:29400";
  JobFacts with = facts();
  EXPECT_EQ(command(options, with).find("is_host"), std::string::npos);
  with.is_meeting_host = true;
  EXPECT_NE(command(options, with).find("|--rdzv-conf=is_host=true|"), std::string::npos);
  options.distributed.rdzv_backend = "etcd-v2";
  EXPECT_EQ(command(options, with).find("is_host"), std::string::npos);
}

TEST(Job, gpus_are_left_to_ipexrun_xpu_inside_a_rank) {
  Options options = ranks(2);
  options.command = Command::kXpu;
  expect_refused(options, facts(), "ipexrun xpu starts no ranks");
}

TEST(Job, torchrun_with_the_names_of_ipex) {
  Options options = ranks(1);
  options.distributed.nnodes = "2";
  options.distributed.node_rank = 1;
  options.distributed.master_addr = "head";
  EXPECT_EQ(
      command(options, facts()),
      "/usr/bin/"
      "python|-m|torch.distributed.run|--nnodes=2|--nproc-per-node=1|--master-addr=head|--master-port=29500|--node-rank=1|--no-python|"
      "/opt/ipexrun|--as-rank|train.py|a b");
}

TEST(Job, open_mpi) {
  Options options = ranks(2);
  options.distributed.hostfile = "h";
  EXPECT_EQ(
      command(options, with_hosts({"a", "b"})),
      "/usr/bin/mpirun|--hostfile|h|-np|4|--map-by|ppr:2:node:OVERSUBSCRIBE|--bind-to|none|-x|PATH|-x|MASTER_ADDR=a|-x|MASTER_PORT=29500|"
      "/opt/ipexrun|--as-rank|train.py|a b")
      << "of the environment only what torch's world uses goes to other hosts";
  options.distributed.nnodes = "1";
  options.distributed.master_port = 5;
  options.distributed.extra_mpi_params = "--mca btl 'tcp, self'";
  EXPECT_EQ(
      command(options, with_hosts({"a", "b"})),
      "/usr/bin/"
      "mpirun|--hostfile|h|-np|2|--map-by|ppr:2:node:OVERSUBSCRIBE|--bind-to|none|-x|PATH|-x|MASTER_ADDR=a|-x|MASTER_PORT=5|--mca|btl|"
      "tcp, self|/opt/ipexrun|--as-rank|train.py|a b");
}

TEST(Job, mpich_and_intel_mpi) {
  Options options = ranks(2);
  options.distributed.hostfile = "h";
  JobFacts with = with_hosts({"a", "b"});
  with.mpirun_version = "HYDRA build details:\n    Version: 4.0.2";
  EXPECT_EQ(
      command(options, with),
      "/usr/bin/mpirun|-f|h|-n|4|-ppn|2|-bind-to|none|-genv|MASTER_ADDR|a|-genv|MASTER_PORT|29500|/opt/ipexrun|--as-rank|train.py|a b");
  with.mpirun_version = "Intel(R) MPI Library for Linux* OS, Version 2021.14";
  EXPECT_EQ(
      command(options, with),
      "/usr/bin/mpirun|-f|h|-n|4|-ppn|2|-genv|I_MPI_PIN|0|-genv|MASTER_ADDR|a|-genv|MASTER_PORT|29500|/opt/ipexrun|--as-rank|train.py|a b");
}

TEST(Job, mpirun_on_this_host_takes_a_free_port) {
  Options options = ranks(2);
  options.distributed.engine = "mpirun";
  EXPECT_EQ(command(options, facts()),
            "/usr/bin/mpirun|-np|2|--map-by|ppr:2:node:OVERSUBSCRIBE|--bind-to|none|-x|MASTER_ADDR=127.0.0.1|-x|MASTER_PORT=4321|/opt/"
            "ipexrun|--as-rank|"
            "train.py|a b");
}

TEST(Job, srun_in_an_allocation) {
  EXPECT_EQ(
      command(ranks(2), in_slurm()),
      "/usr/bin/srun|--nodes=2|--ntasks=4|--ntasks-per-node=2|--cpu-bind=none|--kill-on-bad-exit=1|/opt/ipexrun|--as-rank|train.py|a b");
  JobFacts with = in_slurm();
  with.env["SLURM_NTASKS_PER_NODE"] = "3";
  Options options = made_up::options();
  options.distributed.nnodes = "1";
  EXPECT_EQ(make_job(options, with)->ranks_per_host, 3);
  with.srun.clear();
  EXPECT_EQ(make_job(ranks(2), with)->engine, Engine::kTorchrun) << "without srun an allocation is a host like any other";
  with = in_slurm();
  options = ranks(2);
  options.distributed.rdzv_endpoint = "h:1";
  EXPECT_EQ(make_job(options, with)->engine, Engine::kTorchrun) << "a meeting place is torchrun's";
}

TEST(Job, without_a_number_one_rank_a_numa_node) {
  JobFacts with = facts();
  with.numa_nodes = 4;
  EXPECT_EQ(make_job(ranks(0), with)->ranks_per_host, 4);
}

TEST(Job, versions_of_mpirun) {
  EXPECT_EQ(mpirun_kind("mpirun.openmpi (OpenRTE) 4.1.4"), Engine::kOpenMpi);
  EXPECT_EQ(mpirun_kind("mpirun (Open MPI) 5.0.3"), Engine::kOpenMpi);
  EXPECT_EQ(mpirun_kind("HYDRA build details:"), Engine::kHydra);
  EXPECT_EQ(mpirun_kind("Intel(R) MPI Library for Linux* OS, Version 2021.1 Build"), Engine::kIntelMpi);
  EXPECT_EQ(mpirun_kind("prun 1.0"), std::nullopt);
}

TEST(Job, requests_without_sense_are_one_line) {
  Options options = ranks(2);
  options.distributed.nnodes = "2";
  expect_refused(options, facts(), "--rdzv-endpoint HOST:PORT");
  options.distributed.engine = "mpirun";
  expect_refused(options, facts(), "no --hostfile names them");
  options.distributed.hostfile = "h";
  options.distributed.nnodes = "3";
  expect_refused(options, with_hosts({"a", "b"}), "--nnodes 3, but 'h' names 2 hosts");
  options.distributed.engine = "torchrun";
  expect_refused(options, with_hosts({"a"}), "--hostfile is for mpirun");

  options = ranks(2);
  options.distributed.hostfile = "h";
  expect_refused(options, with_hosts({"localhost", "b"}), "another machine on each host");
  options.distributed.rdzv_endpoint = "h:1";
  expect_refused(options, with_hosts({"a"}), "--rdzv-endpoint is for torchrun");
  options.distributed.rdzv_endpoint.clear();
  options.max_restarts = 1;
  expect_refused(options, with_hosts({"a"}), "--engine torchrun does");

  options = ranks(2);
  options.distributed.engine = "srun";
  expect_refused(options, facts(), "no Slurm allocation");
  options.distributed.nnodes = "3";
  expect_refused(options, in_slurm(), "has 2 nodes");
  options = ranks(2);
  options.distributed.extra_mpi_params = "--x";
  options.distributed.engine = "torchrun";
  expect_refused(options, facts(), "--extra-mpi-params");
  options.distributed.engine = "mpirun";
  options.distributed.extra_mpi_params = "'--x";
  expect_refused(options, facts(), "a quote without its end");

  options = ranks(2);
  options.ninstances = 2;
  expect_refused(options, facts(), "--ninstances");
  options = ranks(2);
  options.bench.compare = {"stock"};
  expect_refused(options, facts(), "--bench-compare");
  options = ranks(2);
  options.bench.stop = true;
  expect_refused(options, facts(), "--bench-stop");
  options = ranks(2);
  options.distributed.rdzv_endpoint = "h:1";
  options.distributed.master_addr = "h";
  expect_refused(options, facts(), "both name the meeting place");
}

TEST(Job, numbers_that_no_slurm_would_say_are_one_line) {
  Options options = ranks(2);
  options.distributed.engine = "srun";
  JobFacts with = in_slurm();
  for (const char* odd : {"99999999999", "0", "-1", "two", "2x", "1:4"}) {
    with.env["SLURM_JOB_NUM_NODES"] = odd;
    expect_refused(options, with, odd);
  }
  with.env["SLURM_JOB_NUM_NODES"] = "9000000";
  expect_refused(options, with, "18000000 ranks");
  options.distributed.nnodes = "1048576";
  options.distributed.nprocs_per_node = 65536;
  with.env.erase("SLURM_JOB_NUM_NODES");
  expect_refused(options, with, "68719476736 ranks");
  options.distributed.nnodes = "2";
  options.distributed.nprocs_per_node.reset();
  for (const char* odd : {"99999999999", "0", "2(x3)"}) {
    with.env["SLURM_NTASKS_PER_NODE"] = odd;
    EXPECT_NE(command(options, with).find("|--ntasks=2|"), std::string::npos) << odd << ": " << command(options, with);
  }
}

TEST(Job, engines_that_are_not_there_say_what_to_install) {
  JobFacts with = facts();
  with.mpirun.clear();
  Options options = ranks(2);
  options.distributed.engine = "mpirun";
  expect_refused(options, with, "openmpi-bin", kExitNotFound);
  with = facts();
  with.mpirun_version = "something else";
  expect_refused(options, with, "'something else'", kExitFailure);
  with = in_slurm();
  with.srun.clear();
  options.distributed.engine = "srun";
  expect_refused(options, with, "slurm-client", kExitNotFound);
  with = facts();
  with.python.clear();
  expect_refused(ranks(2), with, "no Python", kExitNotFound);
}

TEST(Job, open_mpi_and_root) {
  Options options = ranks(2);
  options.distributed.engine = "mpirun";
  JobFacts with = facts();
  with.root = true;
  expect_refused(options, with, "--allow-run-as-root");
  options.distributed.extra_mpi_params = "--allow-run-as-root";
  EXPECT_EQ(command(options, with).find("error"), std::string::npos);
}

TEST(Job, ipv6_addresses_are_for_open_mpi) {
  Options options = ranks(2);
  options.distributed.hostfile = "h";
  JobFacts with = facts();
  with.hosts = {{.host = "fe80::1", .line = 1, .ipv6 = true}, {.host = "fe80::2", .line = 2, .ipv6 = true}};
  EXPECT_NE(command(options, with).find("|MASTER_ADDR=fe80::1|"), std::string::npos) << command(options, with);
  with.mpirun_version = "HYDRA build details:";
  expect_refused(options, with, "cannot hold IPv6");
}

TEST(Job, a_hostfile_in_the_form_of_the_other_mpi) {
  Options options = ranks(1);
  options.distributed.hostfile = "h";
  JobFacts with = with_hosts({"a"});
  with.hosts[0].hydra_form = true;
  expect_refused(options, with, "h:1: 'a:N' is MPICH's form");
  with.hosts[0] = {"a", true, false, 1};
  with.mpirun_version = "HYDRA";
  expect_refused(options, with, "Open MPI's form");
}

TEST(Job, threads_of_torchrun_itself) {
  LaunchPlan slices;
  slices.instances.resize(1);
  slices.instances[0].threads = 8;
  Job job = *make_job(ranks(2), facts());
  give_threads(slices, {}, job);
  EXPECT_EQ(job.process.env["OMP_NUM_THREADS"], "8");
  job = *make_job(ranks(2), facts());
  give_threads(slices, {{"OMP_NUM_THREADS", "3"}}, job);
  EXPECT_EQ(job.process.env.count("OMP_NUM_THREADS"), 0u);
}

TEST(Job, words_are_cut_without_a_shell) {
  EXPECT_EQ(*split_words("x", "  a 'b c'\td\"e f\"g '' $(h) "), (std::vector<std::string>{"a", "b c", "de fg", "", "$(h)"}));
}

TEST(Job, shown_as_text_and_json) {
  const Job job = *make_job(ranks(2), facts());
  LaunchPlan slices;
  slices.instances.resize(2);
  EXPECT_NE(job_table(job, slices).find("torchrun, 1 host, 2 ranks\n"), std::string::npos);
  EXPECT_NE(job_table(job, slices).find("--as-rank train.py 'a b'\n"), std::string::npos);
  const auto json = nlohmann::json::parse(job_json(job, slices));
  EXPECT_EQ(json["engine"]["name"], "torchrun");
  EXPECT_EQ(json["engine"]["argv"][0], "/usr/bin/python");
  EXPECT_EQ(json["instances"].size(), 2u);
}

}  // namespace
}  // namespace ipexrun::launcher
