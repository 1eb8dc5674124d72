#include "launcher/cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "launcher/cli/config_file.h"
#include "launcher/cli/option_table.h"

namespace ipexrun::launcher {
namespace {

struct CommandWord {
  const char* word;
  Command command;
};

constexpr std::array<CommandWord, 9> kCommandWords{{{"cpu", Command::kRun},
                                                    {"xpu", Command::kXpu},
                                                    {"tune", Command::kTune},
                                                    {"aot", Command::kAot},
                                                    {"topology", Command::kTopology},
                                                    {"env", Command::kEnv},
                                                    {"doctor", Command::kDoctor},
                                                    {"gather", Command::kGather},
                                                    {"explain-last", Command::kExplainLast}}};

/// The command line cut in two: our options, and PROGRAM with everything after it.
struct Parts {
  std::vector<std::string> own;
  std::vector<std::string> program;
  bool help = false;
  bool version = false;
  bool no_python = false;
  bool module = false;  ///< program[0] is a module's name
};

Error unknown_option(const std::string& seen, std::string_view name) {
  const std::string near = nearest_word(name, option_names());
  return Error{kExitUsage, "unknown option '" + seen + "'",
               near.empty() ? "ipexrun --help lists them; options of the program come after its name" : "did you mean --" + near + "?"};
}

/// Finds where PROGRAM starts. CLI11 has no notion of "the rest belongs to PROGRAM" that also holds for -m and `--`, so the border is
/// found here, from the option table, and CLI11 parses what lies before it.
Result<Parts> split(const std::vector<std::string>& args) {
  Parts out;
  const auto rest_from = [&](std::size_t at) { out.program.assign(args.begin() + static_cast<std::ptrdiff_t>(at), args.end()); };
  for (std::size_t at = 0; at < args.size(); ++at) {
    const std::string& word = args[at];
    if (word == "--") {
      rest_from(at + 1);
      break;
    }
    if (word.size() < 2 || word[0] != '-') {
      rest_from(at);
      break;
    }
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (name == "-h" || name == "--help") {
      out.help = true;
    } else if (name == "-V" || name == "--version") {
      out.version = true;
    } else if (name == "--no-python" || name == "--no_python") {
      out.no_python = true;
    } else if (name == "-m" || name == "--module") {
      // A flag of its own in IPEX's launcher and in run_cpu: options may stand between it and the module's name.
      out.module = true;
      if (equals == std::string::npos) continue;
      rest_from(at + 1);
      out.program.insert(out.program.begin(), word.substr(equals + 1));
      break;
    } else {
      const OptionRow* row = name.starts_with("--") ? find_option(name.substr(2)) : nullptr;
      if (row == nullptr)
        return unknown_option(name,
                              name.substr(name.find_first_not_of('-') == std::string::npos ? name.size() : name.find_first_not_of('-')));
      out.own.push_back(word);
      if (row->is_flag()) continue;
      const bool value_missing = equals == std::string::npos ? at + 1 == args.size() : equals + 1 == word.size();
      if (value_missing) return Error{kExitUsage, name + " needs a value (" + row->metavar + ")", row->help};
      if (equals == std::string::npos) out.own.push_back(args[++at]);
    }
  }
  if (out.help || out.version || !out.module) return out;
  if (out.program.empty() || out.program.front().empty())
    return Error{kExitUsage, "-m needs the name of a Python module", "for example ipexrun -m my_package.serve"};
  if (out.no_python) return Error{kExitUsage, "-m and --no-python contradict each other: a module runs under Python", "give one of them"};
  return out;
}

struct Setting {
  const OptionRow* row = nullptr;
  std::string value;
};

/// Our own part of the command line, in the order given.
Result<std::vector<Setting>> parse_own(std::vector<std::string> own) {
  CLI::App app;
  app.set_help_flag();
  std::vector<std::pair<const CLI::Option*, const OptionRow*>> known;
  for (const OptionRow& row : option_table()) {
    std::set<std::string> forms;
    const auto add_forms = [&forms](std::string name) {
      forms.insert("--" + name);
      std::replace(name.begin(), name.end(), '-', '_');
      forms.insert("--" + name);
    };
    add_forms(row.name);
    for (const std::string& alias : row.aliases) add_forms(alias);
    std::string spelled;
    for (const std::string& form : forms) spelled += (spelled.empty() ? "" : ",") + form;
    if (row.is_flag()) {
      known.emplace_back(app.add_flag(spelled)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast), &row);
    } else {
      CLI::callback_t keep = [](const CLI::results_t&) { return true; };
      known.emplace_back(app.add_option(spelled, keep)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll), &row);
    }
  }
  try {
    std::reverse(own.begin(), own.end());  // CLI11 takes its vector from the back
    app.parse(own);
  } catch (const CLI::ParseError& failure) {
    return Error{kExitUsage, failure.what(), "see ipexrun --help"};
  }
  std::vector<Setting> out;
  std::map<const CLI::Option*, std::size_t> used;
  for (const CLI::Option* option : app.parse_order()) {
    const auto row = std::find_if(known.begin(), known.end(), [option](const auto& entry) { return entry.first == option; });
    out.push_back({row->second, option->results().at(used[option]++)});
  }
  return out;
}

