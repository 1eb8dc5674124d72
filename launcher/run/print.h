// Text of ours on stdout: what commands that only show something end with.
#pragma once

#include <string>

#include "configs/base/result.h"

namespace ipexrun::launcher {

/// Writes all of `text`. A reader that went away (ipexrun --help | head) and a closed stdout are no failure; a full disk is: what was to be
/// kept there is not complete.
Status print_text(const std::string& text);

}  // namespace ipexrun::launcher
