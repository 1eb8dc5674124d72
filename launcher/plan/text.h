// Small texts that reasons and tables share, and numbers in texts.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ipexrun::launcher {

/// The number that the entire text is; no blanks, no sign "+".
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

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

/// "9.08 GiB", "512 MiB", "3.5 KiB"; "-" for 0, which stands for "unknown".
inline std::string bytes_text(std::uint64_t bytes) {
  if (bytes == 0) return "-";
  const int step = bytes >= 1ull << 30 ? 3 : bytes >= 1ull << 20 ? 2 : 1;
  static constexpr const char* kUnits[] = {"", " KiB", " MiB", " GiB"};
  return decimal_text(static_cast<double>(bytes) / static_cast<double>(1ull << (10 * step))) + kUnits[step];
}

}  // namespace ipexrun::launcher
