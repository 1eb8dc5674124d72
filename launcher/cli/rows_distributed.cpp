// Ranks on one or many hosts: what engine starts them and what holds for each (docs/distributed.md).
#include <algorithm>

#include "launcher/cli/cli.h"
#include "launcher/cli/rows.h"

namespace ipexrun::launcher {

using namespace setters;  // NOLINT(google-build-using-namespace): the row builders

namespace {

constexpr int kMostHosts = 1 << 20;
constexpr int kMostRanksOfAHost = 65536;
constexpr int kMostPort = 65535;

bool is_port(const std::string& text, int least) {
  const auto port = parse_number<int>(text);
  return port && *port >= least && *port <= kMostPort;
}

/// A name or an address: no blank, and nothing that could be taken for an option.
bool is_address(const std::string& text) {
  return !text.empty() && text.front() != '-' && std::none_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isspace(c) != 0 || std::iscntrl(c) != 0 || c == '/' || c == ',';
  });
}

/// HOST:PORT, [ADDRESS]:PORT or HOST alone (torchrun's default port).
bool is_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (text.starts_with("[")) {
    const std::size_t close = text.find(']');
    if (close == std::string::npos || close == 1) return false;
    return close + 1 == text.size() || (text[close + 1] == ':' && is_port(text.substr(close + 2), 0));
  }
  if (colon == std::string::npos) return is_address(text);
  const std::string host = text.substr(0, colon);
  return host.find(':') == std::string::npos && is_address(host) && is_port(text.substr(colon + 1), 0);
}

bool is_hosts(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto least = parse_number<int>(text.substr(0, colon));
  const auto most = colon == std::string::npos ? least : parse_number<int>(text.substr(colon + 1));
  return least && most && *least >= 1 && *most >= *least && *most <= kMostHosts;
}

template <typename Access, typename Check>
OptionRow checked(const std::string& name, Access access, const std::string& metavar, std::string help, Check good,
                  const std::string& wanted) {
  OptionRow out = word(name, OptionGroup::kRanks, access, metavar, std::move(help));
  out.set = [access, name, good, wanted](Options& options, const std::string& value) -> Status {
    if (!good(value)) return bad_value(name, wanted, value);
    access(options) = value;
    return ok_status();
  };
  return out;
}

}  // namespace