/// Pairs of options that ask for two different things.
constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kExclusive{{{"one-per-tile", "one-per-device"},
                                                                                    {"one-per-tile", "ninstances"},
                                                                                    {"one-per-device", "ninstances"},
                                                                                    {"latency-mode", "throughput-mode"},
                                                                                    {"latency-mode", "ninstances"},
                                                                                    {"latency-mode", "ncores-per-instance"},
                                                                                    {"throughput-mode", "ninstances"},
                                                                                    {"throughput-mode", "ncores-per-instance"},
                                                                                    {"throughput-mode", "place"},
                                                                                    {"pin", "no-pin"},
                                                                                    {"cores-list", "nodes-list"},
                                                                                    {"nprocs-per-node", "ninstances"},
                                                                                    {"nprocs-per-node", "latency-mode"},
                                                                                    {"nprocs-per-node", "throughput-mode"},
                                                                                    {"nprocs-per-node", "instance-idx"}}};

bool excludes(std::string_view a, std::string_view b) {
  return std::any_of(kExclusive.begin(), kExclusive.end(),
                     [&](const auto& pair) { return (pair.first == a && pair.second == b) || (pair.first == b && pair.second == a); });
}

bool is_given(const Options& options, const std::string& name) {
  return std::find(options.given.begin(), options.given.end(), name) != options.given.end();
}

/// Given in a way that asks for something (a flag that is off, or a count of 0, does not).
bool asks(const Setting& setting) {
  const bool count = setting.row->metavar == "N" || setting.row->metavar == "N|auto";
  return setting.value != (setting.row->is_flag() ? "false" : count ? "0" : "");
}

/// Command line beats file: settings of the file that the command line replaces or rules out are dropped.
std::vector<Setting> merge(const std::vector<Setting>& file, const std::vector<Setting>& line, std::vector<std::string>* notes) {
  std::vector<Setting> out;
  for (const Setting& old : file) {
    const auto rival = std::find_if(line.begin(), line.end(), [&](const Setting& now) {
      return now.row == old.row || (asks(now) && asks(old) && excludes(now.row->name, old.row->name));
    });
    if (rival == line.end()) {
      out.push_back(old);
    } else if (rival->row != old.row) {
      notes->push_back("--" + rival->row->name + " on the command line replaces " + old.row->name + " of the config");
    }
  }
  out.insert(out.end(), line.begin(), line.end());
  return out;
}

/// What the environment says of options that neither the command line nor the file has. A word that is the variable's alone ("on", for
/// tests "now") goes to the program as it is.
Status add_environment(Options& options) {
  for (const OptionRow& row : option_table()) {
    if (!row.variable || is_given(options, row.name)) continue;
    const std::string value = env::get(*row.variable).value_or("");
    if (std::find(row.choices.begin(), row.choices.end(), value) == row.choices.end()) continue;
    Status done = row.set(options, value);
    if (!done.ok()) return done;
    options.from_env.push_back(row.name);
  }
  return ok_status();
}

/// run_cpu's --multi-instance: one instance a node, where nothing else says how many there are.
void settle_multi_instance(Options& options) {
  const bool says_more = options.ninstances > 0 || options.ninstances_auto || options.ncores_per_instance > 0 || options.latency_mode ||
                         !options.place.empty() || options.distributed.nprocs_per_node.has_value();
  if (!options.multi_instance || says_more || options.throughput_mode) return;
  options.throughput_mode = true;
  options.given.emplace_back("throughput-mode");
}

Status apply(const std::vector<Setting>& settings, Options& options) {
  for (const Setting& setting : settings) {
    Status done = setting.row->set(options, setting.value);
    if (!done.ok()) return done.error();
    auto& given = options.given;
    if (std::find(given.begin(), given.end(), setting.row->name) == given.end()) given.push_back(setting.row->name);
  }
  for (const Setting& a : settings)
    for (const Setting& b : settings)
      if (asks(a) && asks(b) && excludes(a.row->name, b.row->name))
        return Error{kExitUsage, "--" + a.row->name + " and --" + b.row->name + " contradict each other", "give one of them"};
  settle_multi_instance(options);
  return ok_status();
}

ProgramKind kind_of(const Parts& parts) {
  if (parts.module) return ProgramKind::kModule;
  if (!parts.no_python && parts.program.front().ends_with(".py")) return ProgramKind::kScript;
  return ProgramKind::kExecutable;
}

