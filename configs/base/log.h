// Lines on stderr, all with the prefix "ipexrun: ". Nothing of ours is ever written to stdout of the user's program.
#pragma once

#include <string_view>

namespace ipexrun::log {

enum class Level : int { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3 };

/// The level named by IPEXRUN_LOG (error, warn, info, debug); kWarn when unset or not one of these.
Level level();

/// Writes "ipexrun: <text>\n" with one write(2), so that lines of several processes do not mix. Thread-safe, errno kept.
void line(Level at, std::string_view text);

inline void error(std::string_view text) { line(Level::kError, text); }
inline void warn(std::string_view text) { line(Level::kWarn, text); }
inline void info(std::string_view text) { line(Level::kInfo, text); }
inline void debug(std::string_view text) { line(Level::kDebug, text); }

/// Writes `text` at most once per process for each distinct `key` (a string literal); later calls do nothing.
void once(Level at, std::string_view key, std::string_view text);

}  // namespace ipexrun::log
