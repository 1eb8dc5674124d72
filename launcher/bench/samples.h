// What the instances report while they run: module calls, the op tier's totals and what kind of process it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/contract/event.h"

namespace ipexrun::launcher::bench {

/// One top-level module call.
struct CallSample {
  std::uint64_t start_ns = 0;  ///< CLOCK_MONOTONIC
  std::uint64_t duration_ns = 0;
  std::uint32_t flags = 0;  ///< IPEXRUN_CALL_*
  std::int64_t batch = 0;   ///< 0 = unknown
  int module = 0;           ///< index into InstanceSamples::modules
};

/// One optimizer step and what went before it since the last one.
struct StepSample {
  std::uint64_t start_ns = 0;  ///< CLOCK_MONOTONIC
  std::uint64_t duration_ns = 0;
  std::uint32_t flags = 0;  ///< IPEXRUN_CALL_EXPLORING
  std::int64_t data_ns = 0;
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
  std::int64_t optimizer_ns = 0;
  std::int64_t samples = 0;  ///< 0 = unknown
  std::int64_t batches = 0;  ///< that a DataLoader gave
};

struct InstanceSamples {
  int instance = 0;
  std::vector<std::string> modules;  ///< class names in order of first appearance
  std::vector<CallSample> calls;     ///< in the order in which they ended
  std::vector<StepSample> steps;     ///< in order
  std::uint64_t lost = 0;            ///< records that were overwritten before they could be read
  bool has_totals = false;
  std::int64_t ops_taken = 0;     ///< operator calls that a candidate computed
  std::int64_t ops_declined = 0;  ///< seen by us, left to stock
  std::string process;            ///< "torch 2.13.0+cpu, amx, 2 threads", "" = no torch was met

  /// Takes one record over; kinds that the report does not use are ignored.
  void add(const IpexrunEvent& event);
};

/// Reads the instances' event files bit by bit, so that the ring may wrap while the program runs.
class Collector {
 public:
  /// `paths[i]` is the event file of the instance numbered `instances[i]`; files may not exist yet.
  Collector(const std::vector<int>& instances, std::vector<std::string> paths);

  /// Reads what is new. A file that cannot be read (yet) is left for the next time, and so is a record that is just being written,
  /// unless this is the last call (`final`, after the instances ended).
  void poll(bool final = false);

  [[nodiscard]] const std::vector<InstanceSamples>& instances() const { return samples_; }

 private:
  std::vector<std::string> paths_;
  std::vector<std::uint64_t> next_;
  std::vector<InstanceSamples> samples_;
};

}  // namespace ipexrun::launcher::bench
