// Values of report fields in JSON: what the reports have in common.
#pragma once

#include <nlohmann/json.hpp>

#include "launcher/bench/report.h"

namespace ipexrun::launcher::bench {

inline nlohmann::ordered_json value_json(const Value& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return nullptr;
}

}  // namespace ipexrun::launcher::bench