/// What single options cannot check.
Status validate(Options& options) {
  const bool plans_only = options.dry_run || options.command == Command::kTopology;
  const bool reports = options.command == Command::kEnv || options.command == Command::kDoctor || options.command == Command::kExplainLast;
  if (options.json && !plans_only && !reports)
    return Error{kExitUsage, "--json goes with --dry-run, topology, env, doctor or explain-last",
                 "a benchmark writes JSON with --bench-output FILE.json"};
  if (!options.topology.empty() && !plans_only && !options.explain)
    return Error{kExitUsage, "--topology names a machine that is not there: nothing can be started on it", "add --dry-run"};
  if (!options.sysroot.empty() && !plans_only && !options.explain)
    return Error{kExitUsage, "--sysroot names a machine that is not there: nothing can be started on it", "add --dry-run"};
  if (options.require_shim && !options.optimize)
    return Error{kExitUsage, "--require-shim and --no-optimize contradict each other", "give one of them"};
  if (options.max_restarts > 0 && options.bench.enabled)
    return Error{kExitUsage, "--max-restarts and --bench contradict each other: what was started again measures nothing",
                 "give one of them"};
  if (options.log_keep > 0 && options.log_dir.empty())
    return Error{kExitUsage, "--log-keep " + std::to_string(options.log_keep) + " needs --log-dir", "there are no log files without it"};
  if (is_given(options, "log-file-prefix") && !is_given(options, "log-dir"))
    return Error{kExitUsage, "--log-file-prefix " + options.log_file_prefix + " needs --log-dir", "there are no log files without it"};
  if (options.bench.stop && !options.bench.iters && !options.bench.seconds)
    return Error{kExitUsage, "--bench-stop needs --bench-iters or --bench-seconds", "without one the measurement ends with the program"};
  if (is_given(options, "bench-pairs") && options.bench.compare.empty())
    return Error{kExitUsage, "--bench-pairs " + std::to_string(options.bench.pairs) + " needs --bench-compare",
                 "without it there is nothing to compare with"};
  if (!options.optimize && is_given(options, "dtype"))
    options.notes.push_back("--dtype " + options.dtype + " has no effect with --no-optimize");
  if (!options.optimize && options.report) options.notes.push_back("--report has nothing to show with --no-optimize");
  return ok_status();
}

/// Options of `ipexrun doctor` need it: a program would be run without what was asked for.
Status validate_doctor(const Options& options) {
  for (const std::string& name : options.given)
    if (options.command != Command::kDoctor && find_option(name)->group == OptionGroup::kDoctor)
      return Error{kExitUsage, "--" + name + " belongs to ipexrun doctor", "ipexrun doctor --" + name};
  return ok_status();
}

/// Options of GPUs need `ipexrun xpu`, and some of CPU runs mean nothing there.
Status validate_xpu(const Options& options, std::vector<std::string>& notes) {
  const bool xpu = options.command == Command::kXpu;
  const bool any = options.opencl == "any";  // cores are chosen as for programs on the CPU
  for (const std::string& name : options.given) {
    const OptionRow* row = find_option(name);
    if (!xpu && row->group == OptionGroup::kXpu && !row->get(options).empty())
      return Error{kExitUsage, "--" + name + " belongs to ipexrun xpu", "ipexrun xpu --" + name + " ... PROGRAM"};
    if (!xpu) continue;
    if (!any && ((name == "latency-mode" && options.latency_mode) || (name == "throughput-mode" && options.throughput_mode)))
      return Error{kExitUsage, "--" + name + " counts CPU cores and does not go with ipexrun xpu", "--one-per-tile or --one-per-device"};
    if (name == "require-shim" && options.require_shim && options.opencl == "off")
      return Error{kExitUsage, "--require-shim and --opencl off contradict each other", "give one of them"};
    if (name == "redirect" && !options.redirect.empty() && (options.opencl == "off" || !options.optimize))
      return Error{kExitUsage, "--redirect and a launch without device xpu of ours contradict each other",
                   options.opencl == "off" ? "leave out --opencl off" : "leave out --no-optimize"};
    const bool tiles =
        name == "tiles" || name == "devices" || name == "one-per-tile" || name == "one-per-device" || name == "device-hierarchy";
    if (tiles && any && !row->get(options).empty())
      return Error{kExitUsage, "--" + name + " and --opencl any contradict each other: no Intel GPU is looked for", "give one of them"};
    const bool of_devices = name == "dtype" || name == "select" || (name == "report" && options.report);  // these need a device of ours
    const bool of_places = !any && (name == "strategy" || name == "place" || name == "skip-cross-node-cores");
    if (of_places || name == "graph-mode" || name == "inductor" || (name == "split-sgd" && options.split_sgd) ||
        (of_devices && options.opencl == "off") || name == "report-output")
      notes.push_back("--" + name + " has no effect with ipexrun xpu: " +
                      (of_places ? "the GPUs say where the instances go" : "kernels on the CPU stay stock"));
  }
  return ok_status();
}