void add_distributed_rows(std::vector<OptionRow>& rows) {
  constexpr auto group = OptionGroup::kRanks;
  rows.push_back(checked(
      "nnodes", [](auto& o) -> auto& { return o.distributed.nnodes; }, "N|MIN:MAX",
      "hosts of the job (default: those of --hostfile or of the Slurm allocation, else 1)", is_hosts,
      "a number of hosts, or MIN:MAX for torchrun"));
  OptionRow ranks =
      with_aliases(row("nprocs-per-node", group, "N", "ranks of each host, each on its own slice of the host (0, auto: one a NUMA node)"),
                   {"nproc-per-node"});
  ranks.set = [](Options& options, const std::string& value) -> Status {
    const auto parsed = value == "auto" ? std::optional<int>(0) : parse_number<int>(value);
    if (!parsed || *parsed < 0 || *parsed > kMostRanksOfAHost)
      return bad_value("nprocs-per-node", "a whole number from 0 to " + std::to_string(kMostRanksOfAHost) + ", or auto", value);
    options.distributed.nprocs_per_node = *parsed;
    return ok_status();
  };
  ranks.get = [](const Options& options) -> std::vector<std::string> {
    if (!options.distributed.nprocs_per_node) return {};
    return {std::to_string(*options.distributed.nprocs_per_node)};
  };
  rows.push_back(std::move(ranks));
  rows.push_back(word("engine", group, [](auto& o) -> auto& { return o.distributed.engine; }, "WORD",
                      "what starts the ranks; auto: mpirun with --hostfile, srun in a Slurm allocation, else torchrun",
                      {"auto", "torchrun", "mpirun", "srun"}));
  rows.push_back(word(
      "hostfile", group, [](auto& o) -> auto& { return o.distributed.hostfile; }, "FILE", "the hosts, one a line, for mpirun"));
  rows.push_back(checked(
      "rdzv-endpoint", [](auto& o) -> auto& { return o.distributed.rdzv_endpoint; }, "HOST:PORT",
      "where torchrun's hosts meet; the same on every host", is_endpoint, "HOST:PORT with a port from 0 to 65535"));
  rows.push_back(word(
      "rdzv-id", group, [](auto& o) -> auto& { return o.distributed.rdzv_id; }, "ID", "name of the job at that place (torchrun)"));
  rows.push_back(word(
      "rdzv-backend", group, [](auto& o) -> auto& { return o.distributed.rdzv_backend; }, "NAME",
      "how torchrun's hosts meet: c10d (default), static, etcd-v2"));
  rows.push_back(number<int>(
      "node-rank", group, [](auto& o) -> auto& { return o.distributed.node_rank; }, 0, kMostHosts,
      "number of this host, with --master-addr (torchrun)"));
  rows.push_back(checked(
      "local-addr", [](auto& o) -> auto& { return o.distributed.local_addr; }, "ADDRESS", "this host as the others reach it (torchrun)",
      is_address, "a host name or address"));
  rows.push_back(checked(
      "master-addr", [](auto& o) -> auto& { return o.distributed.master_addr; }, "ADDRESS", "host of rank 0 (default: the first host)",
      is_address, "a host name or address"));
  rows.push_back(number<int>(
      "master-port", group, [](auto& o) -> auto& { return o.distributed.master_port; }, 1, kMostPort,
      "its port (default: a free one on one host, else 29500)", "PORT"));
  rows.push_back(with_aliases(word(
                                  "extra-mpi-params", group, [](auto& o) -> auto& { return o.distributed.extra_mpi_params; }, "TEXT",
                                  "further words for mpirun or srun, separated by blanks"),
                              {"more-mpi-params"}));
  rows.push_back(number<int>(
      "ccl-worker-count", group, [](auto& o) -> auto& { return o.distributed.ccl_worker_count; }, 0, kMostRanksOfAHost,
      "CPUs of each rank that its OpenMP threads leave to communication threads"));
  rows.push_back(with_aliases(flag(
                                  "logical-cores-for-ccl", group, [](auto& o) -> auto& { return o.distributed.logical_cores_for_ccl; },
                                  "put oneCCL's threads on the second hardware threads of the rank's cores"),
                              {"logical-core-for-ccl"}));
  rows.push_back(flag(
      "no-rank-slice", group, [](auto& o) -> auto& { return o.distributed.rank_slice; },
      "started as a rank by torchrun, mpirun or srun: use the whole host all the same", false));
  rows.push_back(not_in_config(flag(
      "as-rank", group, [](auto& o) -> auto& { return o.distributed.as_rank; },
      "be the rank that the environment names (the engine is told to start ipexrun so)")));
  const auto implied = [](const char* name, const char* text) {
    return compatible(
        name, "",
        [](Options& options, const std::string&) -> Status {
          if (options.distributed.nnodes.empty()) options.distributed.nnodes = "1";
          return ok_status();
        },
        text);
  };
  rows.push_back(implied("distributed", "as --nnodes 1 when --nnodes is not given"));
  rows.push_back(implied("standalone", "likewise"));
}

std::vector<std::string> rank_arguments(const Options& options) {
  // The job's own settings end with the engine; what is left belongs to each rank.
  const std::vector<std::string> of_job = {"max-restarts", "timeout"};
  const std::vector<std::string> of_rank = {"ccl-worker-count", "logical-cores-for-ccl"};
  const auto among = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  std::vector<std::string> out = {"--as-rank"};
  if (!options.config.empty()) out.push_back("--config=" + options.config);
  for (const OptionRow& row : option_table()) {
    if (!row.in_config || among(of_job, row.name) || (row.group == OptionGroup::kRanks && !among(of_rank, row.name))) continue;
    for (const std::string& value : row.values_to_keep(options))
      out.push_back(row.is_flag() ? "--" + row.name : "--" + row.name + "=" + value);
  }
  if (options.program_kind == ProgramKind::kModule) {
    out.insert(out.end(), {"-m", options.program});
  } else {
    if (options.program_kind == ProgramKind::kExecutable && options.program.ends_with(".py")) out.emplace_back("--no-python");
    if (options.program.starts_with("-")) out.emplace_back("--");
    out.push_back(options.program);
  }
  out.insert(out.end(), options.args.begin(), options.args.end());
  return out;
}

}  // namespace ipexrun::launcher
