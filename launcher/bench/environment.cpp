#include "launcher/bench/environment.h"

#include <ctime>

#include "configs/base/isa.h"
#include "configs/contract/env.h"
#include "launcher/plan/show.h"
#include "launcher/run/system_facts.h"

namespace ipexrun::launcher::bench {
namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// The variables set for an instance, without what is about this run's plumbing only.
std::string variables(const InstancePlan& instance) {
  std::vector<std::string> words;
  for (const auto& [name, value] : instance.env) words.push_back(name + '=' + value);
  std::string out = shell_quoted(words);
  for (const std::string& name : instance.unset_env) out += " -" + name;
  return out;
}

std::string instances_text(const LaunchPlan& plan) {
  std::string out;
  for (const InstancePlan& one : plan.instances) {
    out += (out.empty() ? "" : "; ") + std::to_string(one.index) + ": ";
    out += !plan.pin || one.cpus.empty() ? "not pinned" : "cpus " + cpu_list_text(one.cpus);
    if (one.memory_policy == MemoryPolicy::kBind) out += ", memory of nodes " + cpu_list_text(one.numa_nodes);
    if (one.threads > 0) out += ", " + std::to_string(one.threads) + (one.threads == 1 ? " thread" : " threads");
  }
  return out;
}

std::string reason_value(const LaunchPlan& plan, const char* subject) {
  for (const Reason& reason : plan.reasons) {
    if (reason.subject == subject && !reason.value.empty()) return reason.value;
  }
  return "";
}

std::string trimmed_number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string shell_quoted(const std::vector<std::string>& argv) {
  std::string out;
  for (const std::string& word : argv) {
    if (!out.empty()) out += ' ';
    const bool plain =
        !word.empty() &&
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") == std::string::npos;
    if (plain) {
      out += word;
      continue;
    }
    out += '\'';
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

ProcessFacts parse_process(const std::string& text) {
  ProcessFacts out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(", ", begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    if (part.rfind("torch ", 0) == 0) {
      out.torch = part.substr(6);
    } else if (part.find(" thread") != std::string::npos) {
      out.threads = part.substr(0, part.find(' '));
    } else if (level_from_name(part)) {
      out.isa = part;
    }
    begin = end + 2;
  }
  return out;
}

std::vector<Fact> read_environment(const Options& options, const Machine& machine, const LaunchPlan& plan, const std::string& process) {
  const SystemFacts system = read_system_facts(options.sysroot);
  const ProcessFacts torch = parse_process(process);
  const InstancePlan first = plan.instances.empty() ? InstancePlan{} : plan.instances.front();
  return {
      {"date", utc_now(), "when the runs ended (UTC)"},
      {"ipexrun", IPEXRUN_VERSION, "version"},
      {"command", shell_quoted(first.argv), "the program's command line"},
      {"instances", instances_text(plan), "binding of each instance of the ipexrun variant"},
      {"variables", variables(first), "environment variables set for instance 0; a leading - marks one that was removed"},
      {"dtype", options.dtype, "--dtype"},
      {"allocator", reason_value(plan, "allocator"), "memory allocator"},
      {"omp_runtime", reason_value(plan, "omp"), "OpenMP runtime"},
      {"torch", torch.torch, "version that the program loaded"},
      {"torch_threads", torch.threads, "size of torch's intra-op pool"},
      {"isa_used", torch.isa, "level that ipexrun's kernels used in the process"},
      {"isa_cpu", std::string(level_name(machine.isa)), "highest level of the CPU"},
      {"cpu", machine.name, "CPU model"},
      {"cores", std::to_string(machine.cores.size()) + " usable of " + std::to_string(machine.total_cores), "physical cores"},
      {"numa_nodes", std::to_string(machine.nodes.size()), "NUMA nodes with usable cores or memory"},
      {"quota", machine.quota_cpus > 0 ? trimmed_number(machine.quota_cpus) + " CPUs" : "none", "cgroup CPU quota"},
      {"governor", system.governor, "cpufreq governor of CPU 0"},
      {"load", system.load, "load average of the last minute, at the end"},
      {"memory", system.memory_total + " (" + system.memory_free + " available)", "main memory"},
      {"huge_pages", system.huge_pages, "transparent huge pages"},
      {"numa_balancing", system.numa_balancing, "kernel.numa_balancing"},
      {"kernel", system.kernel, "kernel"},
      {"os", system.os, "distribution"},
      {"glibc", system.glibc, "C library"},
      {"container", system.container, "container, if something says so"},
  };
}

}  // namespace ipexrun::launcher::bench
