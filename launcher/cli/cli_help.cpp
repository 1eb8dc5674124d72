#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "configs/contract/env.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/help_text.h"
#include "launcher/cli/option_table.h"

namespace ipexrun::launcher {
namespace {

const Pairs& commands() {
  static const Pairs rows = {
      {"ipexrun [cpu] [options] PROGRAM args", "PROGRAM: script.py, python script.py, -m module, or an executable"},
      {"ipexrun topology [--json]", "the machine as ipexrun sees it"},
      {"ipexrun env [--json | --docs]", "facts for a bug report; --docs: ipexrun's variables"},
      {"ipexrun doctor [--json] [--build]", "check this installation and say what would help"},
      {"ipexrun explain-last [--json]", "why the last run went as it did: its plan, and what answered which calls"},
      {"ipexrun gather [FILE.tar.gz]", "write this machine's topology and limits into an archive"},
      {"ipexrun xpu [options] PROGRAM args", "the same for programs on Intel GPUs: devices, tiles, cores near them; launch only"},
      {"ipexrun aot --device LIST", "build the kernels of device xpu ahead of time (ipexrun aot --help)"},
      {"ipexrun tune [options] PROGRAM args", "search the best way to launch PROGRAM (the program hypertune; ipexrun tune --help)"}};
  return rows;
}

const Pairs& examples() {
  static const Pairs rows = {{"ipexrun python app.py --epochs 3", "one instance on all physical cores"},
                             {"ipexrun --ninstances 2 --ncores-per-instance 4 serve.py", "two instances on disjoint cores"},
                             {"ipexrun --throughput-mode --log-dir logs -m my.module", "one instance a NUMA node, a log each"},
                             {"ipexrun --dry-run --explain app.py", "the plan and its reasons; starts nothing"},
                             {"ipexrun --bench --bench-compare stock app.py", "throughput beside the plain program"},
                             {"ipexrun xpu --one-per-tile train.py", "an instance for each tile of each Intel GPU"},
                             {"ipexrun --no-optimize ./server", "placement and allocator only"}};
  return rows;
}

const Pairs& exit_codes() {
  static const Pairs rows = {{"0-255", "the program's own; of several instances the first failure's"},
                             {"1", "the run could not be prepared (log folder not writable, --require-shim not met)"},
                             {"2", "bad option or value, or an impossible request"},
                             {"124", "ended at the time limit of --timeout"},
                             {"126", "PROGRAM is not executable"},
                             {"127", "PROGRAM not found"},
                             {"128+n", "the program was ended by signal n"}};
  return rows;
}

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

std::string option_form(const OptionRow& row) { return "--" + row.name + (row.is_flag() ? "" : " " + row.metavar); }

std::string option_text(const OptionRow& row) {
  std::string out = row.help;
  if (!row.choices.empty()) out += " [" + joined(row.choices, " | ") + "]";
  if (!row.aliases.empty()) out += " (also --" + joined(row.aliases, ", --") + ")";
  return out;
}

/// In their own order, which is that of the headings.
std::vector<OptionGroup> groups() {
  std::vector<OptionGroup> all;
  for (int group = 0; group <= static_cast<int>(OptionGroup::kLater); ++group) all.push_back(static_cast<OptionGroup>(group));
  return all;
}

Pairs general_options() {
  return {{"-m, --module MODULE", "run a Python module; everything after its name belongs to it"},
          {"--no-python", "run PROGRAM itself even if its name ends in .py"},
          {"--", "end of options: the next word is PROGRAM"},
          {"-h, --help", "this text"},
          {"-V, --version", "versions of ipexrun, its plugins and hwloc"}};
}

std::string options_help() {
  std::string out;
  for (const OptionGroup group : groups()) {
    if (group == OptionGroup::kLater) continue;  // they exist to be refused in one clear line
    out += "\n" + std::string(group_title(group)) + "\n";
    for (const OptionRow& row : option_table())
      if (row.group == group) out += help_entry(option_form(row), option_text(row));
  }
  out += "\nProgram and general\n";
  for (const auto& [name, text] : general_options()) out += help_entry(name, text);
  return out;
}

/// Variables that a person sets.
std::string variables_help() {
  std::string out = "\nEnvironment variables (ipexrun env --docs has all)\n";
  for (const env::Row& row : env::rows()) {
    if (std::string(row.set_by) == "launcher") continue;
    out += help_entry(row.name, row.help);
  }
  return out;
}

std::string run_help() {
  std::string out = "Run an unedited PyTorch program fast on this machine's CPUs.\n\nUsage\n" + help_entries(commands()) + "\nExamples\n" +
                    help_entries(examples()) + options_help() + "\nExit codes\n" + help_entries(exit_codes()) + variables_help();
  return out +
         "\nNames are accepted with dashes and with underscores. The command line beats --config FILE, which beats the environment.\n";
}

/// Text of a Markdown table cell.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

}  // namespace

std::string help_text(Command command) {
  switch (command) {
    case Command::kTopology:
      return "Usage: ipexrun topology [--json] [--topology TEXT|FILE] [--sysroot DIR|FILE]\n\n"
             "Prints packages, cores, CPUs and NUMA nodes that this process may use, and what restricts them.\n"
             "--topology shows a machine that is not there, e.g. \"node:2 core:28 pu:2\" or an hwloc XML file.\n";
    case Command::kEnv:
      return "Usage: ipexrun env [--json | --docs]\n\n"
             "Prints versions, machine, torch and variables, for a bug report. --docs prints the table of ipexrun's variables.\n";
    case Command::kDoctor:
      return "Usage: ipexrun doctor [--json] [--build] [--torch-python PYTHON]\n\n"
             "Checks whether programs can be run and optimized here, and what would help. Exit code 1 when something fails.\n"
             "--torch-python names the interpreter whose torch is meant; without it, python, else python3, of PATH.\n"
             "--build builds a plugin for that torch where none matches: it needs a C++ compiler, cmake, and ninja or make.\n";
    case Command::kExplainLast:
      return "Usage: ipexrun explain-last [--json]\n\n"
             "Shows why the last run of a torch program under ipexrun went as it did: the plan with its reasons, which modules were "
             "captured,\n"
             "which kernels answered which calls and how much they saved. --json prints what was kept of that run.\n"
             "It is kept beside the remembered decisions (IPEXRUN_CACHE); off: nothing is.\n";
    case Command::kGather:
      return "Usage: ipexrun gather [FILE.tar.gz | FOLDER/]\n\n"
             "Writes what ipexrun reads of this machine (topology, cgroups, limits, GPUs) into one archive, without host or user names,\n"
             "command lines or serial numbers. ipexrun --sysroot FILE.tar.gz --dry-run PROGRAM plans for that machine elsewhere.\n"
             "Default name: ipexrun-machine-<time>.tar.gz in the current folder.\n";
    default:
      return run_help();
  }
}

std::string env_docs() {
  std::string out =
      "# Environment variables\n\n"
      "Made by `ipexrun env --docs` from `configs/contract/env_vars.def`; a test compares the two.\n\n"
      "An empty variable counts as unset. A flag is on for `1`, `true`, `on` and `yes`, off for `0`, `false`, `off` and `no`. Bytes take "
      "K, "
      "M, G and T.\n"
      "\"Set by launcher\" means that ipexrun sets it for the program it starts; a person has no need to. \"Both\": a person's value beats "
      "what ipexrun\n"
      "would set, and an option beats both. A value that a variable cannot have is one line, and nothing is started (exit code 2); "
      "programs "
      "without the\n"
      "launcher take the default instead.\n\n"
      "| variable | type | default | set by | read by | inherited | meaning |\n|---|---|---|---|---|---|---|\n";
  for (const env::Row& row : env::rows()) {
    const std::string fallback = *row.fallback == '\0' ? "" : "`" + std::string(row.fallback) + "`";
    out += "| `" + std::string(row.name) + "` | " + row.type + " | " + fallback + " | " + row.set_by + " | " + cell(row.read_by) + " | " +
           (row.inherited ? "yes" : "no") + " | " + cell(row.help) + " |\n";
  }
  out +=
      "\nVariables of other tools that ipexrun sets unless they are set already: `OMP_NUM_THREADS`, `TORCHINDUCTOR_COMPILE_THREADS`,\n"
      "`MALLOC_CONF` (jemalloc), `ONEDNN_MAX_CPU_ISA` (to match\n"
      "`ATEN_CPU_CAPABILITY`), `PYTHONUNBUFFERED` (with `--log-dir`). `LD_PRELOAD` keeps the entries it had. [launcher.md](launcher.md) "
      "says which value wins.\n";
  return out;
}

std::string completion_text() {
  std::string words = "--help --version --module --no-python";
  std::string cases;
  for (const OptionRow& row : option_table()) {
    if (row.group == OptionGroup::kLater) continue;
    words += " --" + row.name;
    if (!row.choices.empty())
      cases += "    --" + row.name + ") COMPREPLY=($(compgen -W \"" + joined(row.choices, " ") + "\" -- \"$word\")); return ;;\n";
    if (row.metavar == "FILE" || row.metavar == "TEXT|FILE" || row.metavar == "DIR|FILE")
      cases += "    --" + row.name + ") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n";
    if (row.metavar == "DIR") cases += "    --" + row.name + ") COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n";
  }
  return "# bash completion of ipexrun: source <(ipexrun --completion bash)\n"
         "_ipexrun() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  COMPREPLY=()\n"
         "  case $previous in\n" +
         cases +
         "  esac\n"
         "  if [[ $word == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"" +
         words +
         "\" -- \"$word\"))\n"
         "  elif [[ $COMP_CWORD -eq 1 ]]; then\n"
         "    COMPREPLY=($(compgen -W \"cpu xpu tune topology env doctor gather explain-last\" -- \"$word\") $(compgen -c -- \"$word\") "
         "$(compgen -f -- "
         "\"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o default -F _ipexrun ipexrun\n";
}

std::string man_page(const std::string& version) {
  std::string out = ".TH IPEXRUN 1 \"\" \"ipexrun " + version +
                    "\" \"User Commands\"\n.SH NAME\nipexrun \\- run an unedited PyTorch program fast on CPUs\n.SH SYNOPSIS\n";
  for (const auto& [name, text] : commands()) out += ".B " + roff(name) + "\n.br\n";
  out +=
      ".SH DESCRIPTION\nStarts one or more instances of a program on cores and memory chosen for this machine, and lets optimized kernels "
      "join the PyTorch that the program loads.\nThe program is not edited; whatever cannot be done faster with an equal result stays with "
      "stock PyTorch.\n";
  for (const OptionGroup group : groups()) {
    if (group == OptionGroup::kLater) continue;
    std::string title(group_title(group));
    std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    out += ".SH " + title + "\n";
    Pairs rows;
    for (const OptionRow& row : option_table())
      if (row.group == group) rows.emplace_back(option_form(row), option_text(row));
    out += roff_list(rows);
  }
  out += ".SH PROGRAM AND GENERAL\n" + roff_list(general_options()) + ".SH EXIT STATUS\n" + roff_list(exit_codes()) + ".SH ENVIRONMENT\n";
  Pairs variables;
  for (const env::Row& row : env::rows())
    if (std::string(row.set_by) != "launcher") variables.emplace_back(row.name, row.help);
  return out + roff_list(variables) + ".SH EXAMPLES\n" + roff_list(examples());
}

}  // namespace ipexrun::launcher
