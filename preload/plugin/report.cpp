// What the op tier tells: events for the launcher, JSON for tests and users.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdio>
#include <ctime>
#include <string>

#include "configs/base/isa.h"
#include "kernels/built.h"
#include "preload/plugin/crowded_cores.h"
#include "preload/plugin/graph/scripted_region.h"
#include "preload/plugin/op_call.h"
#include "preload/plugin/plain_numbers.h"
#include "preload/plugin/random_masks.h"
#include "preload/plugin/tier.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {
namespace {

constexpr std::uint64_t kTotalsEvery = 1024;
constexpr std::uint64_t kCallsBeforeWatching = 64;  ///< torch's threads are there by then, and a short program is spared a thread
constexpr std::uint64_t kSitesEvery = 16384;

struct Totals {
  std::uint64_t calls = 0;
  std::uint64_t taken = 0;
  std::uint64_t declined = 0;
  std::int64_t stock_ns = 0;  ///< what the calls taken would have needed on stock
  std::int64_t saved_ns = 0;
  int sites = 0;
};

using TotalsOfOps = std::array<Totals, kOpCount>;

TotalsOfOps totals_of_ops(const TierState& state) {
  TotalsOfOps all;
  for (std::size_t op = 0; op < kOpCount; ++op) {
    const OpCounts& counts = counts_of(static_cast<Op>(op));
    all[op].calls = counts.calls();
    for (std::size_t why = 0; why < kDeclinedCount; ++why) all[op].declined += counts.declined_for(static_cast<Declined>(why));
  }
  state.sites.for_each([&](const Site& site) {
    Totals& totals = all[site.id.op];
    const std::uint64_t taken = site.taken.load(std::memory_order_relaxed);
    const std::int64_t stock_ns = static_cast<std::int64_t>(taken) * site.stock_ns.load(std::memory_order_relaxed);
    totals.taken += taken;
    totals.stock_ns += stock_ns;
    totals.saved_ns += stock_ns - static_cast<std::int64_t>(taken) * site.choice_ns.load(std::memory_order_relaxed);
    ++totals.sites;
  });
  return all;
}

Totals totals_of(const TotalsOfOps& ops) {
  Totals sum;
  for (const Totals& one : ops) {
    sum.calls += one.calls;
    sum.taken += one.taken;
    sum.declined += one.declined;
    sum.saved_ns += one.saved_ns;
  }
  return sum;
}

/// "layout=12,small=3"
std::string declined_text(Op op) {
  std::string text;
  for (std::size_t why = 0; why < kDeclinedCount; ++why) {
    const std::uint64_t count = counts_of(op).declined_for(static_cast<Declined>(why));
    if (count > 0) text += std::string(text.empty() ? "" : ",") + decline_word(static_cast<Declined>(why)) + '=' + std::to_string(count);
  }
  return text;
}

void write_op_events(const TotalsOfOps& ops) {
  for (std::size_t op = 0; op < kOpCount; ++op) {
    const Totals& totals = ops[op];
    if (totals.calls == 0) continue;
    IpexrunEvent event = event_of(IPEXRUN_EVENT_OP);
    event.value[0] = static_cast<std::int64_t>(totals.calls);
    event.value[1] = static_cast<std::int64_t>(totals.taken);
    event.value[2] = static_cast<std::int64_t>(totals.declined);
    event.value[3] = totals.stock_ns;
    event.value[4] = totals.saved_ns;
    event.value[5] = totals.sites;
    events().write(event, std::string(op_name(static_cast<Op>(op))) + '\t' + declined_text(static_cast<Op>(op)));
  }
}

/// The end of a long place says most.
void write_region_events() {
  constexpr std::size_t kMostPlace = 56;
  for (const graph::RegionFacts& region : graph::scripted_facts()) {
    IpexrunEvent event = event_of(IPEXRUN_EVENT_REGION);
    event.value[0] = region.number;
    event.value[1] = static_cast<std::int64_t>(region.nodes);
    event.value[2] = static_cast<std::int64_t>(region.calls);
    event.value[3] = static_cast<std::int64_t>(region.taken);
    event.value[4] = static_cast<std::int64_t>(region.speed * 1e3);
    event.value[5] = static_cast<std::int64_t>(std::min(region.error, 1e9) * 1e9);
    const std::size_t length = region.where.size();
    events().write(event, region.where.substr(length > kMostPlace ? length - kMostPlace : 0) + '\t' +
                              (region.left_alone.empty() ? region.choice : "stock: " + region.left_alone));
    graph::write_op_times(region.number, region.times);
  }
}

static_assert(kMaxDrift == IPEXRUN_DRIFT_BOUND);

/// The ledger knows the drift of its last check only. Between the ends of two checks there are calls: looking at each call misses none.
struct DriftSeen {
  std::atomic<std::uint32_t> epoch{1};
  std::atomic<double> kept{-1};  ///< largest within the bound; -1 = none was
};
DriftSeen drift_seen;

/// Whether a check ended since the last look.
bool look_at_drift(const DriftLedger& ledger) noexcept {
  const std::uint32_t epoch = ledger.epoch();
  if (drift_seen.epoch.load(std::memory_order_relaxed) == epoch) [[likely]]
    return false;
  if (drift_seen.epoch.exchange(epoch, std::memory_order_relaxed) == epoch) return false;
  const DriftCounts counts = ledger.counts();
  if (counts.checks == 0 || !(counts.last <= kMaxDrift)) return true;
  double kept = drift_seen.kept.load(std::memory_order_relaxed);
  while (kept < counts.last && !drift_seen.kept.compare_exchange_weak(kept, counts.last, std::memory_order_relaxed)) {
  }
  return true;
}

/// "1.881e-02"; "" = no check was good.
std::string kept_drift() {
  const double kept = drift_seen.kept.load(std::memory_order_relaxed);
  if (kept < 0) return "";
  const PlainNumbers plain;
  char text[32];
  std::snprintf(text, sizeof text, "%.3e", kept);
  return text;
}

void write_drift_event(const DriftCounts& drift) {
  if (drift.checks + drift.aborted + drift.waiting == 0) return;
  IpexrunEvent event = event_of(IPEXRUN_EVENT_DRIFT);
  const std::array<std::uint64_t, 6> values = {drift.checks, drift.failed, drift.aborted, drift.fine, drift.too_far, drift.waiting};
  std::copy(values.begin(), values.end(), event.value);
  events().write(event, kept_drift());
}

/// A forced candidate answers without a decision of its site: reports name what really ran.
bool ran_forced(const Site& site) {
  return tier() != nullptr && tier()->forced.load(std::memory_order_relaxed) != kStock && site.choice.load() == kStock &&
         site.taken.load() > 0;
}

int shown_choice(const Site& site) { return ran_forced(site) ? tier()->forced.load(std::memory_order_relaxed) : site.choice.load(); }

char process_text[128];  // written once, before there is anything to report

std::string drift_json(const DriftCounts& drift) {
  const std::string kept = kept_drift();
  char text[256];
  std::snprintf(text, sizeof text,
                ", \"drift\": {\"checks\": %lu, \"failed\": %lu, \"aborted\": %lu, \"waiting\": %lu, \"fine\": %lu, \"too_far\": %lu, "
                "\"last\": %.3e, \"kept\": %s}",
                drift.checks, drift.failed, drift.aborted, drift.waiting, drift.fine, drift.too_far, std::min(drift.last, 1e99),
                kept.empty() ? "null" : kept.c_str());
  return text;
}

const char* shown_reason(const Site& site) { return ran_forced(site) ? "forced" : site.reason.load(); }

}  // namespace

