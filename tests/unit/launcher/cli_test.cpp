#include "launcher/cli/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <set>

#include "launcher/cli/option_table.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Options parsed(const std::vector<std::string>& args) {
  const auto options = parse_command_line(args);
  if (!options.ok()) ADD_FAILURE() << options.error().line();
  return options.ok() ? *options : Options{};
}

std::string refusal(const std::vector<std::string>& args) {
  const auto options = parse_command_line(args);
  if (options.ok()) return "accepted";
  EXPECT_EQ(options.error().code, kExitUsage);
  return options.error().line();
}

TEST(Cli, kinds_of_programs) {
  EXPECT_EQ(parsed({"x.py", "1"}).program_kind, ProgramKind::kScript);
  EXPECT_EQ(parsed({"python", "x.py"}).program_kind, ProgramKind::kExecutable);
  EXPECT_EQ(parsed({"-m", "mod", "a"}).program_kind, ProgramKind::kModule);
  EXPECT_EQ(parsed({"--module=mod"}).program, "mod");
  EXPECT_EQ(parsed({"--no-python", "x.py"}).program_kind, ProgramKind::kExecutable);
}

TEST(Cli, options_may_stand_between_m_and_the_module) {
  const Options options = parsed({"-m", "--ninstances", "2", "mod", "--ninstances", "3"});
  EXPECT_EQ(options.program_kind, ProgramKind::kModule);
  EXPECT_EQ(options.program, "mod");
  EXPECT_EQ(options.ninstances, 2);
  EXPECT_THAT(options.args, ElementsAre("--ninstances", "3"));
  EXPECT_EQ(parsed({"-m", "--", "mod"}).program_kind, ProgramKind::kModule);
  EXPECT_THAT(refusal({"-m", "--ninstances", "2"}), HasSubstr("-m needs the name of a Python module"));
  EXPECT_THAT(refusal({"-m", ""}), HasSubstr("-m needs the name of a Python module"));
  for (const std::vector<std::string>& both : {std::vector<std::string>{"--no-python", "-m", "mod"}, {"-m", "--no-python", "mod"}})
    EXPECT_THAT(refusal(both), HasSubstr("-m and --no-python contradict each other"));
  EXPECT_EQ(parsed({"-m", "--help"}).command, Command::kHelp);
}

TEST(Cli, the_environment_beats_defaults_and_loses_to_options) {
  ::setenv("IPEXRUN_DTYPE", "float32", 1);
  ::setenv("IPEXRUN_INHERIT", "none", 1);
  ::setenv("IPEXRUN_GRAPH_MODE", "off", 1);
  ::setenv("IPEXRUN_INDUCTOR", "kept", 1);
  ::setenv("IPEXRUN_SELECT", "thorough", 1);
  const Options options = parsed({"app"});
  EXPECT_EQ(options.dtype, "float32");
  EXPECT_EQ(options.inherit, "none");
  EXPECT_EQ(options.graph_mode, "off");
  EXPECT_EQ(options.inductor, "kept");
  EXPECT_EQ(options.select, "thorough");
  EXPECT_THAT(options.given, IsEmpty());
  EXPECT_THAT(options.from_env, ElementsAre("dtype", "graph-mode", "inductor", "select", "inherit"));
  const Options given = parsed({"--dtype", "auto", "--inherit=python", "app"});
  EXPECT_EQ(given.dtype, "auto");
  EXPECT_EQ(given.inherit, "python");
  // What says less than a variable, but was asked for, is not lost on the way to ranks and files.
  EXPECT_THAT(config_text(given), HasSubstr("dtype: auto"));
  EXPECT_THAT(rank_arguments(given), testing::Contains("--dtype=auto"));
  EXPECT_THAT(rank_arguments(options), testing::Contains("--dtype=float32"));
  ::setenv("IPEXRUN_SELECT", "on", 1);  // a word of the variable alone
  EXPECT_EQ(parsed({"app"}).select, "fast");
  for (const char* name : {"IPEXRUN_DTYPE", "IPEXRUN_INHERIT", "IPEXRUN_GRAPH_MODE", "IPEXRUN_INDUCTOR", "IPEXRUN_SELECT"})
    ::unsetenv(name);
  EXPECT_EQ(config_text(parsed({"app"})), "schema: 1\n");
}

