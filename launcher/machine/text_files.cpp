#include "launcher/machine/text_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/plan/show.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

constexpr const char* kBlanks = " \t\r\n";

}  // namespace

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!in || !std::getline(in, line)) return std::nullopt;
  return line;
}

// By read(2): a stream's iterator throws where the kernel refuses to read what it let be opened (EIO, a folder).
std::optional<std::string> whole_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while ((got = ::read(fd, part.data(), part.size())) > 0 || (got < 0 && errno == EINTR))
    if (got > 0) text.append(part.data(), static_cast<std::size_t>(got));
  ::close(fd);
  if (got < 0) return std::nullopt;
  return text;
}

std::optional<std::string> value_in(std::string_view text, std::string_view key) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t newline = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, newline - at);
    at = newline + 1;
    if (!line.starts_with(key)) continue;
    const std::size_t after = line.find_first_not_of(kBlanks, key.size());
    if (after == std::string_view::npos || (after == key.size() && line[after] != ':')) continue;  // a longer key, or no value
    const std::size_t begin = line.find_first_not_of(kBlanks, line[after] == ':' ? after + 1 : after);
    if (begin == std::string_view::npos) return "";
    return std::string(line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin));
  }
  return std::nullopt;
}

std::optional<std::string> value_of(const std::string& path, std::string_view key) { return value_in(whole_file(path).value_or(""), key); }

std::vector<std::string> words_of(const std::string& line, char separator) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string word; std::getline(in, word, separator);) out.push_back(word);
  return out;
}

std::optional<double> number_in(const std::string& text) {
  const std::optional<double> value = parse_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::uint64_t> whole_number_in(const std::string& text) { return parse_number<std::uint64_t>(text); }

std::uint64_t meminfo_bytes(std::string_view meminfo, std::string_view key) {
  const std::string text = value_in(meminfo, key).value_or("");
  return whole_number_in(text.substr(0, text.find(' '))).value_or(0) * 1024;
}

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
