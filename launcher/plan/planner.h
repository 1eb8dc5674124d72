// Options + Machine + environment -> LaunchPlan. Pure: no file, no clock, no process, no global; same input, same plan.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/plan.h"
#include "launcher/options.h"
#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

/// What the planner needs to know of the world besides the machine; the caller looks it up, tests make it up.
struct PlanContext {
  std::map<std::string, std::string> env;  ///< the caller's environment
  std::string python;                      ///< absolute path of the interpreter for scripts and modules, "" = none found
  std::string executable;                  ///< absolute path of PROGRAM when it is an executable, "" = unknown (planned machine)
  std::string lib_dir;                     ///< folder with the shim and plugins (lib/ipexrun)
  std::string plugin_dir;                  ///< folder with plugins that doctor --build made, "" = none
  std::string shim;                        ///< absolute path of libipexrun_shim.so, "" = not built or not safe to preload
  std::string shim_problem;                ///< why `shim` is empty
  std::string crash_library;               ///< absolute path of libipexrun_crash.so, "" = not built or not safe to preload
  std::string crash_problem;               ///< why `crash_library` is empty
  std::string allocator_name;              ///< jemalloc, tcmalloc, mimalloc, or "default"
  std::string allocator_path;              ///< absolute path of its library, "" for default
  std::string allocator_reason;            ///< why that one
  std::string omp_runtime_path;            ///< library of the OpenMP runtime that is to be preloaded, "" = the program's own is kept
  std::string omp_family;                  ///< gnu, intel, llvm: what the program will run on; "" = not known beforehand
  std::string omp_reason;
  std::string log_stamp;  ///< time stamp for log file names, e.g. "20261121T101500"
};

/// The plan, or the first thing that makes the request impossible (kExitUsage).
Result<LaunchPlan> make_plan(const Options& options, const Machine& machine, const PlanContext& context);

/// The plan of one side of a comparison (bench.h): "ipexrun" is make_plan(); "launch" the same without kernels of ours; "stock" the
/// plain program, once, with nothing of ours but the shim in observe mode.
Result<LaunchPlan> make_variant_plan(const std::string& variant, const Options& options, const Machine& machine,
                                     const PlanContext& context);

}  // namespace ipexrun::launcher
