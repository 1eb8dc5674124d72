// Second half of placement.h: the pool is cut into instances.
#include <algorithm>
#include <map>
#include <set>

#include "launcher/plan/placement.h"
#include "launcher/plan/show.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kLatencyCores = 4;

/// How many instances of how many CPUs; 0 instances = as many as fit.
struct Shape {
  std::size_t instances = 0;
  std::size_t size = 0;
};

/// All that the choice looks at.
struct Task {
  const Options& options;
  const Machine& machine;
  const Pool& pool;
  const Domains& domains;
  Level last;  ///< no instance leaves a domain of this level
  std::vector<Reason>& reasons;

  void because(const std::string& value, const std::string& text) const { reasons.push_back({"instances", value, text}); }
  [[nodiscard]] std::string noun() const { return unit_noun(options); }
  [[nodiscard]] std::size_t total() const { return pool.units.size(); }
};

Slot slot_of(const Pool& pool, const Cut& cut) {
  Slot out;
  std::set<int> nodes;
  for (const std::size_t index : cut) {
    out.cpus.push_back(pool.units[index].cpu);
    nodes.insert(pool.units[index].node);
  }
  std::sort(out.cpus.begin(), out.cpus.end());
  out.nodes.assign(nodes.begin(), nodes.end());
  return out;
}

bool knows_l3(const Task& task) {
  return std::any_of(task.pool.units.begin(), task.pool.units.end(),
                     [&](const Unit& unit) { return task.machine.cores[static_cast<std::size_t>(unit.core)].l3 >= 0; });
}

std::string domain_noun(const Task& task, Level level) {
  switch (level) {
    case Level::kCore:
      return "core";
    case Level::kKind:
    case Level::kL3:
      return knows_l3(task) ? "L3 domain" : "NUMA node";
    case Level::kPart:
    case Level::kNode:
      return "NUMA node";
    case Level::kPackage:
      return "socket";
    case Level::kMachine:
      break;
  }
  return "machine";
}

std::string plural(const std::string& noun) { return noun + "s"; }

/// The option that keeps instances within `last`, as the user wrote it.
std::string keeper(const Options& options) {
  if (!options.place.empty()) return "--place " + options.place;
  return options.bind_numa_node ? "--bind-numa-node" : "--skip-cross-node-cores";
}

/// "42", or "42 to 43".
std::string sizes_text(const std::vector<Cut>& cuts) {
  const auto [least, most] = std::minmax_element(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.size() < b.size(); });
  const std::string low = std::to_string(least->size());
  return least->size() == most->size() ? low : low + " to " + std::to_string(most->size());
}

bool unequal(const std::vector<Cut>& cuts) {
  return std::any_of(cuts.begin(), cuts.end(), [&](const Cut& cut) { return cut.size() != cuts.front().size(); });
}

Error too_many(const Task& task, const std::string& asked, std::size_t needed) {
  // Hardware threads are an answer where there are some, and where it is cores and not a quota that is short.
  const bool more_threads = !task.options.use_logical_cores && task.pool.limit.empty() &&
                            std::any_of(task.pool.units.begin(), task.pool.units.end(), [&](const Unit& unit) {
                              return task.machine.cores[static_cast<std::size_t>(unit.core)].pus.size() > 1;
                            });
  return Error{kExitUsage,
               asked + " needs " + count_text(needed, task.noun()) + ", but only " + std::to_string(task.total()) +
                   (task.total() == 1 ? " is" : " are") + " usable" + task.pool.limit,
               std::string(more_threads ? "--use-logical-cores counts hardware threads" : "ask for less") +
                   "; ipexrun topology shows what is there"};
}

Error does_not_fit(const Task& task, std::size_t fitting, std::size_t size) {
  const std::string noun = domain_noun(task, task.last);
  return Error{kExitUsage,
               (fitting == 0 ? "no instance of " : "only " + count_text(fitting, "instance") + " of ") + count_text(size, task.noun()) +
                   (fitting > 1 ? " fit" : " fits") + " within single " + plural(noun) + " (the largest has " +
                   std::to_string(task.domains.largest(task.last)) + " usable)",
               "leave out " + keeper(task.options) + ", or ask for less"};
}

