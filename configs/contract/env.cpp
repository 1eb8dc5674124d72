#include "configs/contract/env.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>

extern char** environ;

namespace ipexrun::env {

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
#define no false
#define yes true
#define IPEXRUN_ENV_VAR(id, name, type, fallback, set_by, read_by, inherited, help) \
  {Id::id, name, #type, fallback, #set_by, read_by, inherited, help},
#include "configs/contract/env_vars.def"
#undef IPEXRUN_ENV_VAR
#undef yes
#undef no
  };
  return table;
}

const Row& row(Id id) { return rows()[static_cast<std::size_t>(id)]; }

std::optional<std::string> get_named(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::string(text);
}

std::optional<std::string> get(Id id) { return get_named(name(id)); }

bool get_flag(Id id) {
  std::string text = get(id).value_or("");
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text == "1" || text == "true" || text == "on" || text == "yes";
}

std::optional<std::int64_t> get_int(Id id) {
  const auto text = get(id);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (failure != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc()) return std::nullopt;
  std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (!suffix.empty() && (suffix.back() == 'B' || suffix.back() == 'b')) suffix.remove_suffix(1);
  if (suffix.empty()) return value;
  if (suffix.size() != 1) return std::nullopt;
  int shift = 0;
  switch (std::toupper(static_cast<unsigned char>(suffix[0]))) {
    case 'K':
      shift = 10;
      break;
    case 'M':
      shift = 20;
      break;
    case 'G':
      shift = 30;
      break;
    case 'T':
      shift = 40;
      break;
    default:
      return std::nullopt;
  }
  if (value > (std::numeric_limits<std::uint64_t>::max() >> shift)) return std::nullopt;
  return value << shift;
}

std::optional<std::uint64_t> get_bytes(Id id) {
  const auto text = get(id);
  return text ? parse_bytes(*text) : std::nullopt;
}

std::vector<std::string> all() {
  std::vector<std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) out.emplace_back(*entry);
  return out;
}

}  // namespace ipexrun::env
