#include "launcher/bench/measure.h"

#include <algorithm>
#include <map>

namespace ipexrun::launcher::bench {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr double kNsPerSecond = 1e9;

/// Length of the union of the calls' intervals: threads may call at the same time.
double union_seconds(std::vector<const CallSample*> calls) {
  std::sort(calls.begin(), calls.end(), [](const CallSample* a, const CallSample* b) { return a->start_ns < b->start_ns; });
  std::uint64_t total = 0;
  std::uint64_t end = 0;
  for (const CallSample* call : calls) {
    const std::uint64_t stop = call->start_ns + call->duration_ns;
    if (stop <= end) continue;
    total += stop - std::max(end, call->start_ns);
    end = stop;
  }
  return static_cast<double>(total) / kNsPerSecond;
}

Measurement measure_module(std::vector<const CallSample*> calls, const BenchOptions& options) {
  std::sort(calls.begin(), calls.end(), [](const CallSample* a, const CallSample* b) { return a->start_ns < b->start_ns; });
  Measurement out;
  out.seen = static_cast<long>(calls.size());
  out.first_ms = static_cast<double>(calls.front()->duration_ns) / kNsPerMs;
  std::vector<const CallSample*> eligible;
  for (const CallSample* call : calls) {
    out.total_ms += static_cast<double>(call->duration_ns) / kNsPerMs;
    if ((call->flags & IPEXRUN_CALL_FAILED) != 0) {
      ++out.failed;
    } else if ((call->flags & IPEXRUN_CALL_EXPLORING) != 0) {
      ++out.explored;
    } else {
      eligible.push_back(call);
    }
  }
  out.warmup = warmup_calls(options, static_cast<long>(eligible.size()));
  std::vector<const CallSample*> measured;
  for (auto it = eligible.begin() + out.warmup; it != eligible.end(); ++it) {
    if (options.iters && static_cast<long>(measured.size()) >= *options.iters) break;
    const double since_first = static_cast<double>((*it)->start_ns - (*(eligible.begin() + out.warmup))->start_ns) / kNsPerSecond;
    if (options.seconds && since_first >= *options.seconds) break;
    measured.push_back(*it);
  }
  std::uint64_t last_end = 0;
  for (const CallSample* call : measured) {
    out.start_s.push_back(static_cast<double>(call->start_ns - calls.front()->start_ns) / kNsPerSecond);
    out.duration_ms.push_back(static_cast<double>(call->duration_ns) / kNsPerMs);
    out.batch.push_back(call->batch);
    out.position.push_back(static_cast<long>(
        std::find(calls.begin() + (out.position.empty() ? 0 : out.position.back() + 1), calls.end(), call) - calls.begin()));
    if ((call->flags & IPEXRUN_CALL_TRAINING) != 0) ++out.training;
    last_end = std::max(last_end, call->start_ns + call->duration_ns);
  }
  if (!measured.empty()) out.span_seconds = static_cast<double>(last_end - measured.front()->start_ns) / kNsPerSecond;
  out.busy_seconds = union_seconds(measured);
  return out;
}

}  // namespace

std::optional<double> Measurement::samples() const {
  double total = 0;
  for (const std::int64_t rows : batch) {
    if (rows <= 0) return std::nullopt;
    total += static_cast<double>(rows);
  }
  return batch.empty() ? std::nullopt : std::optional(total);
}

void Measurement::merge(const Measurement& other) {
  const double offset = start_s.empty() ? 0 : start_s.back() + duration_ms.back() / 1e3;
  for (const double start : other.start_s) start_s.push_back(offset + start);
  duration_ms.insert(duration_ms.end(), other.duration_ms.begin(), other.duration_ms.end());
  batch.insert(batch.end(), other.batch.begin(), other.batch.end());
  position.insert(position.end(), other.position.begin(), other.position.end());
  first_ms = std::max(first_ms, other.first_ms);
  busy_seconds += other.busy_seconds;
  span_seconds += other.span_seconds;
  total_ms += other.total_ms;
  seen += other.seen;
  warmup += other.warmup;
  explored += other.explored;
  failed += other.failed;
  training += other.training;
}

long warmup_calls(const BenchOptions& options, long eligible) {
  const long wanted = options.warmup ? *options.warmup : std::min(kDefaultWarmup, eligible / 4);
  return std::clamp(wanted, 0L, eligible);
}

std::vector<Measurement> measure(const InstanceSamples& samples, const BenchOptions& options) {
  std::vector<std::vector<const CallSample*>> by_module(samples.modules.size());
  for (const CallSample& call : samples.calls) by_module[static_cast<std::size_t>(call.module)].push_back(&call);
  std::vector<Measurement> out;
  for (std::size_t i = 0; i < by_module.size(); ++i) {
    out.push_back(measure_module(by_module[i], options));
    out.back().instance = samples.instance;
    out.back().module = samples.modules[i];
  }
  return out;
}

bool window_full(const InstanceSamples& samples, const BenchOptions& options) {
  if (!options.iters && !options.seconds) return false;
  const std::vector<Measurement> all = measure(samples, options);
  const std::string name = dominant_module(all);
  for (const Measurement& one : all) {
    if (one.module != name) continue;
    if (options.iters && static_cast<long>(one.duration_ms.size()) >= *options.iters) return true;
    // measure() stopped taking calls at the bound: one more eligible call than was measured means that the time is over.
    const long eligible = one.seen - one.failed - one.explored - one.warmup;
    if (options.seconds && eligible > static_cast<long>(one.duration_ms.size())) return true;
  }
  return false;
}

std::string dominant_module(const std::vector<Measurement>& measurements) {
  std::map<std::string, double> time;
  for (const Measurement& one : measurements) time[one.module] += one.total_ms;
  const auto longest = std::max_element(time.begin(), time.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return longest == time.end() ? "" : longest->first;
}

}  // namespace ipexrun::launcher::bench