/// One instance on all that each domain of the level has.
std::vector<Cut> one_per_domain(const Task& task, Level level, const std::string& asked) {
  std::vector<Cut> out = task.domains.groups(level);
  const std::string each = level == Level::kCore ? "usable core" : domain_noun(task, level) + " with usable cores";
  task.because(std::to_string(out.size()), asked + ": one instance on each " + each);
  if (unequal(out))
    task.because("unequal", "the " + plural(domain_noun(task, level)) + " have " + sizes_text(out) + " usable " + plural(task.noun()));
  return out;
}

/// --bind-numa-node with a number of instances: the nodes take them in proportion to their cores, and each divides its own cores.
Result<std::vector<Cut>> share_over_nodes(const Task& task, std::size_t instances) {
  const std::vector<Cut> nodes = task.domains.groups(Level::kNode);
  std::vector<std::size_t> counts(nodes.size(), 0);
  std::vector<std::size_t> cores;
  for (const Cut& node : nodes) cores.push_back(task.domains.groups(Level::kCore, node).size());
  for (std::size_t placed = 0; placed < instances; ++placed) {
    // The next one goes where an instance would then have the most cores.
    std::size_t best = nodes.size();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (counts[i] == cores[i]) continue;
      if (best == nodes.size() || cores[i] * (counts[best] + 1) > cores[best] * (counts[i] + 1)) best = i;
    }
    if (best == nodes.size()) return too_many(task, "--ninstances " + std::to_string(instances), instances);
    ++counts[best];
  }
  std::vector<Cut> out;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (counts[i] == 0) continue;
    for (Cut& part : deal(task.domains, nodes[i], counts[i])) out.push_back(std::move(part));
  }
  task.because(std::to_string(instances) + " x " + sizes_text(out), "--bind-numa-node with --ninstances " + std::to_string(instances) +
                                                                        ": shared over the NUMA nodes, each divides its own cores");
  return out;
}

Result<Shape> explicit_shape(const Task& task) {
  const Options& options = task.options;
  const auto instances = static_cast<std::size_t>(options.ninstances);
  const auto size = static_cast<std::size_t>(options.ncores_per_instance);
  const std::string n = "--ninstances " + std::to_string(instances);
  const std::string c = "--ncores-per-instance " + std::to_string(size);
  if (instances > 0 && size > 0) {
    if (instances * size > task.total()) return too_many(task, n + " with " + c, instances * size);
    task.because(std::to_string(instances) + " x " + std::to_string(size), n + " and " + c);
    return Shape{instances, size};
  }
  if (size > 0) {
    if (size > task.total()) return too_many(task, c, size);
    return Shape{0, size};
  }
  if (instances > task.total()) return too_many(task, n, instances);
  const Shape shape{instances, largest_size(task.domains, instances, task.last)};
  if (shape.size == 0) return does_not_fit(task, count_cuts(task.domains, 1, task.last), 1);
  const bool smaller = task.last != Level::kMachine && shape.size < task.total() / instances;
  task.because(std::to_string(instances) + " x " + std::to_string(shape.size),
               smaller ? n + ": the largest equal slices of which so many fit, each within one " + domain_noun(task, task.last) + " (" +
                             keeper(options) + ")"
                       : n + ": " + count_text(task.total(), task.noun()) + " in equal slices");
  return shape;
}

/// Where instances are kept as long as they fit, within `last`: the NUMA node, or the part of it that lies in one socket.
Level home_level(Level last) { return last == Level::kPackage ? Level::kPart : std::min(last, Level::kNode); }

Shape latency_shape(const Task& task) {
  Shape shape{0, std::min(kLatencyCores, task.total())};
  // Rather fewer cores within one domain than four across two.
  const Level within = home_level(task.last);
  const std::size_t largest = task.domains.largest(within);
  if (shape.size < kLatencyCores) {
    task.because(std::to_string(shape.size), "--latency-mode wants 4 cores an instance, only " + std::to_string(task.total()) +
                                                 (task.total() == 1 ? " is" : " are") + " usable" + task.pool.limit);
  } else if (largest < shape.size) {
    task.because(std::to_string(largest), "--latency-mode wants 4 cores an instance, the largest " + domain_noun(task, within) + " has " +
                                              std::to_string(largest) + " usable");
  }
  shape.size = std::min(shape.size, largest);
  return shape;
}

