#include "launcher/bench/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

namespace ipexrun::launcher::bench {
namespace {

constexpr std::size_t kShownLine = 60;

const OneRun* run_of(const std::vector<OneRun>& runs, const std::vector<int>& rounds, const std::string& variant, int round) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].variant == variant && rounds[i] == round && runs[i].exit_code == 0) return &runs[i];
  }
  return nullptr;
}

/// Digits, and what belongs to a number between digits, become one '#'.
std::string without_numbers(const std::string& line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(line[i])) != 0;
    const bool inside = (line[i] == '.' || line[i] == ',' || line[i] == 'e' || line[i] == '-' || line[i] == '+') && !out.empty() &&
                        out.back() == '#' && i + 1 < line.size() &&
                        (std::isdigit(static_cast<unsigned char>(line[i + 1])) != 0 || line[i + 1] == '-' || line[i + 1] == '+');
    if (!digit && !inside) {
      out += line[i];
    } else if (out.empty() || out.back() != '#') {
      // A sign belongs to the number: -0 and 0 differ by rounding only.
      const bool sign = !out.empty() && (out.back() == '-' || out.back() == '+');
      if (sign && (out.size() == 1 || std::isspace(static_cast<unsigned char>(out[out.size() - 2])) != 0)) out.pop_back();
      out += '#';
    }
  }
  // Columns move when a number gets a digit more.
  out.erase(std::unique(out.begin(), out.end(), [](char a, char b) { return a == ' ' && b == ' '; }), out.end());
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) out.push_back(line);
  return out;
}

}  // namespace

std::vector<Step> abba_schedule(const std::vector<std::string>& variants, int rounds) {
  std::vector<Step> out;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::string> order = variants;
    if (round % 2 == 1) std::reverse(order.begin(), order.end());
    for (const std::string& variant : order) out.push_back({round, variant});
  }
  return out;
}

std::vector<Comparison> compare(const std::vector<std::string>& variants, const std::vector<OneRun>& runs, const std::vector<int>& rounds,
                                const Headline& headline) {
  std::vector<Comparison> out;
  const int last = rounds.empty() ? -1 : *std::max_element(rounds.begin(), rounds.end());
  for (std::size_t v = 1; v < variants.size(); ++v) {
    Comparison one;
    one.variant = variants[v];
    one.baseline = variants.front();
    std::vector<double> logs;
    for (int round = 0; round <= last; ++round) {
      const OneRun* base = run_of(runs, rounds, one.baseline, round);
      const OneRun* ours = run_of(runs, rounds, one.variant, round);
      if (base == nullptr || ours == nullptr) continue;
      const auto pair = headline_pair(*base, *ours, headline);
      if (!pair || pair->base <= 0 || pair->ours <= 0) continue;
      one.ratios.push_back(headline.lower_is_better ? pair->base / pair->ours : pair->ours / pair->base);
      logs.push_back(std::log(one.ratios.back()));
    }
    if (one.ratios.empty()) continue;
    one.speedup = median(one.ratios);
    one.interval = bootstrap_median(one.ratios);
    one.test = signed_rank_test(logs);
    out.push_back(std::move(one));
  }
  return out;
}

std::string compare_outputs(const std::string& stock, const std::string& ours) {
  if (stock.empty() && ours.empty()) return "";
  if (stock == ours) return "stock and ipexrun printed the same output";
  const std::vector<std::string> a = lines_of(stock);
  const std::vector<std::string> b = lines_of(ours);
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < a.size() && i < b.size() && without_numbers(a[i]) == without_numbers(b[i])) continue;
    const std::string left = i < a.size() ? "'" + a[i].substr(0, kShownLine) + "'" : "nothing";
    const std::string right = i < b.size() ? "'" + b[i].substr(0, kShownLine) + "'" : "nothing";
    return fmt::format("the outputs differ from line {} on: stock printed {}, ipexrun {}", i + 1, left, right);
  }
  return "stock and ipexrun printed the same output apart from numbers";
}

}  // namespace ipexrun::launcher::bench
