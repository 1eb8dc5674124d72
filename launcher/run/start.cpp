#include "launcher/run/start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "configs/contract/event_ring.h"

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kBitsAWord = 8 * sizeof(unsigned long);
constexpr int kPipeBytes = 1 << 20;  // what an unprivileged user may ask for by default

std::vector<unsigned long> bit_mask(const std::vector<int>& numbers) {
  std::vector<unsigned long> mask;
  for (const int number : numbers) {
    const auto n = static_cast<std::size_t>(number);
    if (n / kBitsAWord >= mask.size()) mask.resize(n / kBitsAWord + 1);
    mask[n / kBitsAWord] |= 1ul << (n % kBitsAWord);
  }
  return mask;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

template <typename T>
T* map_shared(int fd, std::size_t bytes) {
  void* map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  return map == MAP_FAILED ? nullptr : static_cast<T*>(map);
}

Error exec_error(const std::string& executable, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return Error{kExitNotFound, "cannot start '" + executable + "': " + errno_text(error),
                 "the file or the interpreter in its first line is missing"};
  }
  if (error == ENOEXEC)
    return Error{kExitNotExecutable, "cannot start '" + executable + "': not a program", "a script needs a first line like #!/bin/sh"};
  return Error{kExitNotExecutable, "cannot start '" + executable + "': " + errno_text(error), ""};
}

/// Writing to a mapped file on a full file system ends a process by SIGBUS, and that process would be the user's. So the blocks are
/// reserved beforehand, where that costs nothing; on tmpfs, where it would cost memory, ample free space has to do.
Status reserve_event_file(int fd, const std::string& path, std::size_t instances) {
  struct statfs system {};
  const bool known = ::fstatfs(fd, &system) == 0;
  int error = 0;
  if (known && system.f_type == TMPFS_MAGIC) {
    const std::uint64_t free_bytes = static_cast<std::uint64_t>(system.f_bavail) * static_cast<std::uint64_t>(system.f_bsize);
    if (system.f_blocks != 0 && free_bytes < 2 * instances * IPEXRUN_EVENT_FILE_BYTES) error = ENOSPC;
  } else if (::fallocate(fd, 0, 0, static_cast<off_t>(IPEXRUN_EVENT_FILE_BYTES)) != 0 && errno != EOPNOTSUPP) {
    error = errno;
  }
  if (error == 0) return ok_status();
  return Error{kExitFailure, "no room for event file '" + path + "': " + errno_text(error), "set TMPDIR to a folder with room"};
}

std::string stem_in(const std::string& run_dir, int instance) { return run_dir + "/instance-" + std::to_string(instance); }

Error system_error(const char* what) {
  const int error = errno;
  return Error{kExitFailure, std::string(what) + ": " + errno_text(error), hint_for(error)};
}

/// A service manager names the process that it started, which is this one or its warden: a program looks whether it is meant
/// (sd_listen_fds, sd_watchdog_enabled). Where in `environment` its number is to be written once there is one.
std::array<char*, 2> name_the_program(std::vector<std::string>& environment) {
  constexpr std::array<std::string_view, 2> kNames{"LISTEN_PID=", "WATCHDOG_PID="};
  std::array<char*, 2> places{};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    for (std::string& entry : environment) {
      if (!entry.starts_with(kNames[i])) continue;
      const std::string value = entry.substr(kNames[i].size());
      if (value != std::to_string(::getpid()) && value != std::to_string(::getppid())) continue;
      entry.resize(kNames[i].size() + kPidBytes, '\0');
      places[i] = entry.data() + kNames[i].size();
    }
  }
  return places;
}

}  // namespace

std::vector<std::string> environment_of(const InstancePlan& plan, const std::vector<std::string>& caller, const std::string& events_path,
                                        int restarts) {
  std::map<std::string, std::string> changed = plan.env;
  const std::string count = env::name(env::Id::kRestart);
  if (restarts > 0) changed[count] = std::to_string(restarts);
  if (!events_path.empty()) changed[env::name(env::Id::kEvents)] = events_path;
  std::vector<std::string> out;
  for (const std::string& entry : caller) {
    const std::string name = entry.substr(0, entry.find('='));
    const bool dropped = std::find(plan.unset_env.begin(), plan.unset_env.end(), name) != plan.unset_env.end();
    if (!dropped && name != count && !changed.contains(name)) out.push_back(entry);
  }
  for (const auto& [name, value] : changed) out.push_back(name + "=" + value);
  return out;
}

