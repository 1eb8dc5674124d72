#include "launcher/distributed/job.h"

#include <algorithm>
#include <array>

#include "launcher/plan/environment.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

constexpr const char* kMpiHint = "install Open MPI (apt: openmpi-bin), MPICH (apt: mpich) or Intel MPI, or give --engine torchrun";

/// What a program may need of the caller's environment on other hosts; Open MPI passes only what it is told to.
constexpr std::array<std::string_view, 24> kPassedOn{
    "PATH",  "LD_LIBRARY_PATH", "PYTHON",    "VIRTUAL_ENV", "CONDA_PREFIX", "IPEXRUN_", "OMP_", "KMP_",
    "GOMP_", "MALLOC_",         "MIMALLOC_", "TCMALLOC_",   "GLOO_",        "CCL_",     "FI_",  "I_MPI_",
    "TORCH", "PYTORCH",         "ATEN_",     "DNNL_",       "ONEDNN_",      "MKL_",     "HF_",  "TRANSFORMERS_"};

Error usage(const std::string& what, const std::string& hint = "") { return Error{kExitUsage, what, hint}; }

bool in_allocation(const JobFacts& facts) {
  return !value_of(facts.env, "SLURM_JOB_ID").empty() || !value_of(facts.env, "SLURM_JOBID").empty();
}

/// The first of torchrun's own options that was given, "" = none.
std::string torchrun_option(const DistributedOptions& wanted) {
  if (!wanted.rdzv_endpoint.empty()) return "--rdzv-endpoint";
  if (!wanted.rdzv_id.empty()) return "--rdzv-id";
  if (!wanted.rdzv_backend.empty()) return "--rdzv-backend";
  if (wanted.node_rank) return "--node-rank";
  if (!wanted.local_addr.empty()) return "--local-addr";
  return wanted.nnodes.find(':') == std::string::npos ? "" : "--nnodes " + wanted.nnodes;
}

Status check_options(const Options& options) {
  if (options.command == Command::kXpu)
    return usage("ipexrun xpu starts no ranks", "start it as each rank: torchrun --no-python ... ipexrun xpu PROGRAM");
  const std::array<std::pair<bool, const char*>, 4> placed{{{options.ninstances > 0 || options.ninstances_auto, "--ninstances"},
                                                            {options.latency_mode, "--latency-mode"},
                                                            {options.throughput_mode, "--throughput-mode"},
                                                            {!options.instance_idx.empty(), "--instance-idx"}}};
  for (const auto& [given, name] : placed)
    if (given)
      return usage(std::string(name) + " and a job of ranks contradict each other", "--nprocs-per-node says how many ranks a host gets");
  if (!options.bench.compare.empty())
    return usage("--bench-compare cannot start a job of ranks again and again", "--bench alone measures rank 0; compare two runs by hand");
  if (options.bench.stop)
    return usage("--bench-stop would end rank 0 alone while the others wait for it", "leave it out: --bench measures rank 0");
  return ok_status();
}

std::string address_or_default(const Options& options) {
  return options.distributed.master_addr.empty() ? "127.0.0.1" : options.distributed.master_addr;
}

int port_or_default(const Options& options, const JobFacts& facts, bool one_host) {
  if (options.distributed.master_port) return *options.distributed.master_port;
  return one_host && facts.free_port > 0 ? facts.free_port : 29500;
}

/// "2" -> 2; nullopt for anything but a number of hosts.
std::optional<int> plain_count(const std::string& text) {
  const auto count = parse_number<int>(text);
  return count && *count >= 1 ? count : std::nullopt;
}

/// Ranks of a host: as asked, else what Slurm was asked for, else one a NUMA node.
int ranks_per_host(const Options& options, const JobFacts& facts, EngineChoice choice, std::vector<Reason>& reasons) {
  const auto& asked = options.distributed.nprocs_per_node;
  if (asked && *asked > 0) {
    reasons.push_back({"ranks", std::to_string(*asked), "--nprocs-per-node"});
    return *asked;
  }
  const std::string per_node = value_of(facts.env, "SLURM_NTASKS_PER_NODE");
  const auto of_slurm = plain_count(per_node);
  if (choice == EngineChoice::kSrun && !asked && of_slurm && *of_slurm <= kMostRanks) {
    reasons.push_back({"ranks", per_node, "the Slurm allocation was made for so many on each node (SLURM_NTASKS_PER_NODE)"});
    return *of_slurm;
  }
  reasons.push_back({"ranks", std::to_string(facts.numa_nodes), "one a NUMA node of this host (--nprocs-per-node says otherwise)"});
  return facts.numa_nodes;
}

