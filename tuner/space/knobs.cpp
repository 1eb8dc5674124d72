#include "tuner/space/knobs.h"

namespace ipexrun::tuner {
namespace {

using Effect = std::optional<KnobEffect>;

Effect count(const Value& value, const char* option) {
  const auto* n = std::get_if<std::int64_t>(&value);
  if (n == nullptr || *n == 0 || *n < -1) return std::nullopt;
  return *n == -1 ? KnobEffect{} : KnobEffect{{{option, std::to_string(*n)}}, {}};
}

/// -1: no flag, 0, 1.
int flag_of(const Value& value) {
  const std::string text = text_of(value);
  if (text == "true" || text == "True" || text == "1") return 1;
  return text == "false" || text == "False" || text == "0" ? 0 : -1;
}

Effect flag(const Value& value, const char* option, const char* on = "true") {
  const int set = flag_of(value);
  if (set < 0) return std::nullopt;
  return set == 1 ? KnobEffect{{{option, on}}, {}} : KnobEffect{};
}

Effect cores(const Value& v) { return count(v, "ncores-per-instance"); }
Effect instances(const Value& v) { return count(v, "ninstances"); }
Effect logical(const Value& v) { return flag(v, "use-logical-cores"); }
Effect numactl(const Value& v) { return flag(v, "no-memory-bind"); }
Effect iomp(const Value& v) { return flag(v, "omp-runtime", "default"); }

Effect all_nodes(const Value& v) {
  const int set = flag_of(v);
  if (set < 0) return std::nullopt;
  return set == 1 ? KnobEffect{} : KnobEffect{{{"nodes-list", "0"}}, {}};
}

Effect malloc_word(const Value& v) {
  const std::string text = text_of(v);
  if (text == "tc") return KnobEffect{{{"memory-allocator", "tcmalloc"}}, {}};
  if (text == "je") return KnobEffect{{{"memory-allocator", "jemalloc"}}, {}};
  return text == "pt" || text == "default" ? Effect(KnobEffect{{{"memory-allocator", "default"}}, {}}) : std::nullopt;
}

Effect wait_policy(const Value& v) {
  const std::string text = text_of(v);
  if (text == "default") return KnobEffect{};
  if (text == "active") return KnobEffect{{}, {{"OMP_WAIT_POLICY", "ACTIVE"}}};
  return text == "passive" ? Effect(KnobEffect{{}, {{"OMP_WAIT_POLICY", "PASSIVE"}}}) : std::nullopt;
}

Effect thp(const Value& v) {
  const std::string text = text_of(v);
  if (text == "on") return KnobEffect{{}, {{"THP_MEM_ALLOC_ENABLE", "1"}}};
  return text == "off" ? Effect(KnobEffect{}) : std::nullopt;
}

std::vector<Value> words(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

std::vector<Value> all_logical(const launcher::Machine& machine) { return core_counts("all_logical_cores", machine); }
std::vector<Value> both(const launcher::Machine&) { return words({"true", "false"}); }
std::vector<Value> nodes(const launcher::Machine& machine) {
  return words(machine.nodes.size() > 1 ? std::vector<std::string>{"true", "false"} : std::vector<std::string>{"true"});
}

std::vector<Value> smt(const launcher::Machine& machine) {
  for (const launcher::Core& core : machine.cores)
    if (core.pus.size() > 1) return words({"true", "false"});
  return words({"false"});
}

std::vector<Value> mallocs(const launcher::Machine&) { return words({"tc", "je", "pt"}); }
std::vector<Value> policies(const launcher::Machine&) { return words({"default", "active", "passive"}); }
std::vector<Value> pages(const launcher::Machine&) { return words({"off", "on"}); }

}  // namespace

const std::vector<Knob>& knobs() {
  static const std::vector<std::string> kBool = {"true", "false"};
  static const std::vector<Knob> table = {
      {"omp-wait-policy",
       "how OpenMP threads wait: OMP_WAIT_POLICY, or the runtime's default",
       false,
       {"default", "active", "passive"},
       wait_policy,
       policies},
      {"thp", "on: torch asks for huge pages for its tensors (THP_MEM_ALLOC_ENABLE)", false, {"off", "on"}, thp, pages},
      {"ncore_per_instance", "ncores-per-instance; -1 leaves it alone", true, {}, cores, all_logical},
      {"ncores_per_instance", "the same", true, {}, cores, all_logical},
      {"ninstances", "ninstances; -1 leaves it alone", true, {}, instances, all_logical},
      {"use_all_nodes", "false: nodes-list 0", true, kBool, all_nodes, nodes},
      {"use_logical_core", "use-logical-cores", true, kBool, logical, smt},
      {"use_logical_cores", "the same", true, kBool, logical, smt},
      {"disable_numactl", "no-memory-bind", true, kBool, numactl, both},
      {"disable_iomp", "true: omp-runtime default", true, kBool, iomp, both},
      {"malloc",
       "memory-allocator: tc tcmalloc, je jemalloc, pt the program's own",
       true,
       {"tc", "je", "pt", "default"},
       malloc_word,
       mallocs},
  };
  return table;
}

const Knob* find_knob(const std::string& name) {
  for (const Knob& one : knobs())
    if (name == one.name) return &one;
  return nullptr;
}

std::vector<Value> core_counts(const std::string& word, const launcher::Machine& machine) {
  std::size_t n = 0;
  if (word == "all_physical_cores") n = machine.cores.size();
  if (word == "all_logical_cores")
    for (const launcher::Core& core : machine.cores) n += core.pus.size();
  std::vector<Value> out;
  for (std::size_t i = 1; i <= n; ++i) out.emplace_back(static_cast<std::int64_t>(i));
  return out;
}

}  // namespace ipexrun::tuner
