// Whether a program gives memory back to the kernel and takes it again all the time, and whether it stops where malloc keeps more.
#pragma once

#include <cstdint>

namespace ipexrun::preload {

/// Of the process so far.
struct PageReading {
  std::int64_t cpu_ns = 0;
  std::uint64_t faults = 0;  ///< that read nothing from a disk
  std::uint64_t resident_bytes = 0;
};

/// Looks at intervals of the process's CPU time. Pages that it did not have before and does not have more of afterwards were taken again:
/// each is a fault, and zeros that nobody reads. Where these take their share of four intervals in a row, malloc is to keep memory; if four
/// more have not half as many, it is to do as before, for good. Pure; the caller serializes.
class FreshPages {
 public:
  static constexpr std::int64_t kIntervalNs = 100'000'000;  ///< at least, of CPU time between two readings

  enum class Advice {
    kNothing,
    kKeep,      ///< memory that is freed
    kAsBefore,  ///< keeping brought nothing
    kLook,      ///< at how much is kept
  };

  explicit FreshPages(std::uint64_t page_bytes) : page_bytes_(page_bytes) {}

  Advice read(const PageReading& now);
  /// What is kept was more than it may be. kAsBefore where that is so again and again: malloc works against it.
  Advice is_too_much(bool too_much);

  enum class State { kWatching, kTrying, kKept, kLeft };
  [[nodiscard]] State state() const { return state_; }

 private:
  [[nodiscard]] double share_of(const PageReading& now) const;

  const std::uint64_t page_bytes_;
  State state_ = State::kWatching;
  PageReading last_;
  bool any_ = false;
  int intervals_ = 0;  ///< in a row that count, or since something was done
  double before_ = 0;  ///< faults a nanosecond
  double now_ = 0;
  int lapses_ = 0;
};

}  // namespace ipexrun::preload
