#include "tuner/space/value.h"

#include <charconv>
#include <cmath>

#include "launcher/plan/text.h"

namespace ipexrun::tuner {

std::string text_of(const Value& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* real = std::get_if<double>(&value)) {
    char buffer[32];
    const auto result = std::to_chars(buffer, buffer + sizeof buffer, *real);
    return {buffer, result.ptr};
  }
  return "-";
}

Value parse_value(const std::string& text) {
  if (text.empty() || text == "-" || text == "~" || text == "null") return std::monostate{};
  const auto as_given = [&text](const Value& number) -> Value { return text_of(number) == text ? number : Value(text); };
  if (const auto whole = launcher::parse_number<std::int64_t>(text)) return as_given(*whole);
  if (const auto real = launcher::parse_number<double>(text); real && std::isfinite(*real)) return as_given(*real);
  return text;
}

std::optional<double> number_of(const Value& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  const auto* text = std::get_if<std::string>(&value);
  const auto number = text == nullptr ? std::nullopt : launcher::parse_number<double>(*text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::string key_of(const Point& point) {
  std::string out;
  for (const auto& [name, value] : point) out += (out.empty() ? "" : "; ") + name + "=" + text_of(value);
  return out;
}

}  // namespace ipexrun::tuner
