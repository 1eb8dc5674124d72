// Text of --help and man pages: names with wrapped descriptions, and what roff needs escaped.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace ipexrun::launcher {

inline constexpr std::size_t kHelpColumn = 30;  ///< where descriptions begin

using Pairs = std::vector<std::pair<std::string, std::string>>;  ///< name, description

/// "name    text", the text wrapped and its further lines indented to `column`.
std::string help_entry(const std::string& name, const std::string& text, std::size_t column = kHelpColumn);

/// Entries whose column fits the longest name.
std::string help_entries(const Pairs& rows);

/// Roff gives a leading '.' or "'" and every '-' and '\' a meaning.
std::string roff(const std::string& text);

/// A tagged paragraph each.
std::string roff_list(const Pairs& rows);

}  // namespace ipexrun::launcher