TEST(Cli, what_has_no_effect_without_another_option_is_refused) {
  EXPECT_THAT(refusal({"--bench-stop", "app"}), HasSubstr("--bench-stop needs --bench-iters or --bench-seconds"));
  EXPECT_THAT(refusal({"--bench-pairs", "3", "app"}), HasSubstr("--bench-pairs 3 needs --bench-compare"));
  EXPECT_THAT(refusal({"--log-file-prefix", "x", "app"}), HasSubstr("--log-file-prefix x needs --log-dir"));
  EXPECT_TRUE(parsed({"--bench-stop", "--bench-iters", "3", "app"}).bench.stop);
  EXPECT_EQ(parsed({"--bench-pairs", "3", "--bench-compare", "stock", "app"}).bench.pairs, 3);
  EXPECT_EQ(parsed({"--log-dir", "", "--log-file-prefix", "x", "app"}).log_dir, "");  // scripts for IPEX's launcher have both
}

TEST(Cli, a_mistyped_command_is_recognized_where_there_is_no_such_program) {
  EXPECT_EQ(hint_for_command({"topolgy"}, parsed({"topolgy"})), "did you mean ipexrun topology?");
  EXPECT_EQ(hint_for_command({"help"}, parsed({"help"})), "did you mean ipexrun --help?");
  EXPECT_EQ(hint_for_command({"./server"}, parsed({"./server"})), "");
  EXPECT_EQ(hint_for_command({"doctor.py"}, parsed({"doctor.py"})), "");
  EXPECT_EQ(hint_for_command({"--no-pin", "topolgy"}, parsed({"--no-pin", "topolgy"})), "");  // a command stands first
  EXPECT_THAT(refusal({"gather", "a", "b"}), HasSubstr("ipexrun gather takes one file, but 'b' was given"));
}

TEST(Cli, any_opencl_device_leaves_the_cores_to_the_planner_of_cpus) {
  EXPECT_THAT(parsed({"xpu", "--opencl", "any", "--strategy", "scatter", "--place", "node", "app"}).notes, IsEmpty());
  EXPECT_THAT(parsed({"xpu", "--strategy", "scatter", "app"}).notes, ElementsAre(HasSubstr("the GPUs say where the instances go")));
  EXPECT_TRUE(parsed({"xpu", "--opencl", "any", "--throughput-mode", "app"}).throughput_mode);
  EXPECT_THAT(refusal({"xpu", "--throughput-mode", "app"}), HasSubstr("does not go with ipexrun xpu"));
}

TEST(Cli, everything_after_the_program_is_the_programs) {
  const Options options = parsed({"--ninstances", "2", "app", "--ninstances", "3", "-m", "--", "--help", "--nonsense"});
  EXPECT_EQ(options.ninstances, 2);
  EXPECT_EQ(options.program, "app");
  EXPECT_THAT(options.args, ElementsAre("--ninstances", "3", "-m", "--", "--help", "--nonsense"));
  EXPECT_THAT(parsed({"-m", "mod", "--dry-run", "--json"}).args, ElementsAre("--dry-run", "--json"));
  EXPECT_FALSE(parsed({"-m", "mod", "--dry-run"}).dry_run);
}

TEST(Cli, arguments_of_the_program_are_passed_as_they_are) {
  EXPECT_THAT(parsed({"app", "", "a b", "\"q\"", "$(x)", "[1,2]"}).args, ElementsAre("", "a b", "\"q\"", "$(x)", "[1,2]"));
}

TEST(Cli, a_command_counts_only_as_the_first_word) {
  EXPECT_EQ(parsed({"topology"}).command, Command::kTopology);
  EXPECT_EQ(parsed({"gather"}).command, Command::kGather);
  EXPECT_EQ(parsed({"gather", "here.tar.gz"}).output, "here.tar.gz");
  EXPECT_EQ(parsed({"cpu", "app"}).program, "app");
  EXPECT_EQ(parsed({"--", "doctor"}).program, "doctor");
  EXPECT_EQ(parsed({"cpu", "doctor"}).program, "doctor");
  EXPECT_EQ(parsed({"--dry-run", "env"}).program, "env");
  EXPECT_EQ(parsed({"xpu", "anything", "--at-all"}).command, Command::kXpu);
  EXPECT_EQ(parsed({"xpu", "--devices", "0-1", "anything", "--at-all"}).args.size(), 1u);
  EXPECT_EQ(parsed({"tune"}).command, Command::kTune);
}

TEST(Cli, double_dash_ends_options) { EXPECT_EQ(parsed({"--", "--strange-name"}).program, "--strange-name"); }

TEST(Cli, underscores_and_equals_signs_work) {
  const Options options = parsed({"--ncores_per_instance=3", "--log_dir", "d", "--use_logical_cores", "app"});
  EXPECT_EQ(options.ncores_per_instance, 3);
  EXPECT_EQ(options.log_dir, "d");
  EXPECT_TRUE(options.use_logical_cores);
  EXPECT_THAT(options.given, ElementsAre("ncores-per-instance", "log-dir", "use-logical-cores"));
}

