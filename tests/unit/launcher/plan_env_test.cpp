// The variables of an instance, and who wins when the user has set one already.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/plan/planner.h"
#include "tests/unit/launcher/made_up.h"

namespace ipexrun::launcher {
namespace {

using made_up::has_reason;
using made_up::has_warning;
using made_up::machine;
using made_up::options;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string var(const LaunchPlan& plan, const std::string& name) {
  const auto& env = plan.instances.at(0).env;
  return env.count(name) == 0 ? "(unset)" : env.at(name);
}

PlanContext with(const std::map<std::string, std::string>& env) {
  PlanContext out = made_up::context();
  out.env = env;
  return out;
}

PlanContext with_jemalloc(const std::map<std::string, std::string>& env = {}) {
  PlanContext out = with(env);
  out.allocator_name = "jemalloc";
  out.allocator_path = "/usr/lib/libjemalloc.so.2";
  return out;
}

LaunchPlan plan(const Options& wanted, const PlanContext& context) { return make_plan(wanted, machine({4}), context).value(); }

TEST(PlanEnv, threads_and_words_of_the_shim) {
  const LaunchPlan made = plan(options(), made_up::context());
  EXPECT_EQ(var(made, "OMP_NUM_THREADS"), "4");
  EXPECT_EQ(var(made, "TORCHINDUCTOR_COMPILE_THREADS"), "4");
  EXPECT_EQ(var(made, "IPEXRUN_MODE"), "optimize");
  EXPECT_EQ(var(made, "IPEXRUN_DTYPE"), "auto");
  EXPECT_EQ(var(made, "IPEXRUN_LIB_DIR"), "/opt/lib/ipexrun");
  EXPECT_EQ(var(made, "LD_PRELOAD"), "/opt/lib/ipexrun/libipexrun_shim.so");
  EXPECT_EQ(var(made, "IPEXRUN_PRELOAD"), "/opt/lib/ipexrun/libipexrun_shim.so");
}

TEST(PlanEnv, what_the_environment_says_is_kept_and_named) {
  Options wanted = options();
  wanted.dtype = "float32";
  wanted.inherit = "none";
  wanted.from_env = {"dtype", "inherit"};
  const LaunchPlan made = plan(wanted, with({{"IPEXRUN_DTYPE", "float32"}, {"IPEXRUN_INHERIT", "none"}, {"IPEXRUN_MODE", "observe"}}));
  EXPECT_EQ(var(made, "IPEXRUN_DTYPE"), "float32");
  EXPECT_EQ(var(made, "IPEXRUN_INHERIT"), "none");
  EXPECT_EQ(var(made, "IPEXRUN_MODE"), "observe");
  EXPECT_TRUE(has_reason(made, "dtype", "IPEXRUN_DTYPE=float32 of the environment"));
  const LaunchPlan stock = make_variant_plan("stock", options(), machine({4}), with({{"IPEXRUN_MODE", "optimize"}})).value();
  EXPECT_EQ(var(stock, "IPEXRUN_MODE"), "observe");
}

TEST(PlanEnv, no_second_pinning_mechanism) {
  const LaunchPlan made = plan(options(), made_up::context());
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) EXPECT_EQ(var(made, name), "(unset)");
  EXPECT_THAT(made.instances[0].unset_env, IsEmpty());
  for (const auto& [name, value] : std::map<std::string, std::string>{{"OMP_PROC_BIND", "close"},
                                                                      {"OMP_PLACES", "cores"},
                                                                      {"GOMP_CPU_AFFINITY", "0-3"},
                                                                      {"KMP_AFFINITY", "granularity=fine,compact,1,0"}}) {
    const LaunchPlan bound = plan(options(), with({{name, value}}));
    EXPECT_THAT(bound.instances[0].unset_env, ElementsAre(name));
    EXPECT_TRUE(has_warning(bound, name + "=" + value)) << name;
  }
}

TEST(PlanEnv, what_binds_nothing_stays) {
  const LaunchPlan made = plan(options(), with({{"OMP_PROC_BIND", "false"}, {"OMP_PLACES", "cores"}, {"KMP_AFFINITY", "verbose,none"}}));
  EXPECT_THAT(made.instances[0].unset_env, IsEmpty());
}

TEST(PlanEnv, binding_that_the_user_insists_on_stays_and_is_reported) {
  Options wanted = options();
  wanted.env = {{"OMP_PROC_BIND", "close"}};
  const LaunchPlan from_config = plan(wanted, with({{"OMP_PROC_BIND", "close"}, {"OMP_PLACES", "cores"}}));
  EXPECT_EQ(var(from_config, "OMP_PROC_BIND"), "close");
  EXPECT_THAT(from_config.instances[0].unset_env, ElementsAre("OMP_PLACES"));
  EXPECT_TRUE(has_warning(from_config, "OMP_PROC_BIND of the config binds threads as well"));
  Options unpinned = options();
  unpinned.pin = false;
  const LaunchPlan own = plan(unpinned, with({{"OMP_PROC_BIND", "close"}}));
  EXPECT_THAT(own.instances[0].unset_env, IsEmpty());
  EXPECT_TRUE(has_warning(own, "OMP_PROC_BIND of the environment is kept"));
}

TEST(PlanEnv, an_openmp_runtime_that_was_asked_for_is_preloaded_and_named) {
  PlanContext intel = with({{"KMP_AFFINITY", "disabled"}});
  intel.omp_runtime_path = "/opt/libiomp5.so";
  intel.omp_family = "intel";
  intel.omp_reason = "/opt/libiomp5.so, asked for";
  const LaunchPlan made = plan(options(), intel);
  EXPECT_EQ(var(made, "LD_PRELOAD"), "/opt/libiomp5.so:/opt/lib/ipexrun/libipexrun_shim.so");
  EXPECT_TRUE(has_reason(made, "omp", "asked for"));
  EXPECT_TRUE(has_warning(made, "can abort in a forked child"));
}

TEST(PlanEnv, the_users_omp_num_threads_beats_the_default_but_not_an_option) {
  const PlanContext context = with({{"OMP_NUM_THREADS", "1"}});
  const LaunchPlan kept = plan(options(), context);
  EXPECT_EQ(kept.instances[0].threads, 1);
  EXPECT_EQ(var(kept, "OMP_NUM_THREADS"), "1");
  EXPECT_TRUE(has_warning(kept, "OMP_NUM_THREADS=1 of the environment is kept, for 4 CPUs"));
  Options wanted = options();
  wanted.ncores_per_instance = 2;
  const LaunchPlan replaced = plan(wanted, context);
  EXPECT_EQ(var(replaced, "OMP_NUM_THREADS"), "2");
  EXPECT_TRUE(has_warning(replaced, "is replaced"));
  const LaunchPlan none = plan(options(), with({{"OMP_NUM_THREADS", "many"}}));
  EXPECT_EQ(var(none, "OMP_NUM_THREADS"), "4");
  EXPECT_TRUE(has_warning(none, "OMP_NUM_THREADS=many is no number of threads: 4 threads are used"));
  Options of_config = options();
  of_config.env = {{"OMP_NUM_THREADS", "many"}};
  EXPECT_EQ(var(plan(of_config, made_up::context()), "OMP_NUM_THREADS"), "4");
}

TEST(PlanEnv, omp_num_threads_of_nested_levels_is_kept_whole) {
  const LaunchPlan made = plan(options(), with({{"OMP_NUM_THREADS", "4,2"}}));
  EXPECT_EQ(made.instances[0].threads, 4);
  EXPECT_EQ(var(made, "OMP_NUM_THREADS"), "4,2");
}

TEST(PlanEnv, an_option_beats_a_variable_of_ours_with_its_default_too) {
  const PlanContext context = with({{"IPEXRUN_GRAPH_MODE", "off"}, {"IPEXRUN_SELECT", "off"}, {"IPEXRUN_INDUCTOR", "off"}});
  const LaunchPlan kept = plan(options(), context);
  for (const char* name : {"IPEXRUN_GRAPH_MODE", "IPEXRUN_SELECT", "IPEXRUN_INDUCTOR"}) EXPECT_EQ(var(kept, name), "(unset)") << name;
  Options wanted = options();
  wanted.given = {"graph-mode", "select", "inductor"};
  const LaunchPlan made = plan(wanted, context);
  EXPECT_EQ(var(made, "IPEXRUN_GRAPH_MODE"), "auto");
  EXPECT_EQ(var(made, "IPEXRUN_SELECT"), "fast");
  EXPECT_EQ(var(made, "IPEXRUN_INDUCTOR"), "auto");
  EXPECT_TRUE(has_warning(made, "--select fast replaces IPEXRUN_SELECT=off of the environment"));
}

TEST(PlanEnv, a_variable_of_the_user_is_left_alone) {
  const LaunchPlan made = plan(options(), with_jemalloc({{"MALLOC_CONF", "narenas:1"}, {"TORCHINDUCTOR_COMPILE_THREADS", "1"}}));
  EXPECT_EQ(var(made, "MALLOC_CONF"), "(unset)") << "inherited as it is";
  EXPECT_EQ(var(made, "TORCHINDUCTOR_COMPILE_THREADS"), "(unset)");
  EXPECT_TRUE(has_reason(made, "allocator", "kept as the environment has it"));
}

TEST(PlanEnv, what_python_prints_reaches_a_log_at_once) {
  EXPECT_EQ(var(plan(options(), made_up::context()), "PYTHONUNBUFFERED"), "(unset)");
  Options wanted = options();
  wanted.log_dir = "logs";
  EXPECT_EQ(var(plan(wanted, made_up::context()), "PYTHONUNBUFFERED"), "1");
  EXPECT_EQ(var(plan(wanted, with({{"PYTHONUNBUFFERED", "x"}})), "PYTHONUNBUFFERED"), "(unset)") << "inherited as it is";
  wanted.env = {{"PYTHONUNBUFFERED", ""}};
  EXPECT_EQ(var(plan(wanted, made_up::context()), "PYTHONUNBUFFERED"), "");
}

TEST(PlanEnv, memory_profiles) {
  const std::vector<const char*> all = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "THP_MEM_ALLOC_ENABLE", "MALLOC_TRIM_THRESHOLD_",
                                        "MALLOC_MMAP_THRESHOLD_", "MALLOC_CONF"};
  const LaunchPlan plain = plan(options(), made_up::context());
  for (const char* name : all) EXPECT_EQ(var(plain, name), "(unset)");

