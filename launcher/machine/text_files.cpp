#include "launcher/machine/text_files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "launcher/plan/show.h"

namespace ipexrun::launcher {
namespace {

constexpr const char* kBlanks = " \t\r\n";

template <typename T>
std::optional<T> parsed(const std::string& text) {
  T value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!in || !std::getline(in, line)) return std::nullopt;
  return line;
}

std::optional<std::string> whole_file(const std::string& path) {
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure)) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (in.bad()) return std::nullopt;
  return text;
}

std::optional<std::string> value_of(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const std::size_t after = line.find_first_not_of(kBlanks, key.size());
    if (after == std::string::npos || (after == key.size() && line[after] != ':')) continue;  // a longer key, or no value
    const std::size_t begin = line.find_first_not_of(kBlanks, line[after] == ':' ? after + 1 : after);
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
  }
  return std::nullopt;
}

std::vector<std::string> words_of(const std::string& line, char separator) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string word; std::getline(in, word, separator);) out.push_back(word);
  return out;
}

std::optional<double> number_in(const std::string& text) {
  const std::optional<double> value = parsed<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::uint64_t> whole_number_in(const std::string& text) { return parsed<std::uint64_t>(text); }

std::optional<std::vector<int>> list_in(const std::string& path) {
  const std::optional<std::string> line = first_line(path);
  if (!line) return std::nullopt;
  Result<std::vector<int>> list = parse_cpu_list(*line);
  if (!list.ok()) return std::nullopt;
  return *list;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code failure;
  for (std::filesystem::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure))
    out.push_back(it->path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace ipexrun::launcher