TEST(Cli, no_abbreviations) { EXPECT_THAT(refusal({"--ninst", "2", "app"}), HasSubstr("unknown option '--ninst'")); }

TEST(Cli, an_unknown_option_names_the_nearest) {
  EXPECT_THAT(refusal({"--ninstance", "2", "app"}), HasSubstr("did you mean --ninstances?"));
  EXPECT_THAT(refusal({"--dryrun", "app"}), HasSubstr("did you mean --dry-run?"));
  EXPECT_THAT(refusal({"--throughput_mod", "app"}), HasSubstr("did you mean --throughput-mode?"));
  EXPECT_THAT(refusal({"--qqqqqqqqqq", "app"}), HasSubstr("--help"));
  EXPECT_THAT(refusal({"-n", "app"}), HasSubstr("unknown option '-n'"));
}

TEST(Cli, options_of_doctor_are_taken_by_it_alone) {
  const Options options = parsed({"doctor", "--build", "--torch-python", "/opt/python", "--json"});
  EXPECT_EQ(options.command, Command::kDoctor);
  EXPECT_TRUE(options.build && options.json);
  EXPECT_EQ(options.torch_python, "/opt/python");
  EXPECT_THAT(refusal({"--build", "app"}), HasSubstr("--build belongs to ipexrun doctor"));
  EXPECT_THAT(refusal({"--torch-python", "p", "app"}), HasSubstr("--torch-python belongs to ipexrun doctor"));
  EXPECT_THAT(refusal({"env", "--build"}), HasSubstr("does not take --build"));
}

TEST(Cli, a_file_for_the_report_asks_for_the_report) {
  EXPECT_FALSE(parsed({"app"}).report);
  EXPECT_TRUE(parsed({"--report", "app"}).report);
  const Options options = parsed({"--report-output", "r.json", "app"});
  EXPECT_TRUE(options.report);
  EXPECT_EQ(options.report_output, "r.json");
  EXPECT_FALSE(options.bench.enabled);
  EXPECT_THAT(parsed({"--report", "--no-optimize", "app"}).notes, ElementsAre(HasSubstr("--report has nothing to show")));
}

TEST(Cli, bad_values_are_named) {
  EXPECT_THAT(refusal({"--ninstances", "two", "app"}), HasSubstr("--ninstances needs auto or a whole number from 0 to 65536, not 'two'"));
  EXPECT_THAT(refusal({"--ninstances", "-1", "app"}), HasSubstr("not '-1'"));
  EXPECT_THAT(refusal({"--ninstances", "99999999999999", "app"}), HasSubstr("not '99999999999999'"));
  EXPECT_THAT(refusal({"--cores-list", "0-a", "app"}), HasSubstr("numbers and ranges such as 0-3,8, not '0-a'"));
  EXPECT_THAT(refusal({"--dtype", "bf16", "app"}), HasSubstr("one of auto, float32, bfloat16, float16, not 'bf16'"));
  EXPECT_THAT(refusal({"--dtype", "bfloat", "app"}), HasSubstr("did you mean bfloat16?"));
  EXPECT_THAT(refusal({"--pack-memory", "lots", "app"}), HasSubstr("--pack-memory needs bytes"));
  EXPECT_THAT(refusal({"--bench-output", "x.txt", "app"}), HasSubstr("ends in .json"));
  EXPECT_THAT(refusal({"--report-output", "x.csv", "app"}), HasSubstr("--report-output needs a file name that ends in .json, not 'x.csv'"));
  EXPECT_THAT(refusal({"--bench-seconds", "nan", "app"}), HasSubstr("--bench-seconds needs a number"));
  EXPECT_THAT(refusal({"--log-file-prefix", "a/b", "app"}), HasSubstr("without '/'"));
  EXPECT_THAT(refusal({"--dry-run=maybe", "app"}), HasSubstr("--dry-run"));
}

TEST(Cli, a_missing_value_is_not_taken_from_the_program) {
  EXPECT_THAT(refusal({"--log-dir=", "app"}), HasSubstr("--log-dir needs a value"));
  EXPECT_THAT(refusal({"--ninstances"}), HasSubstr("--ninstances needs a value"));
  EXPECT_THAT(refusal({"-m"}), HasSubstr("name of a Python module"));
}

TEST(Cli, no_program) {
  EXPECT_THAT(refusal({}), HasSubstr("no PROGRAM given"));
  EXPECT_THAT(refusal({"--dry-run"}), HasSubstr("no PROGRAM given"));
  EXPECT_THAT(refusal({""}), HasSubstr("no PROGRAM given"));
}