  Options bounded = options();
  bounded.memory = "bounded";
  EXPECT_EQ(var(plan(bounded, made_up::context()), "ONEDNN_PRIMITIVE_CACHE_CAPACITY"), "64");
  EXPECT_EQ(var(plan(bounded, made_up::context()), "MALLOC_TRIM_THRESHOLD_"), "(unset)");
  EXPECT_THAT(var(plan(bounded, with_jemalloc()), "MALLOC_CONF"), HasSubstr("dirty_decay_ms:1000"));

  Options throughput = options();
  throughput.memory = "throughput";
  const LaunchPlan fast = plan(throughput, made_up::context());
  EXPECT_EQ(var(fast, "THP_MEM_ALLOC_ENABLE"), "1");
  EXPECT_EQ(var(fast, "MALLOC_MMAP_THRESHOLD_"), "33554432");
  EXPECT_EQ(var(fast, "ONEDNN_PRIMITIVE_CACHE_CAPACITY"), "(unset)");
  EXPECT_EQ(var(plan(throughput, with_jemalloc()), "MALLOC_MMAP_THRESHOLD_"), "(unset)") << "read by the C library's malloc only";
  EXPECT_EQ(var(plan(throughput, with({{"LD_PRELOAD", "/x/libtcmalloc.so.4"}})), "MALLOC_MMAP_THRESHOLD_"), "(unset)");
}

