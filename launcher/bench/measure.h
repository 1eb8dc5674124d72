// From samples to measurements: which calls count, and what they amount to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/bench/samples.h"
#include "launcher/options.h"

namespace ipexrun::launcher::bench {

/// Calls left out at the start when --bench-warmup is not given: this many, but at most a quarter of what was seen.
inline constexpr long kDefaultWarmup = 10;

/// The calls of one module class in one instance (or, merged, in several runs of it).
struct Measurement {
  int instance = 0;
  std::string module;
  std::vector<double> start_s;      ///< of the measured calls, from the first call of the module
  std::vector<double> duration_ms;  ///< of the measured calls, in order of time
  std::vector<std::int64_t> batch;  ///< of the measured calls, 0 = unknown
  std::vector<long> position;       ///< of the measured calls among all calls of the module, from 0
  double first_ms = 0;              ///< the very first call
  double busy_seconds = 0;          ///< time in which at least one measured call was under way
  double span_seconds = 0;          ///< first start to last end of the measured calls
  double total_ms = 0;              ///< all calls, measured or not
  long seen = 0;                    ///< all calls
  long warmup = 0;                  ///< left out at the start
  long explored = 0;                ///< left out: selection was measuring in them
  long failed = 0;                  ///< left out: they raised
  long training = 0;                ///< measured calls with grad mode on and the module in train()

  /// Sum of the batch sizes of the measured calls; nullopt when one is unknown.
  [[nodiscard]] std::optional<double> samples() const;

  /// Adds another run of the same instance and module.
  void merge(const Measurement& other);
};

/// How many of `eligible` calls are left out at the start.
long warmup_calls(const BenchOptions& options, long eligible);

/// One measurement for each module class of the instance, in order of first appearance. Eligible are calls that neither failed nor
/// explored; of those the warm-up is dropped and --bench-iters and --bench-seconds bound the rest.
std::vector<Measurement> measure(const InstanceSamples& samples, const BenchOptions& options);

/// Whether --bench-iters or --bench-seconds is reached in the module class that takes most of the time. False without either.
bool window_full(const InstanceSamples& samples, const BenchOptions& options);

/// The class in which the instances spent most of their time; "" without any call.
std::string dominant_module(const std::vector<Measurement>& measurements);

}  // namespace ipexrun::launcher::bench