/// As many as fit into NUMA nodes; into sockets only where no node has so many cores, across sockets only where no socket has.
Result<std::vector<Cut>> as_many_as_fit(const Task& task, std::size_t size) {
  Level last = home_level(task.last);
  for (const Level wider : {Level::kPackage, Level::kMachine})
    if (wider <= task.last && count_cuts(task.domains, size, last) == 0) last = wider;
  const std::size_t count = count_cuts(task.domains, size, last);
  if (count == 0) return does_not_fit(task, 0, size);
  const std::string asked = task.options.latency_mode ? "--latency-mode" : "--ncores-per-instance " + std::to_string(size);
  const std::size_t domains = task.domains.groups(last).size();
  const std::string room = count_text(task.total(), task.noun());
  task.because(std::to_string(count) + " x " + std::to_string(size),
               asked + ": as many as fit into " +
                   (domains == 1 ? room : "the " + std::to_string(domains) + " " + plural(domain_noun(task, last)) + " (" + room + ")"));
  const std::vector<LevelCuts> fitting = cut_all(task.domains, size, last);
  std::vector<Cut> out = pick(task.domains, fitting, count, false);
  if (!task.options.ninstances_auto) return out;
  const std::size_t most = automatic_count(task.machine, out, task.reasons);
  return most < count ? pick(task.domains, fitting, most, task.options.strategy == "scatter") : out;
}

Result<std::vector<Cut>> exactly(const Task& task, const Shape& shape) {
  const std::size_t fitting = count_cuts(task.domains, shape.size, task.last);
  if (fitting < shape.instances) return does_not_fit(task, fitting, shape.size);
  const bool scatter = task.options.strategy == "scatter";
  if (scatter && fitting > shape.instances) task.because("scattered", "--strategy scatter: round over sockets, NUMA nodes and L3 domains");
  return pick(task.domains, cut_all(task.domains, shape.size, task.last), shape.instances, scatter);
}

/// One instance on everything, or on the largest domain where it may not leave one.
std::vector<Cut> only_one(const Task& task) {
  if (task.last == Level::kMachine) {
    task.because("1", "the default: one instance on all usable cores");
    return {task.domains.all()};
  }
  std::vector<Cut> groups = task.domains.groups(task.last);
  const auto largest = std::max_element(groups.begin(), groups.end(), [](const Cut& a, const Cut& b) { return a.size() < b.size(); });
  task.because("1", "one instance, kept within one " + domain_noun(task, task.last) + " by " + keeper(task.options));
  return {*largest};
}

Result<std::vector<Cut>> choose_cuts(const Task& task) {
  const Options& options = task.options;
  if (options.throughput_mode) return one_per_domain(task, Level::kNode, "--throughput-mode");
  if (options.latency_mode) return as_many_as_fit(task, latency_shape(task).size);
  if (options.ninstances_auto && options.ncores_per_instance == 0)
    return choose_automatically(options, task.machine, task.pool, task.domains, task.last, task.reasons);
  if (options.ninstances == 0 && options.ncores_per_instance == 0)
    return options.place.empty() ? only_one(task) : one_per_domain(task, task.last, "--place " + options.place);
  if (options.bind_numa_node && options.place.empty() && options.ninstances > 0 && options.ncores_per_instance == 0)
    return share_over_nodes(task, static_cast<std::size_t>(options.ninstances));
  const Result<Shape> shape = explicit_shape(task);
  if (!shape.ok()) return shape.error();
  return shape->instances == 0 ? as_many_as_fit(task, shape->size) : exactly(task, *shape);
}

std::vector<int> indices_where(const std::vector<Cut>& cuts, bool (*wanted)(const Domains&, const Cut&), const Domains& domains) {
  std::vector<int> out;
  for (std::size_t i = 0; i < cuts.size(); ++i)
    if (wanted(domains, cuts[i])) out.push_back(static_cast<int>(i));
  return out;
}