TEST(PlanEnv, no_memory_profile_keeps_memory_for_ever) {
  for (const char* profile : {"default", "bounded", "throughput"}) {
    Options wanted = options();
    wanted.memory = profile;
    EXPECT_THAT(var(plan(wanted, with_jemalloc()), "MALLOC_CONF"), testing::Not(HasSubstr("decay_ms:-1"))) << profile;
  }
}

TEST(PlanEnv, a_memory_profile_beats_the_environment_and_the_config_beats_it) {
  Options wanted = options();
  wanted.memory = "bounded";
  const PlanContext context = with({{"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096"}});
  const LaunchPlan made = plan(wanted, context);
  EXPECT_EQ(var(made, "ONEDNN_PRIMITIVE_CACHE_CAPACITY"), "64");
  EXPECT_TRUE(has_warning(made, "replaces 4096 of the environment"));
  wanted.env = {{"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256"}};
  EXPECT_EQ(var(plan(wanted, context), "ONEDNN_PRIMITIVE_CACHE_CAPACITY"), "256");
}

TEST(PlanEnv, preload_is_users_own_then_allocator_then_shim) {
  const LaunchPlan made = plan(options(), with_jemalloc({{"LD_PRELOAD", "/x/liba.so /x/libb.so"}}));
  EXPECT_EQ(var(made, "LD_PRELOAD"), "/x/liba.so:/x/libb.so:/usr/lib/libjemalloc.so.2:/opt/lib/ipexrun/libipexrun_shim.so");
  EXPECT_EQ(var(made, "IPEXRUN_PRELOAD"), "/usr/lib/libjemalloc.so.2:/opt/lib/ipexrun/libipexrun_shim.so");
  EXPECT_THAT(var(made, "MALLOC_CONF"), HasSubstr("background_thread:true"));
}