TEST(Cli, contradictions) {
  EXPECT_THAT(refusal({"--latency-mode", "--throughput-mode", "app"}), HasSubstr("contradict"));
  EXPECT_THAT(refusal({"--latency-mode", "--ninstances", "2", "app"}), HasSubstr("contradict"));
  EXPECT_THAT(refusal({"--cores-list", "0", "--nodes-list", "0", "app"}), HasSubstr("contradict"));
  EXPECT_THAT(refusal({"--latency-mode", "--ninstances", "auto", "app"}), HasSubstr("contradict"));
  EXPECT_THAT(refusal({"--throughput-mode", "--place", "l3", "app"}), HasSubstr("contradict"));
  EXPECT_THAT(refusal({"--pin", "--no-pin", "app"}), HasSubstr("contradict"));
  EXPECT_THAT(refusal({"--place", "numa", "app"}), HasSubstr("one of core, l3, node, socket"));
  EXPECT_THAT(refusal({"--require-shim", "--no-optimize", "app"}), HasSubstr("contradict"));
  EXPECT_THAT(refusal({"--json", "app"}), HasSubstr("--json goes with"));
  EXPECT_THAT(refusal({"--topology", "core:2", "app"}), HasSubstr("--dry-run"));
  EXPECT_THAT(refusal({"topology", "app"}), HasSubstr("takes no program"));
  EXPECT_THAT(refusal({"gather", "--dry-run"}), HasSubstr("does not take --dry-run"));
  EXPECT_THAT(refusal({"doctor", "--ninstances", "2"}), HasSubstr("does not take --ninstances"));
  EXPECT_EQ(parsed({"--latency-mode", "--ninstances", "0", "app"}).latency_mode, true) << "0 asks for nothing";
}

TEST(Cli, ninstances_auto) {
  EXPECT_TRUE(parsed({"--ninstances", "auto", "app"}).ninstances_auto);
  const Options last = parsed({"--ninstances", "auto", "--ninstances", "3", "app"});
  EXPECT_FALSE(last.ninstances_auto);
  EXPECT_EQ(last.ninstances, 3);
  EXPECT_EQ(parsed({"--ninstances", "3", "--ninstances=auto", "app"}).ninstances, 0);
}

TEST(Cli, the_last_of_repeated_options_counts) {
  EXPECT_EQ(parsed({"--ninstances", "2", "--ninstances", "3", "app"}).ninstances, 3);
  EXPECT_THAT(parsed({"--bench-output", "a.json", "--bench-output", "b.md", "app"}).bench.outputs, ElementsAre("a.json", "b.md"));
}

TEST(Cli, any_bench_option_turns_bench_on) {
  EXPECT_FALSE(parsed({"app"}).bench.enabled);
  EXPECT_TRUE(parsed({"--bench", "app"}).bench.enabled);
  const Options options = parsed({"--bench-iters", "10", "--bench-compare", "stock,launch", "--bench-metric", "[0-9]+ (x)", "app"});
  EXPECT_TRUE(options.bench.enabled);
  EXPECT_EQ(options.bench.iters, 10);
  EXPECT_THAT(options.bench.compare, ElementsAre("stock", "launch"));
  EXPECT_EQ(options.bench.metric, "[0-9]+ (x)");
  EXPECT_THAT(refusal({"--bench-compare", "stock,eager", "app"}), HasSubstr("not 'stock,eager'"));
}

TEST(Cli, names_of_run_cpu_and_ipex_mean_the_same) {
  const Options options = parsed({"--node_id", "1", "--enable_jemalloc", "--disable-iomp", "--disable-numactl", "--log-path", "d", "app"});
  EXPECT_THAT(options.nodes_list, ElementsAre(1));
  EXPECT_EQ(options.memory_allocator, "jemalloc");
  EXPECT_EQ(options.omp_runtime, "default");
  EXPECT_FALSE(options.bind_memory);
  EXPECT_EQ(options.log_dir, "d");
  EXPECT_THAT(parsed({"--core-list", "0,2", "app"}).cores_list, ElementsAre(0, 2));
  EXPECT_THAT(parsed({"--rank", "1", "--ninstances", "2", "app"}).instance_idx, ElementsAre(1));
  EXPECT_TRUE(parsed({"--use-logical-core", "app"}).use_logical_cores);
  EXPECT_TRUE(parsed({"--bind-numa-node", "app"}).bind_numa_node);
  EXPECT_FALSE(parsed({"--multi-task-manager", "taskset", "app"}).bind_memory);
  EXPECT_TRUE(parsed({"--multi-task-manager", "none", "app"}).pin) << "IPEX's none still pins";
  EXPECT_THAT(parsed({"--auto-ipex", "app"}).notes, ElementsAre(HasSubstr("--auto-ipex")));
  EXPECT_TRUE(parsed({"--logical_core_for_ccl", "app"}).distributed.logical_cores_for_ccl);
}

