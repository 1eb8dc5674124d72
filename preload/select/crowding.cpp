#include "preload/select/crowding.h"

#include <algorithm>

namespace ipexrun::preload {

bool Crowding::look(const CrowdingLook& seen) noexcept {
  const auto now_ns = seen.now_ns;
  const double least = options_.share * static_cast<double>(seen.wall_ns);
  const bool somebody = seen.wall_ns > 0 && static_cast<double>(seen.waited_ns) >= least && static_cast<double>(seen.left_ns) >= least;
  in_a_row_ = somebody ? in_a_row_ + 1 : 0;
  if (somebody) sign_ns_ = now_ns;
  if (crowded_) {
    // Threads that sleep are seldom kept from running: only looping again tells whether somebody is still there.
    if (now_ns - sign_ns_ >= hold_ns_) {
      crowded_ = false;
      ended_ns_ = now_ns;
      in_a_row_ = 0;
    }
  } else if (in_a_row_ >= options_.looks) {
    const bool again = times_ > 0 && now_ns - ended_ns_ <= options_.again_ns;
    hold_ns_ = again ? std::min(2 * hold_ns_, options_.longest_hold_ns) : options_.hold_ns;
    crowded_ = true;
    ++times_;
  }
  return crowded_;
}

}  // namespace ipexrun::preload
