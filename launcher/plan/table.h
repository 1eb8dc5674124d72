// Tables for a terminal.
#pragma once

#include <string>
#include <vector>

namespace ipexrun::launcher {

using Table = std::vector<std::vector<std::string>>;

/// Left-aligned columns, two blanks between them, nothing after the last.
std::string aligned(const Table& rows, const std::string& indent = "");

inline std::string dash_if_empty(const std::string& text) { return text.empty() ? "-" : text; }

}  // namespace ipexrun::launcher
