#include "tuner/cli/workers.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <random>

namespace ipexrun::tuner {
namespace {

constexpr const char* kGate = ".gate";  // who holds it may make or remove files of workers

/// Files of workers that were killed. The caller holds the gate, so none is just being made.
void sweep(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string path = entry.path().string();
    if (entry.path().filename() != kGate && try_lock(path).open()) ::unlink(path.c_str());
  }
}

}  // namespace

Result<Worker> Worker::enter(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder + "/workers", failure);
  if (failure)
    return Error{kExitFailure, "cannot make '" + folder + "/workers': " + failure.message(), "--output-dir names another folder"};
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const launcher::Fd gate(::open((folder + "/workers/" + kGate).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  while (gate.open() && ::flock(gate.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  if (gate.open()) sweep(folder + "/workers");
  Worker out;
  out.name_ = std::string(host.data()) + "-" + std::to_string(::getpid()) + "-" + std::to_string(std::random_device{}() % 1000000);
  out.path_ = folder + "/workers/" + out.name_;
  out.fd_ = try_lock(out.path_);
  if (!out.fd_.open()) return Error{kExitFailure, "cannot make and lock '" + out.path_ + "': " + launcher::errno_text(errno), ""};
  return out;
}

Worker::~Worker() {
  if (fd_.open()) ::unlink(path_.c_str());
}

bool worker_alive(const std::string& folder, const std::string& name) {
  const launcher::Fd fd(::open((folder + "/workers/" + name).c_str(), O_RDWR | O_CLOEXEC));
  return fd.open() && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

launcher::Fd try_lock(const std::string& path) {
  launcher::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (fd.open() && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.reset();
  return fd;
}

}  // namespace ipexrun::tuner
