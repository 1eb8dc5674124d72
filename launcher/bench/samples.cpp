#include "launcher/bench/samples.h"

#include <algorithm>
#include <utility>

#include "configs/contract/event_ring.h"

namespace ipexrun::launcher::bench {

void InstanceSamples::add(const IpexrunEvent& event) {
  switch (event.kind) {
    case IPEXRUN_EVENT_PROCESS:
      process = event.text;
      break;
    case IPEXRUN_EVENT_TOTALS:
      has_totals = true;
      ops_taken = event.value[1];
      ops_declined = event.value[2];
      break;
    case IPEXRUN_EVENT_CALL: {
      auto found = std::find(modules.begin(), modules.end(), event.text);
      if (found == modules.end()) found = modules.insert(modules.end(), event.text);
      calls.push_back({event.start_ns, event.duration_ns, event.flags, event.value[0], static_cast<int>(found - modules.begin())});
      break;
    }
    case IPEXRUN_EVENT_STEP:
      steps.push_back({event.start_ns, event.duration_ns, event.flags, event.value[0], event.value[1], event.value[2], event.value[3],
                       event.value[4], event.value[5]});
      break;
    default:
      break;
  }
}

Collector::Collector(const std::vector<int>& instances, std::vector<std::string> paths)
    : paths_(std::move(paths)), next_(paths_.size(), 0), samples_(paths_.size()) {
  for (std::size_t i = 0; i < samples_.size(); ++i) samples_[i].instance = instances[i];
}

void Collector::poll(bool final) {
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    auto snapshot = read_events(paths_[i], next_[i]);
    if (!snapshot) continue;
    const IpexrunEventHeader& header = snapshot->header;
    const std::uint64_t oldest = header.next > header.capacity ? header.next - header.capacity : 0;
    std::uint64_t expected = std::max(next_[i], oldest);
    samples_[i].lost += expected - next_[i];
    for (const IpexrunEvent& event : snapshot->events) {
      const std::uint64_t number = event.sequence - 1;
      // A gap is a record whose writer is in the middle of it: come back for it, unless it is about to be overwritten.
      const bool may_wait = !final && header.next - expected < header.capacity / 2;
      if (number > expected && may_wait) break;
      samples_[i].lost += number - expected;
      samples_[i].add(event);
      expected = number + 1;
    }
    next_[i] = expected;
  }
}

}  // namespace ipexrun::launcher::bench
