#include "launcher/cli/help_text.h"

#include <algorithm>
#include <sstream>

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kWidth = 108;

}  // namespace

std::string help_entry(const std::string& name, const std::string& text, std::size_t column) {
  std::string out = "  " + name;
  if (out.size() + 2 > column) {
    out += "\n" + std::string(column, ' ');
  } else {
    out.append(column - out.size(), ' ');
  }
  std::size_t used = column;
  std::istringstream words(text);
  bool first = true;
  for (std::string word; words >> word; first = false) {
    if (!first && used + 1 + word.size() > kWidth) {
      out += "\n" + std::string(column, ' ');
      used = column;
    } else if (!first) {
      out += ' ';
      ++used;
    }
    out += word;
    used += word.size();
  }
  return out + "\n";
}

std::string help_entries(const Pairs& rows) {
  std::string out;
  std::size_t column = 0;
  for (const auto& [name, text] : rows) column = std::max(column, name.size() + 4);
  for (const auto& [name, text] : rows) out += help_entry(name, text, column);
  return out;
}

std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  if (!out.empty() && (out[0] == '.' || out[0] == '\'')) out.insert(0, "\\&");
  return out;
}

std::string roff_list(const Pairs& rows) {
  std::string out;
  for (const auto& [name, text] : rows) out += ".TP\n.B " + roff(name) + "\n" + roff(text) + "\n";
  return out;
}

}  // namespace ipexrun::launcher
