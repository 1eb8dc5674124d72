#include "launcher/distributed/rank.h"

#include "launcher/plan/environment.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

using Environment = std::map<std::string, std::string>;

constexpr const char* kDefaultPort = "29500";  // what torch and IPEX's launcher take
constexpr long kSlurmFirstPort = 20000;
constexpr long kSlurmPorts = 10000;
constexpr long kMostSlurmNumber = 0xffffffff;  // Slurm counts jobs and steps in 32 bits

std::optional<long> number_up_to(long most, const std::string& text) {
  const auto value = parse_number<long>(text);
  return value && *value >= 0 && *value <= most ? value : std::nullopt;
}

std::optional<int> number(const std::string& text) {
  const auto value = number_up_to(kMostRanks, text);
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

/// The names under which one engine says what a rank must know; nullptr = it does not say.
struct Names {
  Engine engine;
  const char* local_rank;
  const char* local_size;
  const char* rank;
  const char* world_size;
};

constexpr Names kTorchrunNames{Engine::kTorchrun, "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK", "WORLD_SIZE"};
constexpr Names kOpenMpiNames{Engine::kOpenMpi, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK",
                              "OMPI_COMM_WORLD_SIZE"};
constexpr Names kHydraNames{Engine::kHydra, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_RANK", "PMI_SIZE"};

std::string shown(const char* name, const std::string& value) { return std::string(name) + "=" + value; }

/// Fills what the four variables say. False when the pair that matters is absent or makes no sense (then with a problem).
bool read(const Names& names, const Environment& environment, Rank* out, std::string* problem) {
  const std::string local_rank = value_of(environment, names.local_rank);
  const std::string local_size = value_of(environment, names.local_size);
  if (local_rank.empty() || local_size.empty()) return false;
  const auto index = number(local_rank);
  const auto count = number(local_size);
  if (!index || !count || *index >= *count) {
    *problem = shown(names.local_rank, local_rank) + " and " + shown(names.local_size, local_size) + " name no rank";
    return false;
  }
  out->engine = names.engine;
  out->marker = names.local_rank;
  out->local_rank = *index;
  out->local_size = *count;
  // Where the numbers of the whole job are missing or wrong, this host is the job.
  const auto rank = number(value_of(environment, names.rank));
  const auto world = number(value_of(environment, names.world_size));
  const bool whole = rank && world && *rank < *world && *world >= *count;
  out->rank = whole ? *rank : *index;
  out->world_size = whole ? *world : *count;
  return true;
}

/// A step's task. The script of a batch job has most of these variables too, but it is no task of a step and owns its whole host.
bool read_slurm(const Environment& environment, Rank* out, std::string* problem) {
  const std::string local_rank = value_of(environment, "SLURM_LOCALID");
  const bool in_step = !value_of(environment, "SLURM_STEP_ID").empty() || !value_of(environment, "SLURM_STEPID").empty();
  if (local_rank.empty() || !in_step) return false;
  const std::string per_step = value_of(environment, "SLURM_STEP_TASKS_PER_NODE");
  const std::string per_node = value_of(environment, "SLURM_NTASKS_PER_NODE");
  const int node = number(value_of(environment, "SLURM_NODEID")).value_or(0);
  const auto count = per_step.empty() ? number(per_node) : tasks_on_node(per_step, node);
  const auto index = number(local_rank);
  if (!index || !count || *index >= *count) {
    const char* name = per_step.empty() ? "SLURM_NTASKS_PER_NODE" : "SLURM_STEP_TASKS_PER_NODE";
    *problem = shown("SLURM_LOCALID", local_rank) + " and " + shown(name, per_step.empty() ? per_node : per_step) + " name no rank";
    return false;
  }
  out->engine = Engine::kSlurm;
  out->marker = "SLURM_LOCALID";
  out->local_rank = *index;
  out->local_size = *count;
  const auto rank = number(value_of(environment, "SLURM_PROCID"));
  const std::string step_tasks = value_of(environment, "SLURM_STEP_NUM_TASKS");
  const auto world = number(step_tasks.empty() ? value_of(environment, "SLURM_NTASKS") : step_tasks);
  const bool whole = rank && world && *rank < *world && *world >= *count;
  out->rank = whole ? *rank : *index;
  out->world_size = whole ? *world : *count;
  const std::string bound = value_of(environment, "SLURM_CPU_BIND_TYPE");
  out->unbound_by_slurm = bound.starts_with("none");
  out->bound_by_slurm = !bound.empty() && !out->unbound_by_slurm;
  return true;
}

}  // namespace

const char* engine_name(Engine engine) {
  switch (engine) {
    case Engine::kTorchrun:
      return "torchrun";
    case Engine::kOpenMpi:
      return "mpirun (Open MPI)";
    case Engine::kHydra:
      return "mpirun (MPICH)";
    case Engine::kIntelMpi:
      return "mpirun (Intel MPI)";
    case Engine::kSlurm:
      return "srun";
  }
  return "";
}

RankSearch find_rank(const Environment& environment) {
  RankSearch out;
  Rank rank;
  for (const Names& names : {kTorchrunNames, kOpenMpiNames, kHydraNames}) {
    if (!read(names, environment, &rank, &out.problem)) continue;
    if (names.engine == Engine::kTorchrun) rank.restarts = number(value_of(environment, "TORCHELASTIC_RESTART_COUNT")).value_or(0);
    if (names.engine == Engine::kHydra && !value_of(environment, "I_MPI_HYDRA_INFO").empty()) rank.engine = Engine::kIntelMpi;
    out.rank = rank;
    break;
  }
  if (!out.rank && read_slurm(environment, &rank, &out.problem)) out.rank = rank;
  if (out.rank) out.problem.clear();
  return out;
}

Meeting meeting_of(const Rank& rank, const Environment& environment) {
  Meeting out;
  const std::string hosts = value_of(environment, "SLURM_STEP_NODELIST");
  if (rank.world_size == rank.local_size) {
    out.address = "127.0.0.1";
    out.address_from = "all ranks are on this host";
  } else if (rank.engine == Engine::kSlurm && !first_host(hosts).empty()) {
    out.address = first_host(hosts);
    out.address_from = "the first host of SLURM_STEP_NODELIST, where rank 0 runs";
  }
  const auto job = number_up_to(kMostSlurmNumber, value_of(environment, "SLURM_JOB_ID"));
  const auto step = number_up_to(kMostSlurmNumber, value_of(environment, "SLURM_STEP_ID"));
  if (rank.engine == Engine::kSlurm && job) {
    // Every rank must find the same port, and two steps on one host different ones.
    out.port = std::to_string(kSlurmFirstPort + (16 * *job + step.value_or(0)) % kSlurmPorts);
    out.port_from = "made from the numbers of the Slurm job and step";
  } else {
    out.port = kDefaultPort;
    out.port_from = "torch's default";
  }
  return out;
}

std::optional<int> tasks_on_node(const std::string& text, int node) {
  int first = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    at = end + 1;
    const std::size_t open = item.find("(x");
    const auto tasks = number(item.substr(0, open));
    auto nodes = std::optional<int>(1);
    if (open != std::string::npos) {
      if (item.back() != ')') return std::nullopt;
      nodes = number(item.substr(open + 2, item.size() - open - 3));
    }
    if (!tasks || !nodes) return std::nullopt;
    if (node < first + *nodes) return tasks;
    first += *nodes;
  }
  return std::nullopt;
}

std::string first_host(const std::string& node_list) {
  const std::size_t open = node_list.find('[');
  const std::size_t comma = node_list.find(',');
  if (open == std::string::npos || comma < open) return node_list.substr(0, comma);
  const std::size_t close = node_list.find(']', open);
  if (close == std::string::npos) return "";
  const std::string inside = node_list.substr(open + 1, close - open - 1);
  const std::string first = inside.substr(0, inside.find_first_of(",-"));
  if (first.empty()) return "";
  const std::string rest = node_list.substr(close + 1);
  // A second pair of brackets ("r[1-2]n[1-4]") counts on within the first.
  if (rest.starts_with("[") || (rest.find('[') != std::string::npos && rest.find('[') < rest.find(',')))
    return node_list.substr(0, open) + first + first_host(rest);
  return node_list.substr(0, open) + first + rest.substr(0, rest.find(','));
}

}  // namespace ipexrun::launcher
