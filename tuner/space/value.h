// A value that a parameter can take. std::monostate: the parameter is left alone (nothing is set).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

namespace ipexrun::tuner {

using Value = std::variant<std::monostate, std::int64_t, double, std::string>;

/// "2", "0.5", "tcmalloc"; "-" for a parameter that is left alone.
std::string text_of(const Value& value);

/// A whole number or a number where that is written back as it was given, else the text itself: a program gets "1.10" and "007" as such.
/// "-", "~" and "null" are "left alone".
Value parse_value(const std::string& text);

/// Of numbers, and of texts that are one.
std::optional<double> number_of(const Value& value);

/// What one trial sets: the active parameters by name. A parameter whose condition does not hold is absent.
using Point = std::map<std::string, Value>;

/// "batch=8; ninstances=2": one text for equal points.
std::string key_of(const Point& point);

}  // namespace ipexrun::tuner