TEST(PlanEnv, the_users_preloaded_allocator_stays_unless_an_option_names_one) {
  const PlanContext context = with_jemalloc({{"LD_PRELOAD", "/x/libtcmalloc.so.4"}});
  EXPECT_THAT(var(plan(options(), context), "LD_PRELOAD"), testing::Not(HasSubstr("jemalloc")));
  Options wanted = options();
  wanted.memory_allocator = "jemalloc";
  const LaunchPlan made = plan(wanted, context);
  EXPECT_THAT(var(made, "LD_PRELOAD"), testing::Not(HasSubstr("tcmalloc")));
  EXPECT_TRUE(has_warning(made, "libtcmalloc.so.4"));
}

TEST(PlanEnv, entries_of_an_outer_ipexrun_are_not_the_users) {
  const LaunchPlan made = plan(options(), with({{"LD_PRELOAD", "/x/mine.so:/old/shim.so"}, {"IPEXRUN_PRELOAD", "/old/shim.so"}}));
  EXPECT_EQ(var(made, "LD_PRELOAD"), "/x/mine.so:/opt/lib/ipexrun/libipexrun_shim.so");
}

TEST(PlanEnv, a_path_that_ld_preload_cannot_hold_is_refused) {
  PlanContext context = made_up::context();
  context.shim = "/opt/my lib/libipexrun_shim.so";
  const LaunchPlan made = plan(options(), context);
  EXPECT_EQ(var(made, "LD_PRELOAD"), "(unset)");
  EXPECT_TRUE(has_warning(made, "has a space or a colon"));
}