void add_rank_words(const JobFacts& facts, std::vector<std::string>& argv) {
  argv.push_back(facts.self);
  argv.insert(argv.end(), facts.rank_words.begin(), facts.rank_words.end());
}

Status add_extra(const Options& options, std::vector<std::string>& argv) {
  auto extra = split_words("extra-mpi-params", options.distributed.extra_mpi_params);
  if (!extra.ok()) return extra.error();
  argv.insert(argv.end(), extra->begin(), extra->end());
  return ok_status();
}

/// Ranks of the whole job.
Result<std::string> all_ranks(int hosts, int ranks_per_host) {
  const long long ranks = static_cast<long long>(hosts) * ranks_per_host;
  if (ranks <= kMostRanks) return std::to_string(ranks);
  return usage(
      std::to_string(hosts) + " hosts with " + std::to_string(ranks_per_host) + " ranks each are " + std::to_string(ranks) + " ranks",
      "at most " + std::to_string(kMostRanks));
}

Status torchrun_command(const Options& options, const JobFacts& facts, Job& job) {
  const DistributedOptions& wanted = options.distributed;
  job.engine = Engine::kTorchrun;
  job.hosts = wanted.nnodes.empty() ? "1" : wanted.nnodes;
  if (Status rank = check_node_rank(wanted); !rank.ok()) return rank;
  const bool one_host = job.hosts == "1";
  const bool static_meeting =
      wanted.node_rank || wanted.rdzv_backend == "static" || (one_host && (!wanted.master_addr.empty() || wanted.master_port));
  if (!one_host && wanted.rdzv_endpoint.empty() && !(wanted.node_rank && !wanted.master_addr.empty()))
    return usage("--nnodes " + job.hosts + " needs a place where the hosts meet",
                 "--rdzv-endpoint HOST:PORT, the same on every host; or --hostfile FILE; or --node-rank with --master-addr");
  if (!wanted.rdzv_endpoint.empty() && (!wanted.master_addr.empty() || wanted.master_port))
    return usage("--rdzv-endpoint and --master-addr, --master-port both name the meeting place", "give one of them");
  if (facts.python.empty())
    return Error{kExitNotFound, "no Python in PATH to run torchrun with",
                 "activate the environment that has torch, or give --engine mpirun"};

  std::vector<std::string>& argv = job.process.argv;
  job.process.executable = facts.python;
  argv = {facts.python, "-m", "torch.distributed.run", "--nnodes=" + job.hosts, "--nproc-per-node=" + std::to_string(job.ranks_per_host)};
  if (!wanted.rdzv_endpoint.empty()) {
    argv.push_back("--rdzv-backend=" + (wanted.rdzv_backend.empty() ? "c10d" : wanted.rdzv_backend));
    argv.push_back("--rdzv-endpoint=" + wanted.rdzv_endpoint);
    argv.push_back("--rdzv-id=" + (wanted.rdzv_id.empty() ? "ipexrun" : wanted.rdzv_id));
    if (facts.is_meeting_host && (wanted.rdzv_backend.empty() || wanted.rdzv_backend == "c10d")) {
      argv.emplace_back("--rdzv-conf=is_host=true");
      job.reasons.push_back({"engine", "is_host=true",
                             "an interface of this host has that address; torchrun would ask the host's name only, which leads elsewhere"});
    }
    job.reasons.push_back({"engine", wanted.rdzv_endpoint, "the hosts meet there, each started by the same command line"});
  } else if (static_meeting) {
    argv.push_back("--master-addr=" + address_or_default(options));
    argv.push_back("--master-port=" + std::to_string(port_or_default(options, facts, one_host)));
  } else {
    argv.emplace_back("--standalone");
    job.reasons.push_back({"engine", "--standalone", "one host: torchrun takes a free port by itself"});
  }
  if (wanted.node_rank) argv.push_back("--node-rank=" + std::to_string(*wanted.node_rank));
  if (!wanted.local_addr.empty()) argv.push_back("--local-addr=" + wanted.local_addr);
  if (options.max_restarts > 0) argv.push_back("--max-restarts=" + std::to_string(options.max_restarts));
  argv.emplace_back("--no-python");
  add_rank_words(facts, argv);
  return ok_status();
}

