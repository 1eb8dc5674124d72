#include "launcher/machine/placeholders.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

namespace ipexrun::launcher {
namespace {

/// Words that say what kind of group it is, and nothing about whose.
const std::set<std::string>& common_words() {
  static const std::set<std::string> words = {
      "sys",      "fs",      "cgroup",  "unified",  "cpu",       "cpuacct",    "cpuset",     "memory",     "pids",    "blkio",
      "devices",  "freezer", "systemd", "hugetlb",  "net",       "cls",        "prio",       "perf",       "event",   "rdma",
      "misc",     "io",      "dev",     "kubepods", "burstable", "besteffort", "guaranteed", "pod",        "docker",  "containerd",
      "cri",      "crio",    "podman",  "libpod",   "conmon",    "payload",    "machine",    "system",     "user",    "session",
      "app",      "init",    "slice",   "scope",    "service",   "slurm",      "slurmd",     "slurmstepd", "uid",     "job",
      "step",     "batch",   "extern",  "task",     "lxc",       "monitor",    "garden",     "ecs",        "kubelet", "runtime",
      "buildkit", "k3s",     "nomad",   "mesos",    "yarn",      "sandbox",    "actions"};
  return words;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

}  // namespace

std::string Placeholders::part(const std::string& original) {
  if (original.empty() || original == "..") return original;
  std::string out;
  std::string hidden;     // a run of words that are not common, with what stands between them
  std::string separator;  // what stands between the last word and the next
  const auto close = [&] {
    if (hidden.empty()) return;
    out += ids_.emplace(hidden, "id" + std::to_string(ids_.size() + 1)).first->second;
    hidden.clear();
  };
  for (std::size_t at = 0; at < original.size();) {
    std::size_t end = at;
    while (end < original.size() && is_word(original[end]) == is_word(original[at])) ++end;
    const std::string piece = original.substr(at, end - at);
    at = end;
    if (!is_word(piece[0])) {
      separator = piece;
      continue;
    }
    if (common_words().count(piece) != 0) {
      close();
      out += separator + piece;
    } else {
      if (hidden.empty()) {
        out += separator;
      } else {
        hidden += separator;
      }
      hidden += piece;
    }
    separator.clear();
  }
  close();
  return out + separator;
}

std::string Placeholders::path(const std::string& original) {
  std::string out;
  for (std::size_t at = 0; at < original.size();) {
    const std::size_t end = std::min(original.find('/', at), original.size());
    out += part(original.substr(at, end - at));
    if (end < original.size()) out += '/';
    at = end + 1;
  }
  if (out != original) paths_[original] = out;
  return out;
}

std::string Placeholders::text(std::string original) const {
  std::vector<std::pair<std::string, std::string>> longest_first(paths_.begin(), paths_.end());
  std::sort(longest_first.begin(), longest_first.end(), [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const auto& [from, to] : longest_first)
    for (std::size_t at = 0; (at = original.find(from, at)) != std::string::npos; at += to.size()) original.replace(at, from.size(), to);
  return original;
}

}  // namespace ipexrun::launcher
