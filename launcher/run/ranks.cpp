#include "launcher/run/ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "launcher/distributed/hostfile.h"
#include "launcher/plan/environment.h"
#include "launcher/run/posix.h"
#include "launcher/run/probe.h"
#include "launcher/run/program.h"
#include "launcher/run/torch_probe.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kVersionTimeoutMs = 10000;
constexpr std::uintmax_t kHostfileMaxBytes = 1 << 20;
constexpr const char* kFailureHead = "failure-";

Result<std::vector<HostLine>> read_hostfile(const std::string& path) {
  std::error_code failure;
  const auto kind = fs::status(path, failure);
  if (!fs::exists(kind)) return Error{kExitUsage, "cannot read hostfile '" + path + "': " + errno_text(ENOENT), "one host a line"};
  if (fs::is_directory(kind)) return Error{kExitUsage, "hostfile '" + path + "' is a directory", "name the file in it"};
  // A pipe, as <(...) of a shell is one, would be empty for mpirun, which reads it again.
  if (!fs::is_regular_file(kind)) return Error{kExitUsage, "hostfile '" + path + "' is no regular file", "mpirun reads it again"};
  const auto size = fs::file_size(path, failure);
  if (!failure && size > kHostfileMaxBytes)
    return Error{kExitUsage, "hostfile '" + path + "' has more than 1 MiB", "is it the right file?"};
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in && in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  if (in.bad() || !in.is_open()) return Error{kExitUsage, "cannot read hostfile '" + path + "'", "is it readable by this user?"};
  return parse_hostfile(path, text.str());
}

std::string found_in_path(const char* name, const std::string& search_path) {
  auto path = resolve_program(name, search_path);
  return path.ok() ? *path : "";
}

/// A port that nobody listens on now; the engine takes it a moment later. 0 = none to be had.
int find_free_port() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  if (!socket.open() || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return 0;
  return ntohs(address.sin_port);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  return {::getaddrinfo(host.c_str(), nullptr, &hints, &found) == 0 ? found : nullptr, &::freeaddrinfo};
}

/// Without the port: "10.0.0.1", "::1"; "" for a kind of address that has no such bytes.
std::string address_bytes(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return {reinterpret_cast<const char*>(&v4), sizeof v4};
  }
  if (address->sa_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return {reinterpret_cast<const char*>(&v6), sizeof v6};
}

bool has_address(const Addresses& list, const std::string& bytes) {
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next)
    if (address_bytes(one->ai_addr) == bytes) return true;
  return false;
}

/// Whether torchrun has to be told that its meeting place is this host: it looks the host's own name up and compares, which fails where
/// the name leads to 127.0.0.1 (containers, network namespaces). Here the interfaces are asked.
bool is_meeting_host(const std::string& endpoint) {
  if (endpoint.empty()) return false;
  const std::size_t close = endpoint.find(']');
  const std::string host =
      endpoint.front() == '[' && close != std::string::npos ? endpoint.substr(1, close - 1) : endpoint.substr(0, endpoint.rfind(':'));
  std::array<char, 256> own_name{};
  if (host == "localhost" || ::gethostname(own_name.data(), own_name.size() - 1) != 0 || host == own_name.data()) return false;
  const Addresses wanted = look_up(host);
  const Addresses known = look_up(own_name.data());
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(raw, &::freeifaddrs);
  for (const ifaddrs* one = interfaces.get(); one != nullptr; one = one->ifa_next) {
    const std::string bytes = address_bytes(one->ifa_addr);
    if ((one->ifa_flags & IFF_LOOPBACK) == 0 && !bytes.empty() && has_address(wanted, bytes) && !has_address(known, bytes)) return true;
  }
  return false;
}

/// The interpreter of the program: torchrun has to be the one of its torch.
std::string python_of(const Options& options, const PlanContext& context) {
  if (options.program_kind != ProgramKind::kExecutable) return context.python;
  return fs::path(options.program).filename().string().starts_with("python") ? context.executable : context.python;
}

int nodes_with_cores(const Machine& machine) {
  std::set<int> nodes;
  for (const Core& core : machine.cores) nodes.insert(core.node);
  return std::max(1, static_cast<int>(nodes.size()));
}

/// The parent of process `pid`; 0 = it is gone, or not to be seen.
int parent_of(int pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; in >> word;) {
    int parent = 0;
    if (word == "PPid:" && in >> parent) return parent;
  }
  return 0;
}

/// Whether the ipexrun that made `folder` is gone: it holds a lock on it for as long as it lives.
bool abandoned(const std::string& folder) {
  const Fd open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!open.open()) return errno == ENOENT;
  return ::flock(open.get(), LOCK_EX | LOCK_NB) == 0;
}

/// The folder of the ipexrun that started the engine; "" on other hosts, where it does not exist.
std::string rank_dir() {
  const std::string folder = env::get(env::Id::kRankDir).value_or("");
  struct stat info {};
  const bool ours = !folder.empty() && folder.front() == '/' && ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                    info.st_uid == ::geteuid();
  return ours ? folder : "";
}

}  // namespace

