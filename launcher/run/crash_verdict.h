// --crash-report: what the stack of a crash says about whose code it was.
#pragma once

#include <string>

#include "configs/contract/event.h"

namespace ipexrun::launcher {

/// One line without prefix, naming the instance; "" when no process of it reported a crash.
std::string crash_verdict(int instance, const IpexrunEventHeader& header);

}  // namespace ipexrun::launcher