TEST(PlanEnv, no_optimize_has_no_shim_and_with_bench_an_observing_one) {
  Options wanted = options();
  wanted.optimize = false;
  EXPECT_EQ(var(plan(wanted, made_up::context()), "LD_PRELOAD"), "(unset)");
  wanted.bench.enabled = true;
  const LaunchPlan made = plan(wanted, made_up::context());
  EXPECT_EQ(var(made, "IPEXRUN_MODE"), "observe");
  EXPECT_EQ(var(made, "IPEXRUN_BENCH"), "1");
}

TEST(PlanEnv, require_shim_fails_before_anything_starts) {
  Options wanted = options();
  wanted.require_shim = true;
  PlanContext context = made_up::context();
  EXPECT_EQ(var(plan(wanted, context), "IPEXRUN_REQUIRE_SHIM"), "1");
  context.shim.clear();
  context.shim_problem = "it is writable by others";
  const auto made = make_plan(wanted, machine({4}), context);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, kExitFailure);
  EXPECT_THAT(made.error().line(), HasSubstr("writable by others"));
}

TEST(PlanEnv, float16_without_hardware_acts_as_float32_with_a_warning) {
  Options wanted = options();
  wanted.dtype = "float16";
  const LaunchPlan made = plan(wanted, made_up::context());
  EXPECT_EQ(var(made, "IPEXRUN_DTYPE"), "float32");
  EXPECT_TRUE(has_warning(made, "avx512_fp16"));
  Machine able = machine({4});
  able.isa = kIsaAvx512Fp16;
  EXPECT_EQ(var(make_plan(wanted, able, made_up::context()).value(), "IPEXRUN_DTYPE"), "float16");
}

TEST(PlanEnv, bfloat16_without_hardware_is_kept_with_a_warning) {
  Options wanted = options();
  wanted.dtype = "bfloat16";
  const LaunchPlan made = plan(wanted, made_up::context());
  EXPECT_EQ(var(made, "IPEXRUN_DTYPE"), "bfloat16");
  EXPECT_TRUE(has_warning(made, "neither avx512_bf16 nor amx_bf16"));
  for (const IsaSet isa : {IsaSet{kIsaAvx512Bf16}, IsaSet{kIsaAmxBf16}}) {
    Machine able = machine({4});
    able.isa = isa;
    EXPECT_FALSE(has_warning(make_plan(wanted, able, made_up::context()).value(), "amx_bf16"));
  }
}

TEST(PlanEnv, a_capability_cap_reaches_onednn) {
  EXPECT_EQ(var(plan(options(), with({{"ATEN_CPU_CAPABILITY", "avx2"}})), "ONEDNN_MAX_CPU_ISA"), "AVX2");
  EXPECT_EQ(var(plan(options(), with({{"ATEN_CPU_CAPABILITY", "avx2"}, {"ONEDNN_MAX_CPU_ISA", "ALL"}})), "ONEDNN_MAX_CPU_ISA"), "(unset)");
  EXPECT_EQ(var(plan(options(), with({{"ATEN_CPU_CAPABILITY", "bogus"}})), "ONEDNN_MAX_CPU_ISA"), "(unset)");
}

TEST(PlanEnv, the_configs_env_beats_everything) {
  Options wanted = options();
  wanted.env = {{"OMP_NUM_THREADS", "3"}, {"MALLOC_CONF", "x:1"}, {"LD_PRELOAD", "/x/own.so"}};
  const LaunchPlan made = plan(wanted, with_jemalloc({{"MALLOC_CONF", "y:1"}}));
  EXPECT_EQ(var(made, "OMP_NUM_THREADS"), "3");
  EXPECT_EQ(made.instances[0].threads, 3);
  EXPECT_EQ(var(made, "MALLOC_CONF"), "x:1");
  EXPECT_TRUE(has_warning(made, "MALLOC_CONF=x:1"));
  EXPECT_EQ(var(made, "LD_PRELOAD"), "/x/own.so:/usr/lib/libjemalloc.so.2:/opt/lib/ipexrun/libipexrun_shim.so");
}