/// The file has to be in the form that this mpirun reads.
Status check_hostfile_form(const std::string& path, const std::vector<HostLine>& hosts, Engine engine) {
  for (const HostLine& host : hosts) {
    const std::string where = path + ":" + std::to_string(host.line) + ": ";
    if (engine == Engine::kOpenMpi && host.hydra_form)
      return usage(where + "'" + host.host + ":N' is MPICH's form, but mpirun is Open MPI's", "write '" + host.host + " slots=N'");
    if (engine != Engine::kOpenMpi && host.ipv6)
      return usage(where + "the hostfile of " + engine_name(engine) + " cannot hold IPv6 addresses",
                   "write a name instead of '" + host.host + "'");
    if (engine != Engine::kOpenMpi && host.open_mpi_form)
      return usage(where + "'slots=' is Open MPI's form, but this is " + engine_name(engine), "write '" + host.host + ":N'");
  }
  return ok_status();
}

bool is_this_host(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

Status mpirun_command(const Options& options, const JobFacts& facts, Job& job) {
  const DistributedOptions& wanted = options.distributed;
  if (facts.mpirun.empty()) return Error{kExitNotFound, "mpirun is not in PATH", kMpiHint};
  const auto kind = mpirun_kind(facts.mpirun_version);
  if (!kind)
    return Error{kExitFailure,
                 "'" + facts.mpirun + " --version' names neither Open MPI nor MPICH nor Intel MPI: '" +
                     facts.mpirun_version.substr(0, facts.mpirun_version.find('\n')) + "'",
                 kMpiHint};
  job.engine = *kind;
  if (!facts.hosts.empty()) {
    Status form = check_hostfile_form(wanted.hostfile, facts.hosts, job.engine);
    if (!form.ok()) return form;
  }
  const int listed = facts.hosts.empty() ? 1 : static_cast<int>(facts.hosts.size());
  const int hosts = wanted.nnodes.empty() ? listed : plain_count(wanted.nnodes).value_or(listed + 1);
  if (hosts > listed)
    return usage("--nnodes " + wanted.nnodes + ", but " +
                     (wanted.hostfile.empty() ? "no --hostfile names them"
                                              : "'" + wanted.hostfile + "' names " + count_text(facts.hosts.size(), "host")),
                 "one host a line");
  job.hosts = std::to_string(hosts);
  const bool one_host = hosts == 1;
  std::string address = wanted.master_addr;
  if (address.empty()) {
    address = one_host && (facts.hosts.empty() || is_this_host(facts.hosts.front().host)) ? "127.0.0.1" : facts.hosts.front().host;
    if (!one_host && is_this_host(address))
      return usage(wanted.hostfile + ":" + std::to_string(facts.hosts.front().line) + ": '" + address + "' is another machine on each host",
                   "write its name, or give --master-addr");
    job.reasons.push_back(
        {"engine", "MASTER_ADDR=" + address, one_host ? "one host" : "the first host of '" + wanted.hostfile + "', where rank 0 runs"});
  }
  const std::string port = std::to_string(port_or_default(options, facts, one_host));
  const auto ranks = all_ranks(hosts, job.ranks_per_host);
  if (!ranks.ok()) return ranks.error();
  const std::string each = std::to_string(job.ranks_per_host);

  std::vector<std::string>& argv = job.process.argv;
  job.process.executable = facts.mpirun;
  argv = {facts.mpirun};
  if (job.engine == Engine::kOpenMpi) {
    const bool allowed =
        !value_of(facts.env, "OMPI_ALLOW_RUN_AS_ROOT").empty() && !value_of(facts.env, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM").empty();
    if (facts.root && !allowed && wanted.extra_mpi_params.find("allow-run-as-root") == std::string::npos)
      return usage("Open MPI's mpirun does not start programs for root", "be another user, or give --extra-mpi-params --allow-run-as-root");
    if (!wanted.hostfile.empty()) argv.insert(argv.end(), {"--hostfile", wanted.hostfile});
    argv.insert(argv.end(), {"-np", *ranks, "--map-by", "ppr:" + each + ":node:OVERSUBSCRIBE", "--bind-to", "none"});
    if (!wanted.hostfile.empty())
      for (const auto& [name, value] : facts.env)
        if (std::any_of(kPassedOn.begin(), kPassedOn.end(), [&name = name](std::string_view head) { return name.starts_with(head); }))
          argv.insert(argv.end(), {"-x", name});
    argv.insert(argv.end(), {"-x", "MASTER_ADDR=" + address, "-x", "MASTER_PORT=" + port});
  } else {
    if (!wanted.hostfile.empty()) argv.insert(argv.end(), {"-f", wanted.hostfile});
    argv.insert(argv.end(), {"-n", *ranks, "-ppn", each});
    if (job.engine == Engine::kIntelMpi) {
      argv.insert(argv.end(), {"-genv", "I_MPI_PIN", "0"});
    } else {
      argv.insert(argv.end(), {"-bind-to", "none"});
    }
    argv.insert(argv.end(), {"-genv", "MASTER_ADDR", address, "-genv", "MASTER_PORT", port});
  }
  job.reasons.push_back({"engine", "not bound", "the engine binds nothing: each rank takes its own slice of its host"});
  if (Status extra = add_extra(options, argv); !extra.ok()) return extra;
  add_rank_words(facts, argv);
  return ok_status();
}

Status srun_command(const Options& options, const JobFacts& facts, Job& job) {
  const DistributedOptions& wanted = options.distributed;
  job.engine = Engine::kSlurm;
  if (!in_allocation(facts))
    return usage("--engine srun, but this is no Slurm allocation (SLURM_JOB_ID is not set)",
                 "start ipexrun under salloc or in the script of an sbatch job");
  if (facts.srun.empty())
    return Error{kExitNotFound, "srun is not in PATH", "install Slurm's client (apt: slurm-client), or give --engine torchrun"};
  const std::string allocated =
      value_of(facts.env, "SLURM_JOB_NUM_NODES").empty() ? value_of(facts.env, "SLURM_NNODES") : value_of(facts.env, "SLURM_JOB_NUM_NODES");
  job.hosts = !wanted.nnodes.empty() ? wanted.nnodes : allocated.empty() ? "1" : allocated;
  const auto hosts = plain_count(job.hosts);
  const auto most = plain_count(allocated);
  if (!hosts) return usage("the number of nodes of the Slurm allocation is not known: '" + job.hosts + "'", "give --nnodes");
  if (most && *hosts > *most)
    return usage("--nnodes " + job.hosts + ", but the Slurm allocation has " + count_text(static_cast<std::size_t>(*most), "node"),
                 "ask salloc or sbatch for more");
  const auto ranks = all_ranks(*hosts, job.ranks_per_host);
  if (!ranks.ok()) return ranks.error();
  std::vector<std::string>& argv = job.process.argv;
  job.process.executable = facts.srun;
  argv = {facts.srun,        "--nodes=" + job.hosts, "--ntasks=" + *ranks, "--ntasks-per-node=" + std::to_string(job.ranks_per_host),
          "--cpu-bind=none", "--kill-on-bad-exit=1"};
  if (!wanted.master_addr.empty()) job.process.env["MASTER_ADDR"] = wanted.master_addr;
  if (wanted.master_port) job.process.env["MASTER_PORT"] = std::to_string(*wanted.master_port);
  job.reasons.push_back({"engine", "not bound", "srun binds nothing (--cpu-bind=none): each rank takes its own slice of its host"});
  if (Status extra = add_extra(options, argv); !extra.ok()) return extra;
  add_rank_words(facts, argv);
  return ok_status();
}

}  // namespace

Result<std::vector<std::string>> split_words(const std::string& option, const std::string& text) {
  std::vector<std::string> out;
  std::string word;
  char quote = 0;
  bool begun = false;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      begun = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (begun) out.push_back(word);
      word.clear();
      begun = false;
    } else {
      word += c;
      begun = true;
    }
  }
  if (quote != 0) return usage("--" + option + ": a quote without its end in '" + text + "'");
  if (begun) out.push_back(word);
  return out;
}