/// "the instance spans", "instance 1 spans", "instances 1,4 span".
std::string subject_text(const std::vector<int>& which, std::size_t of, const std::string& verb) {
  if (of == 1) return "the instance " + verb + "s";
  if (which.size() == 1) return "instance " + std::to_string(which.front()) + " " + verb + "s";
  return "instances " + cpu_list_text(which) + " " + verb;
}

void explain_spans(const Task& task, const std::vector<Cut>& cuts) {
  const Domains& domains = task.domains;
  const auto across_nodes = [](const Domains& all, const Cut& cut) { return all.spans(Level::kNode, cut); };
  const auto across_l3 = [](const Domains& all, const Cut& cut) {
    return !all.spans(Level::kPart, cut) && all.spans(Level::kL3, cut) && cut.size() <= all.largest(Level::kL3);
  };
  if (const std::vector<int> spanning = indices_where(cuts, across_nodes, domains); !spanning.empty()) {
    const std::string which = subject_text(spanning, cuts.size(), "span") + " several NUMA nodes: ";
    if (task.last == Level::kPackage && task.options.ncores_per_instance == 0) {
      task.because("spans nodes", which + "--place socket allows it (--place node does not)");
    } else if (cuts.size() == 1 && cuts.front().size() == task.total()) {
      task.because("spans nodes", which + "no node alone has all usable cores (--throughput-mode starts one instance on each)");
    } else if (cuts[static_cast<std::size_t>(spanning.front())].size() > domains.largest(Level::kNode)) {
      task.because("spans nodes", which + "no node alone has so many cores");
    } else {
      task.because("spans nodes", which + "the cores that the others leave on each node are too few (--skip-cross-node-cores avoids it " +
                                      "at the price of cores)");
    }
  }
  if (const std::vector<int> straddling = indices_where(cuts, across_l3, domains); !straddling.empty())
    task.because("shares L3", subject_text(straddling, cuts.size(), "use") +
                                  " cores of several L3 domains: what the others leave of each " +
                                  "is too little (--place l3 avoids it at the price of cores)");
}

void explain_shared_cores(const Task& task, const std::vector<Cut>& cuts) {
  std::map<int, std::size_t> user;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    for (const std::size_t unit : cuts[i]) {
      if (user.try_emplace(task.pool.units[unit].core, i).first->second == i) continue;
      task.because("shared cores", "some cores have hardware threads in two instances: the slices are not whole cores");
      return;
    }
  }
}

void explain_result(const Task& task, const std::vector<Cut>& cuts) {
  std::size_t used = 0;
  for (const Cut& cut : cuts) used += cut.size();
  if (used < task.total())
    task.reasons.push_back({"cores", std::to_string(task.total() - used),
                            task.total() - used == 1 ? "usable " + task.noun() + " that no instance uses"
                                                     : "usable " + plural(task.noun()) + " that no instance uses"});
  if (!task.pool.pin) return;  // then the CPUs are sizes, not places
  explain_spans(task, cuts);
  if (task.options.use_logical_cores) explain_shared_cores(task, cuts);
}

}  // namespace

Level outermost_level(const Options& options) {
  const bool within_node = options.skip_cross_node_cores || options.bind_numa_node;
  if (options.place == "core") return Level::kCore;
  if (options.place == "l3") return Level::kL3;
  if (options.place == "node") return Level::kNode;
  if (options.place == "socket") return within_node ? Level::kPart : Level::kPackage;
  return within_node ? Level::kNode : Level::kMachine;
}

Result<std::vector<Slot>> choose_slots(const Options& options, const Machine& machine, const Pool& pool, std::vector<Reason>& reasons) {
  const Domains domains(machine, pool.units);
  const Task task{options, machine, pool, domains, outermost_level(options), reasons};
  if (task.last == Level::kL3 && !knows_l3(task))
    task.because("no L3", "the machine shows no shared L3 cache: --place l3 acts as --place node");
  const Result<std::vector<Cut>> cuts = choose_cuts(task);
  if (!cuts.ok()) return cuts.error();
  explain_result(task, *cuts);
  std::vector<Slot> slots;
  for (const Cut& cut : *cuts) slots.push_back(slot_of(pool, cut));
  return slots;
}

}  // namespace ipexrun::launcher
