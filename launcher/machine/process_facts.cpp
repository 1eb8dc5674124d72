#include "launcher/machine/process_facts.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>

#include "configs/base/isa_variants.h"
#include "launcher/machine/text_files.h"
#include "launcher/plan/show.h"

namespace ipexrun::launcher {
namespace {

constexpr int kMostCpus = 65536;
constexpr int kMostNodes = 1024;  // the kernel's own MAX_NUMNODES; get_mempolicy refuses less than it has

std::vector<int> bits_of(const std::vector<unsigned long>& mask) {
  constexpr std::size_t kBits = sizeof(unsigned long) * 8;
  std::vector<int> out;
  for (std::size_t i = 0; i < mask.size() * kBits; ++i)
    if ((mask[i / kBits] >> (i % kBits) & 1ul) != 0) out.push_back(static_cast<int>(i));
  return out;
}

std::optional<std::vector<int>> live_affinity() {
  std::vector<unsigned long> mask(kMostCpus / (sizeof(unsigned long) * 8), 0);
  if (::syscall(SYS_sched_getaffinity, 0, mask.size() * sizeof(unsigned long), mask.data()) <= 0) return std::nullopt;
  return bits_of(mask);
}

std::string live_memory_policy() {
  int mode = 0;
  std::vector<unsigned long> mask(kMostNodes / (sizeof(unsigned long) * 8), 0);
  if (::syscall(SYS_get_mempolicy, &mode, mask.data(), static_cast<unsigned long>(kMostNodes), nullptr, 0ul) != 0) return "";
  return memory_policy_text(mode, bits_of(mask));
}

/// Capabilities count only where they are those of the host: in a user namespace (rootless containers) they do not lift the limit.
bool live_any_number_of_tasks() {
  constexpr unsigned kCapSysAdmin = 21;
  constexpr unsigned kCapSysResource = 24;
  if (const auto map = first_line("/proc/self/uid_map")) {
    std::vector<std::string> words;
    for (const std::string& word : words_of(*map, ' '))
      if (!word.empty()) words.push_back(word);
    if (words.size() != 3 || words[1] != "0" || words[2] != "4294967295") return false;
  }
  if (::getuid() == 0) return true;
  const std::string text = value_of("/proc/self/status", "CapEff").value_or("0");
  std::uint64_t capabilities = 0;
  std::from_chars(text.data(), text.data() + text.size(), capabilities, 16);
  return (capabilities >> kCapSysAdmin & 1u) != 0 || (capabilities >> kCapSysResource & 1u) != 0;
}

ProcessFacts live_facts() {
  ProcessFacts out;
  out.affinity = live_affinity();
  out.memory_policy = live_memory_policy();
  out.any_number_of_tasks = live_any_number_of_tasks();
  const std::optional<long> most = max_processes("");
  if (!out.any_number_of_tasks && most && *most < kPlentyOfThreads) out.user_tasks = count_user_tasks("/proc", ::getuid());
  out.isa = isa_of_cpu();
  out.isa_process = isa_of_process();
  out.isa_kernels = isa_of_variants(IPEXRUN_KERNEL_VARIANT_NAMES);
  out.amx_refused = isa_has(*out.isa, kIsaAmxBf16) && !request_amx_permission();
  return out;
}

}  // namespace

// Names and numbers: linux/mempolicy.h. The flags in the upper bits (static nodes, NUMA balancing) change nothing for us.
std::string memory_policy_text(int mode, const std::vector<int>& nodes) {
  static constexpr std::array<const char*, 7> kModes{
      "", "preferred", "bind", "interleave", "local", "preferred-many", "weighted-interleave"};
  constexpr int kFlags = 0xe000;
  mode &= ~kFlags;
  if (mode == 0) return "";
  if (mode < 0 || mode >= static_cast<int>(kModes.size())) return "mode " + std::to_string(mode);
  const std::string name = kModes[static_cast<std::size_t>(mode)];
  if (nodes.empty()) return mode == 1 ? "local" : name;  // kernels before 5.14 call "local" a preference for no node
  return name + ":" + cpu_list_text(nodes);
}

long count_user_tasks(const std::string& proc, unsigned user) {
  const std::string own = std::to_string(user);
  long out = 0;
  for (const std::string& name : names_in(proc)) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string status = whole_file(proc + "/" + name + "/status").value_or("");  // "" = it has ended by now
    const std::string users = value_in(status, "Uid").value_or("");
    if (users.substr(0, users.find_first_of(" \t")) != own) continue;
    out += static_cast<long>(whole_number_in(value_in(status, "Threads").value_or("1")).value_or(1));
  }
  return out;
}

std::optional<long> max_processes(const std::string& sysroot) {
  const auto line = value_of(sysroot + "/proc/self/limits", "Max processes");
  if (!line) return std::nullopt;
  const auto most = whole_number_in(line->substr(0, line->find(' ')));
  if (!most) return std::nullopt;
  return static_cast<long>(std::min<std::uint64_t>(*most, 1ull << 40));
}

ProcessFacts read_process_facts(const std::string& sysroot) {
  if (sysroot.empty()) return live_facts();
  ProcessFacts out;
  const std::string known = whole_file(sysroot + "/ipexrun/process.txt").value_or("");
  if (const auto text = value_in(known, "affinity"))
    if (auto list = parse_cpu_list(*text); list.ok()) out.affinity = *list;
  out.memory_policy = value_in(known, "memory_policy").value_or("");
  if (out.memory_policy == "default") out.memory_policy.clear();
  out.any_number_of_tasks = value_in(known, "any_number_of_tasks").value_or("") == "yes";
  if (const auto text = value_in(known, "user_tasks"))
    if (const auto count = whole_number_in(*text)) out.user_tasks = static_cast<long>(*count);
  const auto isa_in = [&known](const char* key) -> std::optional<IsaSet> {
    const auto text = value_in(known, key);
    const auto bits = text ? whole_number_in(*text) : std::nullopt;
    return bits ? std::optional(static_cast<IsaSet>(*bits)) : std::nullopt;
  };
  out.isa = isa_in("isa_bits");
  out.isa_process = isa_in("isa_process_bits");
  out.isa_kernels = isa_in("isa_kernels_bits");
  out.amx_refused = value_in(known, "amx_refused").value_or("") == "yes";
  return out;
}

std::string process_facts_text(const ProcessFacts& facts) {
  std::string out;
  const auto add = [&out](const char* key, const std::string& value) { out += std::string(key) + ": " + value + "\n"; };
  if (facts.affinity) add("affinity", cpu_list_text(*facts.affinity));
  add("memory_policy", facts.memory_policy.empty() ? "default" : facts.memory_policy);
  add("any_number_of_tasks", facts.any_number_of_tasks ? "yes" : "no");
  if (facts.user_tasks) add("user_tasks", std::to_string(*facts.user_tasks));
  if (facts.isa) {
    add("isa_level", std::string(level_name(*facts.isa)));
    add("isa_bits", std::to_string(*facts.isa));
  }
  if (facts.isa_process) add("isa_process_bits", std::to_string(*facts.isa_process));
  if (facts.isa_kernels) add("isa_kernels_bits", std::to_string(*facts.isa_kernels));
  add("amx_refused", facts.amx_refused ? "yes" : "no");
  return out;
}

}  // namespace ipexrun::launcher
