#include "configs/contract/env.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>

extern char** environ;

namespace ipexrun::env {
namespace {

/// "word(a|b)" in two.
Row made(Id id, const char* name, std::string type, const char* fallback, const char* set_by, const char* read_by, bool inherited,
         const char* help) {
  Row out{id, name, "", {}, fallback, set_by, read_by, inherited, help};
  const std::size_t open = type.find('(');
  out.type = type.substr(0, open);
  for (std::size_t at = open; at < type.size() && type[at] != ')';) {
    const std::size_t end = type.find_first_of("|)", at + 1);
    out.allowed.push_back(type.substr(at + 1, end - at - 1));
    at = end;
  }
  return out;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

template <typename Words>
bool is_one_of(const std::string& text, const Words& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

constexpr std::array<std::string_view, 4> kOn{"1", "true", "on", "yes"};
constexpr std::array<std::string_view, 4> kOff{"0", "false", "off", "no"};

bool is_seconds(const std::string& text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end == text.data() + text.size() && value >= 0 && value <= std::numeric_limits<double>::max();
}

bool is_whole(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end == text.data() + text.size();
}

template <typename Words>
std::string joined(const Words& words) {
  std::string out;
  for (const auto& word : words) out.append(out.empty() ? "" : ", ").append(word);
  return out;
}

}  // namespace

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
#define no false
#define yes true
#define IPEXRUN_ENV_VAR(id, name, type, fallback, set_by, read_by, inherited, help) \
  made(Id::id, name, #type, fallback, #set_by, read_by, inherited, help),
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

bool get_flag(Id id) { return is_one_of(lower(get(id).value_or("")), kOn); }

std::string problem_of(const Row& row, const std::string& value) {
  if (value.empty()) return "";
  const std::string seen = std::string(row.name) + "=" + value;
  if (row.type == "flag" && !is_one_of(lower(value), kOn) && !is_one_of(lower(value), kOff))
    return seen + " is neither on (" + joined(kOn) + ") nor off (" + joined(kOff) + ")";
  // How much is written to stderr is read in any case.
  if (!row.allowed.empty() && !is_one_of(row.id == Id::kLog ? lower(value) : value, row.allowed))
    return seen + (row.allowed.size() == 1 ? " is not " : " is none of ") + joined(row.allowed);
  if (row.type == "bytes" && !parse_bytes(value)) return seen + " is no number of bytes, such as 512M or 2G";
  if (row.type == "seconds" && !is_seconds(value)) return seen + " is no number of seconds from 0 on";
  if (row.type == "int" && !is_whole(value)) return seen + " is no whole number";
  return "";
}

std::string problem_of_environment() {
  if (get_flag(Id::kDisable)) return "";
  for (const Row& one : rows()) {
    if (std::string_view(one.name).substr(0, 8) != "IPEXRUN_") continue;  // other tools answer for theirs
    if (std::string problem = problem_of(one, get(one.id).value_or("")); !problem.empty()) return problem;
  }
  return "";
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
