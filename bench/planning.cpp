// How long the planner alone takes (bench/planning.py measures the whole process and starts this).
//
//     ipexrun_planning TOPOLOGY REPEATS
//
// Prints one JSON line for each way of asking: the least and the median time of make_plan(), in microseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "launcher/plan/machine.h"
#include "launcher/plan/planner.h"

using namespace ipexrun;            // NOLINT(google-build-using-namespace): this is a program
using namespace ipexrun::launcher;  // NOLINT(google-build-using-namespace)

namespace {

struct Way {
  const char* name;
  void (*set)(Options&);
};

constexpr Way kWays[] = {
    {"(default)", [](Options&) {}},
    {"--ninstances auto", [](Options& o) { o.ninstances_auto = true; }},
    {"--ninstances 37", [](Options& o) { o.ninstances = 37; }},
    {"--ninstances 1000 --use-logical-cores",
     [](Options& o) {
       o.ninstances = 1000;
       o.use_logical_cores = true;
     }},
    {"--ncores-per-instance 1", [](Options& o) { o.ncores_per_instance = 1; }},
    {"--ncores-per-instance 3 --ninstances 100 --strategy scatter",
     [](Options& o) {
       o.ncores_per_instance = 3;
       o.ninstances = 100;
       o.strategy = "scatter";
     }},
    {"--throughput-mode", [](Options& o) { o.throughput_mode = true; }},
    {"--place l3", [](Options& o) { o.place = "l3"; }},
    {"--skip-cross-node-cores --ninstances 37",
     [](Options& o) {
       o.skip_cross_node_cores = true;
       o.ninstances = 37;
     }},
    {"--bind-numa-node --ninstances 1000",
     [](Options& o) {
       o.bind_numa_node = true;
       o.ninstances = 1000;
     }},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Result<Machine> machine = machine_from_topology(argv[1]);
  if (!machine.ok()) {
    std::fprintf(stderr, "%s\n", machine.error().line().c_str());
    return 1;
  }
  for (const Way& way : kWays) {
    Options options;
    options.program = "app";
    way.set(options);
    std::vector<double> micros;
    std::size_t instances = 0;
    for (int i = 0; i < std::atoi(argv[2]); ++i) {
      const auto start = std::chrono::steady_clock::now();
      const Result<LaunchPlan> plan = make_plan(options, *machine, PlanContext{});
      micros.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
      instances = plan.ok() ? plan->instances.size() : 0;
    }
    std::sort(micros.begin(), micros.end());
    std::printf("{\"options\": \"%s\", \"instances\": %zu, \"least_us\": %.0f, \"median_us\": %.0f}\n", way.name, instances, micros.front(),
                micros[micros.size() / 2]);
  }
  return 0;
}