TEST(PlanEnv, the_kill_switch_changes_nothing) {
  Options wanted = options();
  wanted.ninstances = 2;
  wanted.log_dir = "logs";
  const LaunchPlan made = plan(wanted, with({{"IPEXRUN_DISABLE", "1"}}));
  ASSERT_EQ(made.instances.size(), 1u);
  EXPECT_FALSE(made.pin);
  EXPECT_THAT(made.instances[0].env, IsEmpty());
  EXPECT_THAT(made.instances[0].cpus, IsEmpty());
  EXPECT_EQ(made.instances[0].log_path, "");
  EXPECT_THAT(made.instances[0].argv, ElementsAre("./app"));
}

TEST(PlanEnv, stock_is_the_plain_program_observed) {
  Options wanted = options();
  wanted.ninstances = 2;
  wanted.bench.enabled = true;
  const LaunchPlan stock =
      make_variant_plan("stock", wanted, machine({4}), with_jemalloc({{"LD_PRELOAD", "/usr/lib/libjemalloc.so.2"}})).value();
  ASSERT_EQ(stock.instances.size(), 1u);
  EXPECT_FALSE(stock.pin);
  EXPECT_EQ(var(stock, "IPEXRUN_MODE"), "observe");
  EXPECT_EQ(var(stock, "OMP_NUM_THREADS"), "(unset)");
  EXPECT_EQ(var(stock, "MALLOC_CONF"), "(unset)");
  EXPECT_EQ(var(stock, "LD_PRELOAD"), "/usr/lib/libjemalloc.so.2:/opt/lib/ipexrun/libipexrun_shim.so");
  const LaunchPlan launch = make_variant_plan("launch", wanted, machine({4}), with_jemalloc()).value();
  EXPECT_EQ(launch.instances.size(), 2u);
  EXPECT_EQ(var(launch, "IPEXRUN_MODE"), "observe");
  EXPECT_THAT(var(launch, "LD_PRELOAD"), HasSubstr("jemalloc"));
  EXPECT_FALSE(make_variant_plan("other", wanted, machine({4}), made_up::context()).ok());
}

TEST(PlanEnv, programs) {
  Options wanted = options();
  wanted.args = {"a b", ""};
  EXPECT_THAT(plan(wanted, made_up::context()).instances[0].argv, ElementsAre("./app", "a b", ""));
  EXPECT_EQ(plan(wanted, made_up::context()).instances[0].executable, "/opt/app");
  wanted.program_kind = ProgramKind::kScript;
  wanted.program = "x.py";
  EXPECT_THAT(plan(wanted, made_up::context()).instances[0].argv, ElementsAre("/usr/bin/python", "x.py", "a b", ""));
  wanted.program_kind = ProgramKind::kModule;
  wanted.program = "mod";
  EXPECT_THAT(plan(wanted, made_up::context()).instances[0].argv, ElementsAre("/usr/bin/python", "-m", "mod", "a b", ""));
}

TEST(PlanEnv, log_names_carry_stamp_index_and_cores_and_stay_short) {
  Options wanted = options();
  wanted.log_dir = "logs/";
  wanted.log_file_prefix = "job";
  EXPECT_EQ(plan(wanted, made_up::context()).instances[0].log_path, "logs/job_20260102T030405_instance_0_cores_0-3.log");
  Machine wide = machine({128}, 2);
  for (std::size_t i = 0; i < wide.cores.size(); ++i) wide.cores[i].pus = {static_cast<int>(2 * i), static_cast<int>(2 * i + 1)};
  const LaunchPlan made = make_plan(wanted, wide, made_up::context()).value();
  EXPECT_EQ(made.instances[0].log_path, "logs/job_20260102T030405_instance_0_cores_0-to-254-128-cpus.log");
}

}  // namespace
}  // namespace ipexrun::launcher
