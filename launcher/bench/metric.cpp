#include "launcher/bench/metric.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <regex>

namespace ipexrun::launcher::bench {
namespace {

constexpr std::size_t kLongestLine = 4096;  // std::regex recurses once a character
constexpr std::size_t kShownLine = 120;
constexpr auto kFlags = std::regex::ECMAScript | std::regex::icase | std::regex::optimize;

// 1234.5, 1,234.5 or 1234,5: see number_shown(). Not the end of a longer one, nor its beginning.
#define IPEXRUN_NUMBER R"(((?:[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:[.,][0-9]+)?)(?:e[-+]?[0-9]+)?)(?![0-9.,]*[0-9]))"
#define IPEXRUN_BEFORE R"((?:^|[^0-9.,]|[^0-9][.,]))"

struct Compiled {
  std::regex regex;
  const MetricPattern* pattern;
};

const std::vector<Compiled>& compiled() {
  static const std::vector<Compiled> list = [] {
    std::vector<Compiled> out;
    for (const MetricPattern& pattern : metric_patterns()) out.push_back({std::regex(pattern.regex, kFlags), &pattern});
    return out;
  }();
  return list;
}

bool lower_is_better(const std::string& line) {
  static const std::regex words(R"(latency|\btime\b|elapsed|\bms\b|seconds)", kFlags);
  static const std::regex rate(R"(/\s*s\b|/\s*sec|per second|throughput)", kFlags);
  return std::regex_search(line, words) && !std::regex_search(line, rate);
}

std::optional<Metric> metric_in(const std::string& line, const std::optional<std::regex>& own) {
  std::smatch found;
  if (own) {
    if (!std::regex_search(line, found, *own) || found.size() != 2) return std::nullopt;
    const auto value = number_shown(found[1]);
    if (!value) return std::nullopt;
    return Metric{*value, "", !lower_is_better(line), line.substr(0, kShownLine)};
  }
  for (const Compiled& one : compiled()) {
    if (!std::regex_search(line, found, one.regex)) continue;
    if (const auto value = number_shown(found[1])) {
      return Metric{*value, one.pattern->unit, one.pattern->higher_is_better, line.substr(0, kShownLine)};
    }
  }
  return std::nullopt;
}

}  // namespace

const std::vector<MetricPattern>& metric_patterns() {
  static const std::vector<MetricPattern> patterns = {
      {R"(throughput\s*[:=]\s*)" IPEXRUN_NUMBER, "1/s", true, "throughput: 123.4 samples/s"},
      {IPEXRUN_BEFORE IPEXRUN_NUMBER
       R"(\s*(?:samples|images|imgs?|sentences|sequences|seqs|tokens|frames|items|examples|requests|queries|it)\s*(?:/|per)\s*s(?:ec(?:ond)?)?\b)",
       "1/s", true, "processed 3200 items, 512.7 images/sec"},
      {IPEXRUN_BEFORE IPEXRUN_NUMBER R"(\s*fps\b)", "1/s", true, "average 48.2 FPS"},
      {R"(\bfps\s*[:=]\s*)" IPEXRUN_NUMBER, "1/s", true, "FPS: 48.2"},
      {R"(latency[^:=0-9]*[:=]\s*)" IPEXRUN_NUMBER R"(\s*ms\b)", "ms", false, "Latency: 8.1 ms"},
      {R"(latency[^:=0-9]*[:=]\s*)" IPEXRUN_NUMBER R"(\s*us\b)", "us", false, "average latency = 950 us"},
      {R"(latency[^:=0-9]*[:=]\s*)" IPEXRUN_NUMBER R"(\s*s(?:ec(?:onds)?)?\b)", "s", false, "latency: 0.0081 sec"},
  };
  return patterns;
}

std::optional<double> number_shown(const std::string& text) {
  static const std::regex thousands(R"([1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?)");
  static const std::regex decimal(R"([0-9]+,[0-9]+)");
  std::string plain = text;
  const std::size_t first = std::min(text.size(), text.find_first_of("0123456789"));
  std::size_t end = std::min(text.size(), text.find_first_not_of("0123456789.,", first));
  while (end > first && (text[end - 1] == ',' || text[end - 1] == '.')) --end;  // of the sentence
  if (std::string digits = text.substr(first, end - first); digits.find(',') != std::string::npos) {
    if (std::regex_match(digits, thousands)) {
      std::erase(digits, ',');
    } else if (std::regex_match(digits, decimal)) {
      digits[digits.find(',')] = '.';
    } else {
      return std::nullopt;
    }
    plain.replace(first, end - first, digits);
  }
  char* read_to = nullptr;
  const double value = std::strtod(plain.c_str(), &read_to);
  if (plain.empty() || read_to == plain.c_str() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string without_colours(std::string_view line) {
  std::string out;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line.compare(at, 2, "\033[") != 0) {
      out += line[at];
      continue;
    }
    ++at;
    while (at + 1 < line.size() && (line[at + 1] < '@' || line[at + 1] > '~')) ++at;
    ++at;  // the letter that ends it
  }
  return out;
}

Status check_metric_regex(const std::string& regex) {
  try {
    const std::regex checked(regex, kFlags);
    if (checked.mark_count() == 1) return ok_status();
    return Error{kExitUsage, "--bench-metric '" + regex + "' has " + std::to_string(checked.mark_count()) + " groups",
                 "exactly one group must hold the number, as in 'speed: ([0-9.]+)'"};
  } catch (const std::regex_error& problem) {
    return Error{kExitUsage, "--bench-metric '" + regex + "' is no regular expression: " + problem.what(), "ECMAScript syntax"};
  }
}

std::optional<Metric> find_metric(std::string_view output, const std::string& regex) {
  std::optional<std::regex> own;
  if (!regex.empty()) own.emplace(regex, kFlags);
  std::size_t end = output.size();
  while (end > 0) {  // from the end: the last line counts, and most outputs are long
    const std::size_t before = output.find_last_of("\r\n", end - 1);
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    if (end > begin && end - begin <= kLongestLine) {
      if (auto metric = metric_in(without_colours(output.substr(begin, end - begin)), own)) return metric;
    }
    if (begin == 0) break;
    end = begin - 1;
  }
  return std::nullopt;
}

}  // namespace ipexrun::launcher::bench
