// The op tier as the rest of the plugin and the Python side see it. Needs no torch header.
#pragma once

#include <cstdint>
#include <string>

#include "configs/contract/event_ring.h"

namespace ipexrun::preload {

/// Whether this thread's calls may be taken over; the first branch of every adapter. True at first.
bool tier_enabled() noexcept;
/// For the calling thread.
void tier_set_enabled(bool on) noexcept;

/// Off for this thread while it lives; may be nested.
class TierOff {
 public:
  TierOff() noexcept;
  ~TierOff();
  TierOff(const TierOff&) = delete;
  TierOff& operator=(const TierOff&) = delete;
};

/// Every site uses this candidate where it supports the call and passes the accuracy check, in all threads; "" ends that. False
/// (and no change) when there is no candidate of that name.
bool tier_force(const std::string& candidate);
/// The same for calls of this thread alone; it goes before the process's.
bool tier_force_here(const std::string& candidate);
/// The candidate that calls of this thread have to take where it fits, kStock: none.
int tier_forced() noexcept;

/// Calls of the process so far in which a candidate was tried beside stock.
std::uint64_t exploration_count() noexcept;
/// What that took beyond the calls' answers, in time on the wall (Selector::beside_ns).
std::uint64_t exploration_ns() noexcept;

/// This process's event file; inactive when there is none or another process owns it.
EventWriter& events();
/// An event of this thread and this moment, else empty.
IpexrunEvent event_of(IpexrunEventKind kind);

/// Totals, ops and all sites as JSON: {"mode", "calls", "taken", "declined", "pack_bytes", "weights", "drift": {...}, "ops": [...],
/// "sites": [...]}.
std::string tier_report_json();

}  // namespace ipexrun::preload
