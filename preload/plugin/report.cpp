// What the op tier tells: events for the launcher, JSON for tests and users.
#include <unistd.h>

#include <ctime>
#include <string>

#include "preload/plugin/tier.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {
namespace {

constexpr std::uint64_t kTotalsEvery = 1024;
constexpr std::uint64_t kSitesEvery = 16384;

std::uint64_t now_ns() { return static_cast<std::uint64_t>(steady_clock().now_ns()); }

IpexrunEvent event_of(IpexrunEventKind kind) {
  IpexrunEvent event{};
  event.kind = kind;
  event.start_ns = now_ns();
  event.thread = ::gettid();
  return event;
}

struct Totals {
  std::uint64_t taken = 0;
  std::int64_t saved_ns = 0;
};

Totals totals_of(const TierState& state) {
  Totals totals;
  state.sites.for_each([&](const Site& site) {
    const std::uint64_t taken = site.taken.load(std::memory_order_relaxed);
    totals.taken += taken;
    totals.saved_ns +=
        static_cast<std::int64_t>(taken) * (site.stock_ns.load(std::memory_order_relaxed) - site.choice_ns.load(std::memory_order_relaxed));
  });
  return totals;
}

/// A forced candidate answers without a decision of its site: reports name what really ran.
bool ran_forced(const Site& site) {
  return tier() != nullptr && tier()->forced.load(std::memory_order_relaxed) != kStock && site.choice.load() == kStock &&
         site.taken.load() > 0;
}

int shown_choice(const Site& site) { return ran_forced(site) ? tier()->forced.load(std::memory_order_relaxed) : site.choice.load(); }

const char* shown_reason(const Site& site) { return ran_forced(site) ? "forced" : site.reason.load(); }

}  // namespace

void write_process_event(std::string_view text) noexcept { events().write(event_of(IPEXRUN_EVENT_PROCESS), text); }

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

void write_totals(TierState& state) noexcept {
  if (!events().active()) return;
  const Totals totals = totals_of(state);
  IpexrunEvent event = event_of(IPEXRUN_EVENT_TOTALS);
  event.value[0] = static_cast<std::int64_t>(state.calls.load());
  event.value[1] = static_cast<std::int64_t>(totals.taken);
  event.value[2] = event.value[0] - event.value[1];
  event.value[3] = totals.saved_ns;
  event.value[4] = static_cast<std::int64_t>(state.weights.pack_bytes());
  event.value[5] = state.sites.size();
  events().write(event, "");
}

void count_call(TierState& state) noexcept {
  const std::uint64_t number = state.calls.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((number & (number - 1)) != 0 && number % kTotalsEvery != 0) return;
  write_totals(state);
  if (number % kSitesEvery == 0) state.sites.for_each([](Site& site) { write_site_event(site); });
}

void write_exit_events() noexcept {
  TierState* state = tier();
  if (state == nullptr || !events().active()) return;
  state->sites.for_each([](Site& site) { write_site_event(site); });
  write_totals(*state);
  events().write(event_of(IPEXRUN_EVENT_EXIT), "");
}

std::string tier_report_json() {
  const TierState* state = tier();
  if (state == nullptr) return "{}";
  const auto number = [](auto value) { return std::to_string(value); };
  std::string json =
      std::string("{\"mode\": \"") + (state->options.optimize ? "optimize" : "observe") + "\", \"calls\": " + number(state->calls.load()) +
      ", \"taken\": " + number(totals_of(*state).taken) + ", \"declined\": " + number(state->declined.load()) +
      ", \"explorations\": " + number(state->selector.explorations()) + ", \"explored_ns\": " + number(state->selector.explored_ns()) +
      ", \"pack_bytes\": " + number(state->weights.pack_bytes()) + ", \"weights\": " + number(state->weights.weights()) + ", \"sites\": [";
  bool first = true;
  state->sites.for_each([&](const Site& site) {
    json += std::string(first ? "" : ", ") + "{\"site\": \"" + site.key + "\", \"choice\": \"" + candidate_name(shown_choice(site)) +
            "\", \"decided\": " + (site.state.load() == SiteState::kDecided ? "true" : "false") + ", \"reason\": \"" + shown_reason(site) +
            "\", \"calls\": " + number(site.calls.load()) + ", \"taken\": " + number(site.taken.load()) +
            ", \"stock_ns\": " + number(site.stock_ns.load()) + ", \"choice_ns\": " + number(site.choice_ns.load()) +
            ", \"samples\": " + number(site.samples.load()) + '}';
    first = false;
  });
  return json + "]}";
}

}  // namespace ipexrun::preload