void write_process_event(std::string_view text) noexcept {
  const std::size_t length = text.copy(process_text, sizeof process_text - 1);
  process_text[length] = '\0';
  events().write(event_of(IPEXRUN_EVENT_PROCESS), process_text);
}

void write_site_event(Site& site) noexcept {
  try {
    IpexrunEvent event = event_of(IPEXRUN_EVENT_SITE);
    const auto calls = static_cast<std::int64_t>(site.calls.load());
    const auto taken = static_cast<std::int64_t>(site.taken.load());
    event.value[0] = calls;
    event.value[1] = taken;
    event.value[2] = calls - taken;
    event.value[3] = site.stock_ns.load();
    event.value[4] = site.choice_ns.load();
    event.value[5] = site.samples.load();
    events().write(event, site.key + '\t' + candidate_name(shown_choice(site)) + '\t' + shown_reason(site));
  } catch (const std::exception&) {
    // No memory for a line of text: the event is left out.
  }
}

void write_totals(TierState& state, bool with_ops) noexcept {
  if (!events().active()) return;
  try {
    const TotalsOfOps ops = totals_of_ops(state);
    const Totals totals = totals_of(ops);
    IpexrunEvent event = event_of(IPEXRUN_EVENT_TOTALS);
    event.value[0] = static_cast<std::int64_t>(totals.calls);
    event.value[1] = static_cast<std::int64_t>(totals.taken);
    event.value[2] = event.value[0] - event.value[1];
    event.value[3] = totals.saved_ns;
    event.value[4] = static_cast<std::int64_t>(state.weights.pack_bytes());
    event.value[5] = state.sites.size();
    events().write(event, "");
    if (with_ops) {
      events().write(event_of(IPEXRUN_EVENT_PROCESS), process_text);  // the first one may be overwritten by now
      write_op_events(ops);
      write_region_events();
      write_drift_event(state.drift.counts());
    }
  } catch (const std::exception&) {
    // No memory for lines of text: the next totals say it.
  }
}

