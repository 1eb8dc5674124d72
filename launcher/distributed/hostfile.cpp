#include "launcher/distributed/hostfile.h"

#include <arpa/inet.h>

#include <algorithm>
#include <set>
#include <sstream>

namespace ipexrun::launcher {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos &&
         text.find_first_not_of('0') != std::string::npos;
}

/// Names and addresses; nothing that an engine could take for an option.
bool is_host(const std::string& text) {
  if (text.empty() || text.front() == '-') return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_'; });
}

bool is_ipv6(const std::string& text) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

bool is_slots(const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  return equals != std::string::npos && (name == "slots" || name == "max-slots" || name == "max_slots") &&
         is_number(word.substr(equals + 1));
}

}  // namespace

Result<std::vector<HostLine>> parse_hostfile(const std::string& path, const std::string& text) {
  std::vector<HostLine> out;
  std::set<std::string> seen;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    HostLine host;
    host.line = number;
    if (!(words >> host.host)) continue;
    const std::string where = path + ":" + std::to_string(number) + ": ";
    host.ipv6 = is_ipv6(host.host);
    const std::size_t colon = host.host.find(':');
    if (colon != std::string::npos && !host.ipv6) {
      if (!is_number(host.host.substr(colon + 1)))
        return Error{kExitUsage, where + "'" + host.host + "' is no host", "one host a line: NAME, NAME slots=N or NAME:N"};
      host.hydra_form = true;
      host.host.resize(colon);
    }
    if (!host.ipv6 && !is_host(host.host))
      return Error{kExitUsage, where + "'" + host.host + "' is no host", "one host a line: NAME, NAME slots=N or NAME:N"};
    for (std::string word; words >> word;) {
      if (!is_slots(word))
        return Error{kExitUsage, where + "'" + word + "' is not understood", "one host a line: NAME, NAME slots=N or NAME:N"};
      host.open_mpi_form = true;
    }
    if (!seen.insert(host.host).second)
      return Error{kExitUsage, where + "host '" + host.host + "' is there twice", "one line a host; --nprocs-per-node counts its ranks"};
    out.push_back(host);
  }
  if (out.empty()) return Error{kExitUsage, "hostfile '" + path + "' names no host", "one host a line"};
  return out;
}

}  // namespace ipexrun::launcher
