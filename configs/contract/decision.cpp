#include "configs/contract/decision.h"

#include <array>
#include <charconv>

namespace ipexrun {

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
  const std::string_view digits = field[4].substr(2);
  SiteKey key;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), key.threads);
  if (failure != std::errc() || end != digits.data() + digits.size()) return false;
  key.op = field[0];
  key.dtypes = field[1];
  key.layouts = field[2];
  key.sizes = field[3];
  key.isa = field[5];
  key.torch = field[6];
  *out = std::move(key);
  return true;
}

}  // namespace ipexrun
