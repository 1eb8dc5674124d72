// What losses tell of the results that they are made of.
#pragma once

namespace ipexrun::preload {

/// Whether the program takes ratios of what a recorded call gives to what an unrecorded one gave, exp(log_prob - old_log_prob) as in PPO:
/// they are 1 where no weight changed between the two, which holds only where neither call is rounded. Never taken back. Any thread.
bool takes_ratios() noexcept;

}  // namespace ipexrun::preload
