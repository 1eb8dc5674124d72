#include "preload/select/crowding.h"

#include <algorithm>

namespace ipexrun::preload {

bool Crowding::look(std::int64_t now_ns, std::int64_t wall_ns, std::int64_t waited_ns) noexcept {
  const bool somebody = wall_ns > 0 && static_cast<double>(waited_ns) >= options_.share * static_cast<double>(wall_ns);
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
