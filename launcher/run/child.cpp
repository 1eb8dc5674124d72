#include "launcher/run/child.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace ipexrun::launcher {
namespace {

// linux/mempolicy.h clashes with numaif.h on some systems; these two numbers are kernel ABI.
constexpr int kMpolBind = 2;
constexpr int kMpolModeMask = 0xff;  // without the MPOL_F_* flags that the kernel may add

constexpr std::size_t kMaskBytes = 8192;  // 65536 CPUs; sched_getaffinity refuses a buffer smaller than the kernel's own mask
constexpr std::size_t kNodeBytes = 512;   // 4096 nodes

void append(char* out, std::size_t room, const char* text) noexcept {
  const std::size_t used = strlen(out);
  if (used + 1 >= room) return;
  const std::size_t n = std::min(strlen(text), room - 1 - used);
  memcpy(out + used, text, n);
  out[used + n] = '\0';
}

/// strerror() may allocate or take the locale's lock, so the few errors that binding can give are named here.
const char* error_text(int error) noexcept {
  switch (error) {
    case EPERM:
      return "Operation not permitted";
    case ENOSYS:
      return "Function not implemented";
    case EINVAL:
      return "Invalid argument";
    case ENOMEM:
      return "Cannot allocate memory";
    default:
      return "refused by the kernel";
  }
}

void note(ChildReport* report, const char* call, int error) noexcept {
  if (report->note[0] != '\0') append(report->note, sizeof report->note, "; ");
  append(report->note, sizeof report->note, call);
  append(report->note, sizeof report->note, ": ");
  append(report->note, sizeof report->note, error_text(error));
}

char* put_number(char* at, const char* end, std::size_t value) noexcept {
  char digits[24];
  int n = 0;
  do {
    digits[n++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  while (n > 0 && at < end) *at++ = digits[--n];
  return at;
}

void bind_cpus(const ChildSpec& spec) noexcept {
  if (spec.cpu_mask != nullptr && syscall(SYS_sched_setaffinity, 0, spec.cpu_mask_bytes, spec.cpu_mask) != 0) {
    note(spec.report, "sched_setaffinity", errno);
  }
  unsigned char mask[kMaskBytes] = {};
  const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
  if (bytes > 0) format_bits(mask, static_cast<std::size_t>(bytes), spec.report->mask, sizeof spec.report->mask);
}

void bind_memory(const ChildSpec& spec) noexcept {
  if (spec.node_mask == nullptr) return;
  // The kernel takes one bit less than it is told (get_nodes() in mm/mempolicy.c), hence + 1.
  if (syscall(SYS_set_mempolicy, kMpolBind, spec.node_mask, spec.node_mask_bits + 1) != 0) {
    note(spec.report, "set_mempolicy", errno);
    return;
  }
  unsigned char nodes[kNodeBytes] = {};
  int mode = 0;
  if (syscall(SYS_get_mempolicy, &mode, nodes, sizeof nodes * 8 + 1, 0UL, 0UL) == 0 && (mode & kMpolModeMask) == kMpolBind) {
    format_bits(nodes, sizeof nodes, spec.report->mems, sizeof spec.report->mems);
  }
}

void tell(int fd, ChildStep step, int error) noexcept {
  const ChildMessage message{step, error};
  while (write(fd, &message, sizeof message) < 0 && errno == EINTR) {
  }
}

bool wire(int from, int to) noexcept {
  if (from < 0) return true;
  while (dup2(from, to) < 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

[[noreturn]] void give_up(const ChildSpec& spec, ChildStep step, int error) noexcept {
  tell(spec.status_fd, step, error);
  _exit(127);
}

}  // namespace

void format_bits(const unsigned char* mask, std::size_t bytes, char* out, std::size_t room) noexcept {
  const std::size_t bits = bytes * 8;
  const auto set = [mask](std::size_t i) { return ((mask[i / 8] >> (i % 8)) & 1) != 0; };
  std::size_t used = 0;
  out[0] = '\0';
  for (std::size_t first = 0; first < bits; ++first) {
    if (!set(first)) continue;
    std::size_t last = first;
    while (last + 1 < bits && set(last + 1)) ++last;
    char item[64];
    char* at = item;
    const char* end = item + sizeof item;
    if (used != 0) *at++ = ',';
    at = put_number(at, end, first);
    if (last != first) {
      *at++ = '-';
      at = put_number(at, end, last);
    }
    const auto length = static_cast<std::size_t>(at - item);
    if (used + length + 1 > room) return;
    memcpy(out + used, item, length);
    used += length;
    out[used] = '\0';
    first = last;
  }
}

void run_child(const ChildSpec& spec) noexcept {
  // The death signal belongs to the parent thread; a launcher that died before this line is seen by the changed parent.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != spec.launcher) _exit(127);

  if (spec.group >= 0 && setpgid(0, spec.group) != 0) give_up(spec, ChildStep::kWireFailed, errno);
  if (!wire(spec.stdin_fd, STDIN_FILENO) || !wire(spec.stdout_fd, STDOUT_FILENO) || !wire(spec.stderr_fd, STDERR_FILENO)) {
    give_up(spec, ChildStep::kWireFailed, errno);
  }

  bind_cpus(spec);
  bind_memory(spec);
  if (spec.header != nullptr) {
    spec.header->root_pid = getpid();
    memcpy(spec.header->mask_at_start, spec.report->mask, sizeof spec.header->mask_at_start);
    memcpy(spec.header->mems_at_start, spec.report->mems, sizeof spec.header->mems_at_start);
    memcpy(spec.header->bind_note, spec.report->note, sizeof spec.header->bind_note);
  }

  if (access(spec.executable, X_OK) != 0) give_up(spec, ChildStep::kExecFailed, errno);
  tell(spec.status_fd, ChildStep::kReady, 0);
  char go = 0;
  ssize_t n = 0;
  while ((n = read(spec.go_fd, &go, 1)) < 0 && errno == EINTR) {
  }
  if (n != 1) _exit(127);

  for (char* place : spec.own_pids) {
    if (place != nullptr) *put_number(place, place + kPidBytes - 1, static_cast<std::size_t>(getpid())) = '\0';
  }
  setrlimit(RLIMIT_NOFILE, spec.file_limit);
  for (const Disposition& one : *spec.dispositions) sigaction(one.signal, &one.before, nullptr);
  sigprocmask(SIG_SETMASK, &spec.signal_mask, nullptr);
  execve(spec.executable, spec.argv, spec.envp);
  give_up(spec, ChildStep::kExecFailed, errno);
}

}  // namespace ipexrun::launcher
