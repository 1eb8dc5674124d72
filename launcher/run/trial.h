// A program run as an instance would be, to see what becomes of it: for doctor.
#pragma once

#include <string>
#include <vector>

#include "configs/contract/event.h"
#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

struct Trial {
  bool ran = false;
  std::string problem;  ///< why it did not
  int exit_code = 0;
  std::string output;           ///< its stdout
  std::string process;          ///< what the plugin says of itself: "torch 2.13.0, amx, 2 threads"
  IpexrunEventHeader header{};  ///< of its event file

  /// "amx"; "" = unknown.
  [[nodiscard]] std::string isa() const;
  /// Of the header, bounded.
  [[nodiscard]] std::string shim_reason() const;
};

/// Bound to the first allowed CPU and its node, with the shim of `lib_dir` inside and every kernel stock; ended after two minutes.
Trial try_run(const std::vector<std::string>& argv, const std::string& lib_dir, const std::string& plugin_dir, const Machine& machine,
              const std::string& run_dir);

}  // namespace ipexrun::launcher
