// Small texts that reasons and tables share.
#pragma once

#include <cstddef>
#include <string>

namespace ipexrun::launcher {

/// "1 core", "2 cores".
inline std::string count_text(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

/// At most two digits after the point, none that say nothing: "7.65", "2", "1.5".
inline std::string decimal_text(double value) {
  std::string out = std::to_string(value);
  out.resize(out.find('.') + 3);
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out;
}

}  // namespace ipexrun::launcher
