#include "configs/contract/decision.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace ipexrun {
namespace {

template <typename Number>
bool parse_number(std::string_view text, Number* out) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return failure == std::errc() && end == text.data() + text.size();
}

/// A choice is a short word: longer ones, and bytes that are no text, come from a damaged file.
bool is_word(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  return !text.empty() && text.size() <= kLongest && std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

std::string SiteKey::text() const {
  return op + '|' + dtypes + '|' + layouts + '|' + sizes + "|t=" + std::to_string(threads) + '|' + isa + '|' + torch;
}

bool parse_site_key(std::string_view text, SiteKey* out) {
  std::array<std::string_view, 7> field;
  for (std::size_t i = 0; i < field.size(); ++i) {
    const std::size_t bar = text.find('|');
    if ((bar == std::string_view::npos) != (i + 1 == field.size())) return false;
    field[i] = text.substr(0, bar);
    if (bar != std::string_view::npos) text.remove_prefix(bar + 1);
  }
  if (field[4].substr(0, 2) != "t=") return false;
  SiteKey key;
  if (!parse_number(field[4].substr(2), &key.threads)) return false;
  key.op = field[0];
  key.dtypes = field[1];
  key.layouts = field[2];
  key.sizes = field[3];
  key.isa = field[5];
  key.torch = field[6];
  *out = std::move(key);
  return true;
}

std::string decision_line(const Decision& decision) {
  return decision.site.text() + '\t' + decision.choice + '\t' + std::to_string(decision.stock_ns) + '\t' +
         std::to_string(decision.choice_ns) + '\t' + std::to_string(decision.samples) + '\t' + decision.reason + '\t' + decision.dtype +
         '\t' + std::to_string(decision.decided_at);
}

bool parse_decision_line(std::string_view line, Decision* out) {
  std::array<std::string_view, 8> field;
  for (std::size_t i = 0; i < field.size(); ++i) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos && i + 1 < field.size()) return false;
    field[i] = line.substr(0, tab);
    line.remove_prefix(tab == std::string_view::npos ? line.size() : tab + 1);
  }
  Decision decision;
  if (!parse_site_key(field[0], &decision.site) || !is_word(field[1]) || !parse_number(field[2], &decision.stock_ns) ||
      !parse_number(field[3], &decision.choice_ns) || !parse_number(field[4], &decision.samples) ||
      !parse_number(field[7], &decision.decided_at) || decision.stock_ns < 0 || decision.choice_ns < 0 || decision.samples < 0) {
    return false;
  }
  decision.choice = field[1];
  decision.reason = field[5];
  decision.dtype = field[6];
  *out = std::move(decision);
  return true;
}

}  // namespace ipexrun