std::string events_path_in(const std::string& run_dir, int instance) {
  return run_dir.empty() ? "" : stem_in(run_dir, instance) + ".events";
}

struct Starter::Memory {
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  std::vector<char*> argv_pointers;
  std::vector<char*> environment_pointers;
  std::vector<unsigned long> cpu_mask;
  std::vector<unsigned long> node_mask;
  Fd status;  // launcher's end
  Fd input;
  Fd output;
  Fd errors;
  ChildSpec spec;

  /// The child has its copies: ours would keep a pipe from ending.
  void close_childs_ends() {
    output.reset();
    input.reset();
    errors.reset();
  }

  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (spec.report != nullptr) ::munmap(spec.report, sizeof(ChildReport));
    if (spec.header != nullptr) ::munmap(spec.header, IPEXRUN_EVENT_HEADER_BYTES);
  }
};

Starter::Starter(const LaunchPlan& plan, const RunSettings& settings, const SignalScope& signals, const FileLimit& files,
                 pid_t callers_group)
    : plan_(plan), settings_(settings), signals_(signals), files_(files), callers_group_(callers_group), caller_env_(env::all()) {}

Starter::~Starter() {
  if (!handed_over_) end_started();
}

void Starter::end_started() {
  for (Running& running : running_) {
    if (running.pid <= 0 || !running.alive) continue;
    ::kill(running.pid, SIGKILL);
    while (::waitpid(running.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    running.alive = false;
  }
}

Status Starter::prepare_files(const InstancePlan& plan, Memory& memory, Running& running) {
  if (plan_.instances.size() > 1) {
    // Two readers of one input each see a part of it: only the first keeps it, and none does when it is the terminal, whose reading
    // stops a background process group.
    const bool keeps_input = &plan == &plan_.instances.front() && ::isatty(STDIN_FILENO) == 0;
    if (!keeps_input) memory.input = Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  const bool logged = !plan.log_path.empty();
  if (logged || settings_.capture_output) {
    if (Status piped = prepare_pipe(plan, memory, running); !piped) return piped;
  } else if (settings_.quiet) {
    memory.output = Fd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  }
  memory.spec.stdout_fd = memory.output.get();
  memory.spec.stderr_fd = logged ? memory.output.get() : -1;
  if (settings_.quiet && !logged) {
    const std::string errors = settings_.run_dir.empty() ? "/dev/null" : stem_in(settings_.run_dir, plan.index) + ".err";
    memory.errors = Fd(::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    memory.spec.stderr_fd = memory.errors.get();
  }
  return ok_status();
}

Status Starter::prepare_pipe(const InstancePlan& plan, Memory& memory, Running& running) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  Fd reader(ends[0]);
  memory.output = Fd(ends[1]);
  ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(reader.get(), F_SETPIPE_SZ, kPipeBytes);  // refused where the user has many pipes already: then it stays small
  if (running.pump) {
    running.pump->attach(std::move(reader));
    return ok_status();
  }
  if (!plan.log_path.empty()) return prepare_log(plan, running, std::move(reader));
  std::unique_ptr<LogFile> copy;
  if (!settings_.run_dir.empty()) {
    const std::string path = stem_in(settings_.run_dir, plan.index) + ".out";
    Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (file.open()) copy = std::make_unique<LogFile>(std::move(file), path);
    running.outcome.output_path = path;
  }
  running.pump = std::make_unique<PipePump>(std::move(reader), std::move(copy));
  return ok_status();
}

Status Starter::prepare_log(const InstancePlan& plan, Running& running, Fd pipe) {
  auto log = open_log(plan.log_path);
  if (!log) return log.error();
  const std::string path = log->path;
  if (path != plan.log_path) log::warn(fmt::format("another run writes to '{}': this one's log is '{}'", plan.log_path, path));
  running.outcome.output_path = path;
  std::unique_ptr<LogFollower> follower;
  Fd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!settings_.quiet && reader.open()) {
    const std::string prefix = plan_.instances.size() > 1 ? "[" + std::to_string(plan.index) + "] " : "";
    follower = std::make_unique<LogFollower>(std::move(reader), ::lseek(log->fd.get(), 0, SEEK_END), prefix);
  }
  auto file = std::make_unique<LogFile>(std::move(log->fd), path);
  running.pump = std::make_unique<PipePump>(std::move(pipe), std::move(file), std::move(follower));
  return ok_status();
}

Status Starter::make_event_file(const InstancePlan& plan, Memory& memory, Running& running) {
  const std::string path = events_path_in(settings_.run_dir, plan.index);
  if (path.empty()) return ok_status();
  ::unlink(path.c_str());
  if (Status created = create_event_file(path); !created) return created;
  const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (Status reserved = reserve_event_file(file.get(), path, plan_.instances.size()); !reserved) {
    ::unlink(path.c_str());
    return reserved;
  }
  running.outcome.events_path = path;
  memory.spec.header = map_shared<IpexrunEventHeader>(file.get(), IPEXRUN_EVENT_HEADER_BYTES);
  return ok_status();
}

Status Starter::fork_one(const InstancePlan& plan, Memory& memory, Running& running) {
  ChildSpec& spec = memory.spec;
  InstanceOutcome& outcome = running.outcome;
  outcome.index = plan.index;
  if (plan.executable.empty()) return Error{kExitNotFound, "no program to start for instance " + std::to_string(plan.index), ""};
  if (Status files = prepare_files(plan, memory, running); !files) return files;
  spec.stdin_fd = memory.input.get();

  if (Status made = make_event_file(plan, memory, running); !made) {
    log::once(log::Level::kWarn, "events", made.error().line() + "; there will be no summary");
  }
  spec.report = map_shared<ChildReport>(-1, sizeof(ChildReport));
  if (spec.report == nullptr) return system_error("cannot map a page");

  memory.argv = plan.argv;
  memory.environment = environment_of(plan, caller_env_, outcome.events_path, outcome.restarts);
  spec.own_pids = name_the_program(memory.environment);
  memory.argv_pointers = pointers(memory.argv);
  memory.environment_pointers = pointers(memory.environment);
  spec.executable = plan.executable.c_str();
  spec.argv = memory.argv_pointers.data();
  spec.envp = memory.environment_pointers.data();
  if (plan_.pin && !plan.cpus.empty()) {
    memory.cpu_mask = bit_mask(plan.cpus);
    spec.cpu_mask = memory.cpu_mask.data();
    spec.cpu_mask_bytes = memory.cpu_mask.size() * sizeof(unsigned long);
  }
  if (plan.memory_policy == MemoryPolicy::kBind && !plan.numa_nodes.empty()) {
    memory.node_mask = bit_mask(plan.numa_nodes);
    spec.node_mask = memory.node_mask.data();
    spec.node_mask_bits = memory.node_mask.size() * kBitsAWord;
  }

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  memory.status = Fd(ends[0]);
  const Fd status_write(ends[1]);
  spec.status_fd = status_write.get();
  spec.go_fd = go_read_.get();
  spec.launcher = ::getpid();
  running.own_group = plan_.instances.size() > 1;
  spec.group = running.own_group ? 0 : callers_group_;
  spec.signal_mask = signals_.mask_before();
  spec.dispositions = &signals_.dispositions_before();
  spec.file_limit = &files_.before();

  running.started = std::chrono::steady_clock::now();
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("cannot start a process");
  if (pid == 0) {
    ::close(go_write_.get());  // or its own copy would keep the pipe open after the launcher's end
    run_child(spec);
  }
  running.pid = outcome.pid = pid;
  running.alive = true;
  if (spec.group >= 0) ::setpgid(pid, spec.group);  // in both processes: whichever comes first, the group is right before it is signalled
  return ok_status();
}

Status Starter::await_message(std::size_t i, bool after_go) {
  ChildMessage message;
  ssize_t n = 0;
  while ((n = ::read(memory_[i]->status.get(), &message, sizeof message)) < 0 && errno == EINTR) {
  }
  const std::string& executable = plan_.instances[i].executable;
  if (n == static_cast<ssize_t>(sizeof message)) {
    if (message.step == ChildStep::kReady) return ok_status();
    if (message.step == ChildStep::kExecFailed) return exec_error(executable, message.error);
    return Error{kExitFailure, "cannot set up instance " + std::to_string(plan_.instances[i].index) + ": " + errno_text(message.error), ""};
  }
  // End of file: execve closed the pipe, or the child was killed before it could say anything; the supervisor sees which.
  if (after_go) return ok_status();
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(running_[i].pid), &info, WEXITED | WNOWAIT);
  const bool filtered = info.si_code != CLD_EXITED && info.si_status == SIGSYS;
  return Error{kExitFailure,
               "instance " + std::to_string(plan_.instances[i].index) + " was killed before it started" +
                   (filtered ? ", by a system call filter (SIGSYS)" : ""),
               filtered ? "a filter that ends programs for set_mempolicy or sched_setaffinity needs --no-memory-bind or --no-pin" : ""};
}

void Starter::report_binding() const {
  std::map<std::string, std::string> instances_by_note;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    const ChildReport& report = *memory_[i]->spec.report;
    const std::string index = std::to_string(plan_.instances[i].index);
    if (report.note[0] != '\0') {
      std::string& list = instances_by_note[report.note];
      list += (list.empty() ? "" : ", ") + index;
    }
    log::info(fmt::format("instance {}: pid {}, cores {}{}", index, running_[i].pid, report.mask,
                          report.mems[0] != '\0' ? fmt::format(", memory of node {}", report.mems) : ""));
  }
  for (const auto& [note, list] : instances_by_note) {
    const bool cpus = note.find("sched_setaffinity") != std::string::npos;
    log::warn(
        fmt::format("instance {} runs {}: {}", list, cpus ? "where the system puts it" : "on its cores, its memory is left unbound", note));
  }
}

