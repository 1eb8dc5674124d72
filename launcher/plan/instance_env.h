// The variables of an instance: OpenMP, allocator, preload, and the words for the shim. Part of the planner, and pure like it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/env.h"
#include "configs/contract/plan.h"
#include "launcher/options.h"
#include "launcher/plan/machine.h"
#include "launcher/plan/planner.h"

namespace ipexrun::launcher {

/// What the shim is asked to do.
enum class ShimUse {
  kNone,      ///< not preloaded: launch only
  kObserve,   ///< events only, stock kernels
  kOptimize,  ///< kernels of ours
};

/// Collects the variables that all instances share, each with its reason.
class EnvDraft {
 public:
  EnvDraft(const Options& options, const PlanContext& context, std::vector<Reason>& reasons)
      : options_(options), context_(context), reasons_(reasons) {}

  /// OpenMP runtime settings, allocator settings, ISA caps of libraries.
  void add_libraries();
  /// LD_PRELOAD and the IPEXRUN_ words. kExitFailure when --require-shim cannot be met.
  Status add_preload(ShimUse use, bool with_libraries);
  /// Device xpu of ours, where the shim brings it to the program.
  void add_xpu();
  /// The memory profile (--memory): what oneDNN's primitive cache, torch and malloc keep. After add_libraries().
  void add_memory();
  /// Arithmetic inside replaced operations; nothing where the shim is not preloaded. After add_preload().
  void add_dtype(const Machine& machine);
  void add_graph_mode();
  /// Whether Inductor may compile parts of captured graphs.
  void add_inductor(const Machine& machine);
  void add_select();
  void add_split_sgd();
  /// What is printed reaches the log at once.
  void add_logs();
  /// The config's `env:`; beats everything before it.
  void add_config_env();

  /// Threads of an instance with `cpus` CPUs: the user's OMP_NUM_THREADS where no option asks for something else.
  int threads_for(std::size_t cpus);

  /// Variables of the environment that the instances do not get.
  [[nodiscard]] const std::vector<std::string>& unset() const { return unset_; }

  /// The shared variables together with those of one instance.
  [[nodiscard]] std::map<std::string, std::string> for_instance(int index, std::size_t instances, int threads) const;

 private:
  [[nodiscard]] std::string user(const std::string& name) const;
  void set(const std::string& name, const std::string& value) { env_[name] = value; }
  /// Our default, which a value of the user's own beats.
  void set_default(const std::string& subject, const std::string& name, const std::string& value, const std::string& why);
  void because(const std::string& subject, const std::string& value, const std::string& text, bool warn = false) {
    reasons_.push_back({subject, value, text, warn});
  }
  /// Given on the command line or in the config, be it with the value that is the default.
  [[nodiscard]] bool is_given(const std::string& option) const;
  /// Who says what this option is: "--dtype float32", "IPEXRUN_DTYPE=float32 of the environment".
  [[nodiscard]] std::string source(const std::string& option, env::Id variable, const std::string& value) const;
  /// A variable of ours that an option is passed on by: beats a value of the environment, with one line.
  void set_option(const std::string& option, env::Id variable, const std::string& value);
  /// A variable that the user's option asks for: beats a value of the environment, with one line.
  void set_asked(const std::string& subject, const std::string& name, const std::string& value, const std::string& why);
  /// Which malloc the program will run on: jemalloc, tcmalloc, mimalloc or default.
  [[nodiscard]] std::string malloc_name() const;
  /// One pinning mechanism: takes the runtimes' own away, or says why it stays.
  void settle_binding();
  /// --crash-report: one more entry for LD_PRELOAD.
  void add_crash_report(std::vector<std::string>& ours);
  [[nodiscard]] std::vector<std::string> own_preload(bool allocator_wanted, std::vector<std::string>* dropped) const;

  const Options& options_;
  const PlanContext& context_;
  std::vector<Reason>& reasons_;
  std::map<std::string, std::string> env_;
  std::vector<std::string> unset_;
  std::string kept_threads_;  ///< the user's OMP_NUM_THREADS, whole ("4,2": nested levels); "" = the planned number
  bool threads_said_ = false;
  bool shim_active_ = false;
};

}  // namespace ipexrun::launcher