std::optional<Engine> mpirun_kind(const std::string& version_text) {
  const auto says = [&](const char* words) { return version_text.find(words) != std::string::npos; };
  if (says("Intel(R) MPI")) return Engine::kIntelMpi;
  if (says("Open MPI") || says("OpenRTE") || says("PRRTE") || says("prterun")) return Engine::kOpenMpi;
  if (says("HYDRA") || says("MPICH")) return Engine::kHydra;
  return std::nullopt;
}

Result<EngineChoice> choose_engine(const Options& options, const JobFacts& facts, std::vector<Reason>& reasons) {
  const DistributedOptions& wanted = options.distributed;
  const std::string torchruns = torchrun_option(wanted);
  const bool for_mpirun = !wanted.hostfile.empty();
  EngineChoice out = EngineChoice::kTorchrun;
  if (wanted.engine == "torchrun") {
    reasons.push_back({"engine", "torchrun", "--engine"});
  } else if (wanted.engine == "mpirun") {
    out = EngineChoice::kMpirun;
    reasons.push_back({"engine", "mpirun", "--engine"});
  } else if (wanted.engine == "srun") {
    out = EngineChoice::kSrun;
    reasons.push_back({"engine", "srun", "--engine"});
  } else if (for_mpirun) {
    out = EngineChoice::kMpirun;
    reasons.push_back({"engine", "mpirun", "--hostfile is given"});
  } else if (in_allocation(facts) && !facts.srun.empty() && torchruns.empty() && options.max_restarts == 0) {
    out = EngineChoice::kSrun;
    reasons.push_back({"engine", "srun", "this is a Slurm allocation (SLURM_JOB_ID)"});
  } else if (!wanted.extra_mpi_params.empty()) {
    out = EngineChoice::kMpirun;
    reasons.push_back({"engine", "mpirun", "--extra-mpi-params is given"});
  } else {
    reasons.push_back({"engine", "torchrun", "the default: it comes with torch"});
  }
  const std::string name = out == EngineChoice::kTorchrun ? "torchrun" : out == EngineChoice::kMpirun ? "mpirun" : "srun";
  if (for_mpirun && out != EngineChoice::kMpirun)
    return usage("--hostfile is for mpirun, but the engine is " + name, "leave one of the two out");
  if (out == EngineChoice::kTorchrun && !wanted.extra_mpi_params.empty())
    return usage("--extra-mpi-params is for mpirun and srun, but the engine is torchrun", "leave one of the two out");
  if (out != EngineChoice::kTorchrun && !torchruns.empty())
    return usage(torchruns + " is for torchrun, but the engine is " + name, "leave one of the two out");
  if (out != EngineChoice::kTorchrun && options.max_restarts > 0)
    return usage("--max-restarts: " + name + " starts no rank again", "--engine torchrun does");
  return out;
}