Status Starter::make_go_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  go_read_ = Fd(ends[0]);
  go_write_ = Fd(ends[1]);
  return ok_status();
}

Status Starter::prepare() {
  if (Status made = make_go_pipe(); !made) return made;
  running_.reserve(plan_.instances.size());
  for (const InstancePlan& plan : plan_.instances) {
    memory_.push_back(std::make_unique<Memory>());
    running_.emplace_back();
    if (Status started = fork_one(plan, *memory_.back(), running_.back()); !started) return started;
    memory_.back()->close_childs_ends();
  }
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (Status ready = await_message(i, false); !ready) return ready;
  }
  return ok_status();
}

/// One byte each: an instance reads no more than its own.
Status Starter::release(std::size_t instances) {
  go_read_.reset();
  const std::string bytes(instances, 'g');
  const bool all = ::write(go_write_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  go_write_.reset();
  return all ? ok_status() : Status(system_error("cannot start the instances"));
}

Status Starter::go() {
  if (Status released = release(running_.size()); !released) return released;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (Status started = await_message(i, true); !started) return started;
  }
  report_binding();
  handed_over_ = true;
  return ok_status();
}

Status Starter::restart(std::size_t i) {
  memory_[i] = std::make_unique<Memory>();
  Running& running = running_[i];
  InstanceOutcome fresh;
  fresh.restarts = running.outcome.restarts + 1;
  fresh.output_path = running.outcome.output_path;
  running.outcome = fresh;
  running.stopped = false;
  Status done = make_go_pipe();
  if (done) done = fork_one(plan_.instances[i], *memory_[i], running);
  memory_[i]->close_childs_ends();
  if (done) done = await_message(i, false);
  if (done) done = release(1);
  if (done) done = await_message(i, true);
  if (!done && running.alive) {
    ::kill(running.pid, SIGKILL);
    while (::waitpid(running.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    running.alive = false;
  }
  return done;
}

}  // namespace ipexrun::launcher