TEST(Cli, values_as_run_cpu_and_ipex_document_them) {
  EXPECT_THAT(parsed({"--core-list", "0, 1, 2, 3", "app"}).cores_list, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(parsed({"--cores-list", " 0 - 2 ,8 ", "app"}).cores_list, ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(refusal({"--cores-list", "0 1", "app"}), HasSubstr("not '0 1'"));
  EXPECT_THAT(refusal({"--cores-list", " ", "app"}), HasSubstr("not ' '"));
  EXPECT_THAT(parsed({"--rank", "-1", "app"}).instance_idx, IsEmpty());
  EXPECT_THAT(parsed({"--instance-idx", "1", "--instance-idx", "-1", "app"}).instance_idx, IsEmpty());
  EXPECT_THAT(refusal({"--instance-idx", "-2", "app"}), HasSubstr("not '-2'"));
  EXPECT_EQ(parsed({"--log-dir", "", "app"}).log_dir, "");
  EXPECT_EQ(parsed({"--log-dir", "d", "--log-path", "", "app"}).log_dir, "");
}

TEST(Cli, multi_instance_is_one_a_node_where_nothing_else_is_said) {
  EXPECT_TRUE(parsed({"--multi-instance", "app"}).throughput_mode);
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--ninstances", "2"},
                                               {"--ninstances", "auto"},
                                               {"--ncores-per-instance", "2"},
                                               {"--latency-mode"},
                                               {"--place", "l3"}}) {
    std::vector<std::string> args = {"--multi_instance"};
    args.insert(args.end(), more.begin(), more.end());
    args.emplace_back("app");
    EXPECT_FALSE(parsed(args).throughput_mode) << more.front();
  }
}

TEST(Cli, a_name_of_another_launcher_that_is_off_does_nothing) {
  EXPECT_EQ(parsed({"--enable-jemalloc=false", "app"}).memory_allocator, "auto");
  EXPECT_THAT(parsed({"--auto-ipex=false", "app"}).notes, IsEmpty());
  EXPECT_THAT(refusal({"--enable-jemalloc=no", "app"}), HasSubstr("--enable-jemalloc needs true or false, not 'no'"));
}

TEST(Cli, names_that_mean_something_else_here_are_refused_with_a_hint) {
  EXPECT_THAT(refusal({"--benchmark", "app"}), HasSubstr("--bench"));
}

TEST(Cli, help_and_version) {
  EXPECT_EQ(parsed({"--help"}).command, Command::kHelp);
  EXPECT_EQ(parsed({"topology", "-h"}).help_of, Command::kTopology);
  EXPECT_EQ(parsed({"-V"}).command, Command::kVersion);
  EXPECT_EQ(parsed({"app", "--help"}).command, Command::kRun);
}

TEST(Cli, no_optimize_makes_dtype_pointless_and_says_so) {
  EXPECT_THAT(parsed({"--no-optimize", "--dtype", "float32", "app"}).notes, ElementsAre(HasSubstr("no effect")));
  EXPECT_THAT(parsed({"--no-optimize", "app"}).notes, IsEmpty());
}

TEST(OptionTable, names_are_unique_and_described) {
  std::set<std::string> seen;
  for (const OptionRow& row : option_table()) {
    EXPECT_TRUE(seen.insert(row.name).second) << row.name;
    for (const std::string& alias : row.aliases) EXPECT_TRUE(seen.insert(alias).second) << alias;
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_TRUE(row.set && row.get) << row.name;
  }
}

TEST(OptionTable, help_completion_and_man_page_know_every_option) {
  const std::string help = help_text(Command::kRun);
  const std::string completion = completion_text();
  for (const OptionRow& row : option_table()) {
    if (row.group == OptionGroup::kLater) continue;
    EXPECT_THAT(help, HasSubstr("--" + row.name));
    EXPECT_THAT(completion, HasSubstr("--" + row.name));
  }
  EXPECT_THAT(man_page("1"), HasSubstr("\\-\\-ninstances N"));
  EXPECT_THAT(env_docs(), HasSubstr("| `IPEXRUN_DISABLE` | flag |"));
}

}  // namespace
}  // namespace ipexrun::launcher