Result<JobFacts> look_up_engines(const Options& options, const Machine& machine, const PlanContext& context,
                                 std::vector<std::string> rank_words) {
  JobFacts facts;
  facts.env = context.env;
  facts.rank_words = std::move(rank_words);
  facts.numa_nodes = nodes_with_cores(machine);
  facts.root = ::geteuid() == 0;
  facts.free_port = find_free_port();
  std::error_code failure;
  facts.self = fs::read_symlink("/proc/self/exe", failure).string();
  if (failure)
    return Error{kExitFailure, "/proc/self/exe cannot be read: " + failure.message(), "an engine has to be told where ipexrun is"};
  if (!options.distributed.hostfile.empty()) {
    auto hosts = read_hostfile(options.distributed.hostfile);
    if (!hosts.ok()) return hosts.error();
    facts.hosts = std::move(*hosts);
  }
  const std::string search_path = value_of(context.env, "PATH");
  facts.srun = found_in_path("srun", search_path);

  std::vector<Reason> ignored;
  const auto choice = choose_engine(options, facts, ignored);
  if (!choice.ok()) return choice.error();
  if (*choice == EngineChoice::kTorchrun) {
    if (Status rank = check_node_rank(options.distributed); !rank.ok()) return rank.error();
    facts.python = python_of(options, context);
    facts.is_meeting_host = is_meeting_host(options.distributed.rdzv_endpoint);
    if (facts.python.empty() || machine.synthetic) return facts;
    const PythonFacts torch = ask_python(facts.python);
    if (!torch.ok)
      return Error{kExitFailure, "'" + facts.python + "' does not answer: " + torch.problem, "torchrun runs in the program's Python"};
    if (torch.torch_root.empty())
      return Error{kExitNotFound, "'" + facts.python + "' has no torch, and so no torchrun",
                   "activate the environment that has it, or give --engine mpirun"};
  }
  if (*choice == EngineChoice::kMpirun) {
    for (const char* name : {"mpirun", "mpiexec", "mpiexec.hydra"})
      if (facts.mpirun.empty()) facts.mpirun = found_in_path(name, search_path);
    if (!facts.mpirun.empty()) {
      const ProbeResult version = run_probe({facts.mpirun, "--version"}, {}, kVersionTimeoutMs);
      facts.mpirun_version = version.output.empty() ? version.errors : version.output;
    }
  }
  return facts;
}

Result<std::optional<RankPlace>> find_place(const Options& options, const PlanContext& context) {
  const RankSearch search = find_rank(context.env);
  if (!search.rank) {
    if (options.distributed.as_rank)
      return Error{kExitUsage, "--as-rank: " + (search.problem.empty() ? "the environment names no rank" : search.problem),
                   "an engine (torchrun, mpirun, srun) sets LOCAL_RANK and the like"};
    if (!search.problem.empty()) log::warn(search.problem + ": planned for the whole host");
    return std::optional<RankPlace>();
  }
  EngineProcess engine;
  engine.found = true;  // for a machine that is not there: an engine that binds nothing
  if (options.topology.empty()) engine = read_engine_process(options.sysroot, search.rank->marker);
  return std::optional<RankPlace>(decide_place(options.distributed, *search.rank, context.env, engine));
}

void report_failure(const Rank& rank, const RunOutcome& outcome) {
  const std::string folder = rank_dir();
  if (folder.empty() || outcome.exit_code == 0 || outcome.stop_signal != 0 || outcome.instances.empty()) return;
  const std::string target = folder + "/" + kFailureHead + std::to_string(rank.restarts);
  const std::string draft = target + "." + std::to_string(::getpid());
  {
    std::ofstream out(draft, std::ios::trunc);
    out << rank.rank << ' ' << outcome.exit_code << ' ' << outcome.instances.front().signal << '\n';
  }
  (void)!::link(draft.c_str(), target.c_str());  // fails when an earlier failure is there: that one counts
  ::unlink(draft.c_str());
}

std::optional<RankFailure> first_failure(const std::string& folder) {
  std::optional<RankFailure> out;
  int last = -1;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kFailureHead)) continue;
    int attempt = 0;
    const char* begin = name.data() + std::strlen(kFailureHead);
    const auto [stop, wrong] = std::from_chars(begin, name.data() + name.size(), attempt);
    RankFailure seen;
    std::ifstream in(it->path());
    if (wrong != std::errc() || stop != name.data() + name.size() || attempt <= last || !(in >> seen.rank >> seen.exit_code >> seen.signal))
      continue;
    last = attempt;
    out = seen;
  }
  return out;
}

std::function<bool()> engine_watch() {
  return [engine = ::getppid(), child = ::getpid(), folder = rank_dir()] {
    // After split_off_warden() the engine's child is the warden, and this process its child.
    const int parent = child == ::getpid() ? ::getppid() : parent_of(child);
    return parent == engine && (folder.empty() || !abandoned(folder));
  };
}

}  // namespace ipexrun::launcher