Error no_program() { return Error{kExitUsage, "no PROGRAM given", "usage: ipexrun [options] PROGRAM args; see ipexrun --help"}; }

/// Options that a command other than a run takes.
bool command_takes(Command command, const std::string& option) {
  if (command == Command::kTopology) return option == "json" || option == "topology" || option == "sysroot";
  if (command == Command::kDoctor) return option == "json" || option == "build" || option == "torch-python";
  return (command == Command::kEnv || command == Command::kExplainLast) && option == "json";
}

}  // namespace

std::string hint_for_command(const std::vector<std::string>& args, const Options& options) {
  if (args.empty() || options.program_kind != ProgramKind::kExecutable || args.front() != options.program) return "";
  if (args.front() == "help" || args.front() == "version") return "did you mean ipexrun --" + args.front() + "?";
  std::vector<std::string> words;
  for (const CommandWord& known : kCommandWords) words.emplace_back(known.word);
  const std::string near = nearest_word(args.front(), words);
  return near.empty() ? "" : "did you mean ipexrun " + near + "?";
}

Result<Options> parse_command_line(const std::vector<std::string>& args) {
  Options options;
  std::vector<std::string> rest = args;
  if (args.size() == 2 && args[0] == "--completion") {
    if (args[1] != "bash") return Error{kExitUsage, "no completion for '" + args[1] + "'", "ipexrun --completion bash"};
    options.command = Command::kCompletion;
    return options;
  }
  if (args.size() == 1 && args[0] == "--man") {
    options.command = Command::kManPage;
    return options;
  }
  if (!args.empty()) {
    for (const CommandWord& known : kCommandWords) {
      if (args[0] != known.word) continue;
      options.command = known.command;
      rest.erase(rest.begin());
    }
  }
  if (options.command == Command::kTune || options.command == Command::kAot) return options;
  if (options.command == Command::kEnv) {
    const auto docs = std::find(rest.begin(), rest.end(), "--docs");
    options.docs = docs != rest.end();
    if (options.docs) rest.erase(docs);
  }

  Result<Parts> parts = split(rest);
  if (!parts.ok()) return parts.error();
  if (parts->help || parts->version) {
    options.help_of = options.command;
    options.command = parts->help ? Command::kHelp : Command::kVersion;
    return options;
  }
  Result<std::vector<Setting>> line = parse_own(parts->own);
  if (!line.ok()) return line.error();

  const bool runs = options.command == Command::kRun || options.command == Command::kXpu;
  if (!runs) {
    for (const Setting& setting : *line)
      if (!command_takes(options.command, setting.row->name))
        return Error{kExitUsage, "ipexrun " + args[0] + " does not take --" + setting.row->name, "see ipexrun " + args[0] + " --help"};
    if (options.command == Command::kGather && parts->program.size() > 1)
      return Error{kExitUsage, "ipexrun gather takes one file, but '" + parts->program[1] + "' was given, too",
                   "see ipexrun gather --help"};
    if (options.command == Command::kGather && parts->program.size() == 1) {
      options.output = parts->program.front();
    } else if (!parts->program.empty()) {
      return Error{kExitUsage, "ipexrun " + args[0] + " takes no program, but '" + parts->program.front() + "' was given",
                   "ipexrun -- " + args[0] + " runs a program of that name"};
    }
  }

  std::vector<Setting> file;
  bool config_read = false;
  for (const Setting& setting : *line) {
    if (setting.row->name != "config") continue;
    if (config_read) return Error{kExitUsage, "--config is given twice", "put the settings into one file"};
    Result<ConfigFile> config = read_config(setting.value);
    if (!config.ok()) return config.error();
    config_read = true;
    for (const auto& [row, value] : config->entries) file.push_back({row, value});
    options.env = config->env;
    options.decisions = config->decisions;
  }
  const std::vector<Setting> settings = merge(file, *line, &options.notes);
  Status applied = apply(settings, options);
  if (applied.ok()) applied = add_environment(options);
  if (!applied.ok()) return applied.error();
  Status valid = validate(options);
  if (!valid.ok()) return valid.error();
  if (Status doctor = validate_doctor(options); !doctor.ok()) return doctor.error();
  if (Status xpu = validate_xpu(options, options.notes); !xpu.ok()) return xpu.error();
  if (!runs) return options;

  if (parts->program.empty() || parts->program.front().empty()) return no_program();
  options.program_kind = kind_of(*parts);
  options.program = parts->program.front();
  options.args.assign(parts->program.begin() + 1, parts->program.end());
  return options;
}

}  // namespace ipexrun::launcher
