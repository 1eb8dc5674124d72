// Whether others use the cores of a program whose threads wait for each other in loops. GNU's OpenMP runtime lets a thread loop for
// milliseconds before it sleeps; on a core that somebody else wants, that uses up the thread's share of it, and when its next piece of
// work comes it is not running: a call of 25 ms was seen to take two seconds beside one other process.
#pragma once

#include <cstdint>

namespace ipexrun::preload {

/// One look at the process.
struct CrowdingLook {
  std::int64_t now_ns = 0;     ///< when it ended
  std::int64_t wall_ns = 0;    ///< how long it lasted
  std::int64_t waited_ns = 0;  ///< the longest that one of its threads was ready to run meanwhile and did not
  std::int64_t left_ns = 0;    ///< what its CPUs had to give and it did not use: idle time, or that of others
};

/// The thresholds are stated here and nowhere measured finer: alone on its cores a program's threads wait for less than a hundredth of
/// the time, beside one other process for a third to a half. Where threads of the program itself take turns (a tokenizer's beside a
/// model's) they wait as much, but then the program uses its cores up.
struct CrowdingOptions {
  double share = 0.25;                           ///< of a look's time that a thread waited, and that the program's threads did not use
  int looks = 3;                                 ///< so many in a row
  std::int64_t hold_ns = 1'000'000'000;          ///< how long that is believed, from the last sign on
  std::int64_t longest_hold_ns = 8'000'000'000;  ///< doubled while it turns out to be true again
  std::int64_t again_ns = 2'000'000'000;         ///< "again": so soon after the last time
};

/// Decides from what is seen. No thread of its own: one thread calls it.
class Crowding {
 public:
  explicit Crowding(CrowdingOptions options = {}) : options_(options), hold_ns_(options.hold_ns) {}

  /// Returns whether threads had better sleep than loop from now on.
  bool look(const CrowdingLook& seen) noexcept;

  [[nodiscard]] bool crowded() const noexcept { return crowded_; }
  [[nodiscard]] std::int64_t times() const noexcept { return times_; }  ///< how often it became crowded

 private:
  CrowdingOptions options_;
  std::int64_t hold_ns_;
  std::int64_t sign_ns_ = 0;   ///< the end of the last look that showed somebody
  std::int64_t ended_ns_ = 0;  ///< when it was believed last
  std::int64_t times_ = 0;
  int in_a_row_ = 0;
  bool crowded_ = false;
};

}  // namespace ipexrun::preload