void give_threads(const LaunchPlan& slices, const std::map<std::string, std::string>& env, Job& job) {
  if (job.engine != Engine::kTorchrun || slices.instances.empty() || !value_of(env, "OMP_NUM_THREADS").empty()) return;
  job.process.env["OMP_NUM_THREADS"] = std::to_string(slices.instances.front().threads);
}

Result<Job> make_job(const Options& options, const JobFacts& facts) {
  if (Status good = check_options(options); !good.ok()) return good.error();
  Job job;
  const Result<EngineChoice> choice = choose_engine(options, facts, job.reasons);
  if (!choice.ok()) return choice.error();
  job.ranks_per_host = ranks_per_host(options, facts, *choice, job.reasons);
  Status done = *choice == EngineChoice::kTorchrun ? torchrun_command(options, facts, job)
                : *choice == EngineChoice::kMpirun ? mpirun_command(options, facts, job)
                                                   : srun_command(options, facts, job);
  if (!done.ok()) return done.error();
  if (*choice == EngineChoice::kMpirun)
    job.reasons.push_back({"engine", engine_name(job.engine), "as '" + facts.mpirun + " --version' says"});
  return job;
}

Status check_node_rank(const DistributedOptions& wanted) {
  const std::string hosts = wanted.nnodes.empty() ? "1" : wanted.nnodes;
  const int most = parse_number<int>(hosts.substr(hosts.find(':') == std::string::npos ? 0 : hosts.find(':') + 1)).value_or(1);
  if (!wanted.node_rank || *wanted.node_rank < most) return ok_status();
  return usage(
      "--node-rank " + std::to_string(*wanted.node_rank) + ", but the job has " + count_text(static_cast<std::size_t>(most), "host"),
      most == 1 ? "--nnodes says how many there are" : "they are numbered from 0 to " + std::to_string(most - 1));
}

}  // namespace ipexrun::launcher
