// Workers of a study: each holds a lock of a file of its own, so that others can tell whether it still runs, also after kill -9.
#pragma once

#include <string>

#include "configs/base/result.h"
#include "launcher/run/posix.h"

namespace ipexrun::tuner {

class Worker {
 public:
  /// Makes FOLDER/workers/NAME and locks it. The name holds host, process and a number by chance.
  static Result<Worker> enter(const std::string& folder);
  ~Worker();
  Worker(Worker&&) noexcept = default;
  Worker& operator=(Worker&&) noexcept = default;

  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  Worker() = default;
  std::string name_;
  std::string path_;
  launcher::Fd fd_;
};

/// Whether the worker of that name still holds its lock.
bool worker_alive(const std::string& folder, const std::string& name);

/// A lock of FOLDER/NAME for this process's life, not waited for; not open when another worker has it.
launcher::Fd try_lock(const std::string& path);

}  // namespace ipexrun::tuner
