#include <algorithm>
#include <charconv>

#include "launcher/plan/show.h"

namespace ipexrun::launcher {
namespace {

/// More than any kernel's CPU count; keeps "0-4000000000" from filling the memory.
constexpr int kMostCpus = 65536;

Error bad_list(const std::string& text) {
  return Error{kExitUsage, "'" + text + "' is no list of numbers", "for example 0-3,8 (numbers below " + std::to_string(kMostCpus) + ")"};
}

}  // namespace

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::vector<int> sorted = cpus;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::string out;
  for (std::size_t first = 0; first < sorted.size();) {
    std::size_t last = first;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    if (!out.empty()) out += ',';
    out += std::to_string(sorted[first]);
    if (last > first) out += "-" + std::to_string(sorted[last]);
    first = last + 1;
  }
  return out;
}

Result<std::vector<int>> parse_cpu_list(const std::string& text) {
  std::vector<int> out;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  while (at != end) {
    int first = 0;
    auto [after, failure] = std::from_chars(at, end, first);
    if (failure != std::errc() || first < 0 || first >= kMostCpus) return bad_list(text);
    int last = first;
    if (after != end && *after == '-') {
      const auto second = std::from_chars(after + 1, end, last);
      if (second.ec != std::errc() || last < first || last >= kMostCpus) return bad_list(text);
      after = second.ptr;
    }
    for (int cpu = first; cpu <= last; ++cpu) out.push_back(cpu);
    if (after != end && (*after != ',' || after + 1 == end)) return bad_list(text);
    at = after == end ? end : after + 1;
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace ipexrun::launcher
