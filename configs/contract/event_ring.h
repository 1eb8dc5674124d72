// Writer and reader of the event file (event.h). Lock-free; many threads of the owning process may write at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/event.h"

namespace ipexrun {

/// Writing side, used inside the user's program. Never throws; every failure makes it silent.
class EventWriter {
 public:
  EventWriter() = default;
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  /// Maps `path` and claims it for this process. False when it is no event file, cannot be mapped, or a live process owns it.
  bool open(const std::string& path) noexcept;

  /// True in the process that claimed the file (false again in a forked child).
  [[nodiscard]] bool active() const noexcept;

  /// Appends one record; `text` is cut to what fits. Wait-free apart from one atomic add.
  void write(const IpexrunEvent& event, std::string_view text) noexcept;

  /// Raises header.shim_state and, for a refusal, stores the reason.
  void set_shim_state(IpexrunShimState state, std::string_view reason) noexcept;

 private:
  IpexrunEventHeader* header_ = nullptr;
  IpexrunEvent* records_ = nullptr;
  std::int32_t pid_ = 0;
};

/// Launcher side: creates the file (mode 0600) with an empty ring.
Status create_event_file(const std::string& path);

/// Everything that can be read from an event file now.
struct EventSnapshot {
  IpexrunEventHeader header{};
  std::vector<IpexrunEvent> events;  ///< in order of sequence
  std::uint64_t lost = 0;            ///< records that were overwritten before `from`..now could be read, or torn
};

/// Reads the records with number >= `from` (0 = all that are still there); snapshot.header.next is the number to continue at.
Result<EventSnapshot> read_events(const std::string& path, std::uint64_t from = 0);

}  // namespace ipexrun