IpexrunEvent event_of(IpexrunEventKind kind) {
  IpexrunEvent event{};
  event.kind = kind;
  event.start_ns = static_cast<std::uint64_t>(steady_clock().now_ns());
  event.thread = ::gettid();
  return event;
}

void count_call(TierState& state) noexcept {
  const std::uint64_t number = state.calls.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number == kCallsBeforeWatching) watch_cores();
  const bool early = look_at_drift(state.drift) || std::has_single_bit(number);
  if (!early && number % kTotalsEvery != 0) return;
  // An event for each op is written less often: the ring also holds the program's timed module calls.
  write_totals(state, early || number % kSitesEvery == 0);
  if (number % kSitesEvery == 0) state.sites.for_each([](Site& site) { write_site_event(site); });
}

void write_exit_events() noexcept {
  TierState* state = tier();
  if (state == nullptr || !events().active()) return;
  state->sites.for_each([](Site& site) { write_site_event(site); });
  look_at_drift(state->drift);
  write_totals(*state, true);
  events().write(event_of(IPEXRUN_EVENT_EXIT), "");
}

std::string tier_report_json() {
  const TierState* state = tier();
  if (state == nullptr) return "{}";
  const PlainNumbers plain;
  look_at_drift(state->drift);
  const auto number = [](auto value) { return std::to_string(value); };
  const TotalsOfOps ops = totals_of_ops(*state);
  const Totals totals = totals_of(ops);
  std::string json =
      std::string("{\"mode\": \"") + (state->options.optimize ? "optimize" : "observe") + "\", \"calls\": " + number(totals.calls) +
      ", \"taken\": " + number(totals.taken) + ", \"declined\": " + number(totals.declined) +
      ", \"explorations\": " + number(state->selector.explorations()) + ", \"explored_ns\": " + number(state->selector.explored_ns()) +
      ", \"isa\": {\"cpu\": \"" + std::string(level_name(isa_of_cpu())) + "\", \"binary\": \"" +
      std::string(level_name(kernels::isa_of_build())) + "\", \"process\": \"" + std::string(level_name(isa_of_process())) +
      "\"}, \"pack_bytes\": " + number(state->weights.pack_bytes()) + ", \"weights\": " + number(state->weights.weights()) +
      drift_json(state->drift.counts()) + ", \"training\": {\"float32_because\": \"" + state->training.reason() +
      "\", \"masks_drawn\": " + std::to_string(random_masks_taken()) + "}, \"crowded\": " + crowded_cores_json() + ", \"ops\": [";
  bool first = true;
  for (std::size_t op = 0; op < kOpCount; ++op) {
    const Totals& one = ops[op];
    if (one.calls == 0) continue;
    json += std::string(first ? "" : ", ") + "{\"op\": \"" + op_name(static_cast<Op>(op)) + "\", \"calls\": " + number(one.calls) +
            ", \"taken\": " + number(one.taken) + ", \"stock_ns\": " + number(one.stock_ns) + ", \"saved_ns\": " + number(one.saved_ns) +
            ", \"sites\": " + number(one.sites) + ", \"declined\": {";
    bool first_word = true;
    for (std::size_t why = 0; why < kDeclinedCount; ++why) {
      const std::uint64_t count = counts_of(static_cast<Op>(op)).declined_for(static_cast<Declined>(why));
      if (count == 0) continue;
      json += std::string(first_word ? "" : ", ") + '"' + decline_word(static_cast<Declined>(why)) + "\": " + number(count);
      first_word = false;
    }
    json += "}}";
    first = false;
  }
  json += "], \"sites\": [";
  first = true;
  state->sites.for_each([&](const Site& site) {
    json += std::string(first ? "" : ", ") + "{\"site\": \"" + site.key + "\", \"choice\": \"" + candidate_name(shown_choice(site)) +
            "\", \"decided\": " + (site.state.load() == SiteState::kDecided ? "true" : "false") + ", \"reason\": \"" + shown_reason(site) +
            "\", \"calls\": " + number(site.calls.load()) + ", \"taken\": " + number(site.taken.load()) +
            ", \"stock_ns\": " + number(site.stock_ns.load()) + ", \"choice_ns\": " + number(site.choice_ns.load()) +
            ", \"samples\": " + number(site.samples.load()) + '}';
    first = false;
  });
  json += "]";
  if (const std::string graphs = graph::scripted_report_json(); !graphs.empty()) json += ", \"graphs\": [" + graphs + "]";
  return json + "}";
}

}  // namespace ipexrun::preload
