// The command line of hypertune, its help and its man page.
#include <algorithm>
#include <cctype>

#include "launcher/cli/help_text.h"
#include "launcher/cli/option_table.h"
#include "tuner/cli/settings_table.h"
#include "tuner/space/knobs.h"
#include "tuner/space/parameter_names.h"

namespace ipexrun::tuner {
namespace {

using launcher::help_entry;
using launcher::Pairs;
using launcher::roff;
using launcher::roff_list;

const Pairs& commands() {
  static const Pairs rows = {{"hypertune [options] PROGRAM args", "search the best way to launch PROGRAM (also: ipexrun tune ...)"},
                             {"hypertune report STUDY [--output FILE]", "the result of a study: its folder, or its journal"},
                             {"hypertune compare STUDY STUDY", "two studies side by side"}};
  return rows;
}

const Pairs& examples() {
  static const Pairs rows = {
      {"hypertune python serve.py", "throughput over instances, allocator, waiting, huge pages"},
      {"hypertune --objective latency --constraint \"max_rss_mib < 4000\" serve.py", "median time of a call, within 4 GB"},
      {"hypertune --conf-file space.yaml --strategy tpe serve.py --batch {batch}", "a space of one's own, arguments included, with Optuna"},
      {"hypertune --set ninstances=1,2,4 --set env.OMP_WAIT_POLICY=ACTIVE,PASSIVE ./server", "a space without a file"},
      {"ipexrun --config best.yaml serve.py", "run what was found"}};
  return rows;
}

const Pairs& exit_codes() {
  static const Pairs rows = {
      {"0", "the search ended; best.yaml is written"},
      {"1", "no trial succeeded or keeps the constraints, or something could not be written"},
      {"2", "bad option, file or space"},
      {"127", "PROGRAM not found"},
      {"130, 143", "ended by ctrl-C or SIGTERM; what was measured is kept and reported, and the same command goes on"}};
  return rows;
}

std::vector<std::string> groups() {
  std::vector<std::string> out;
  for (const SettingRow& row : settings_table())
    if (std::find(out.begin(), out.end(), row.group) == out.end()) out.push_back(row.group);
  return out;
}

std::string form(const SettingRow& row) { return "--" + row.name + (row.metavar.empty() ? "" : " " + row.metavar); }

Error unknown(const std::string& word) {
  std::vector<std::string> names;
  for (const SettingRow& row : settings_table()) names.push_back(row.name);
  const std::string name = word.substr(std::min(word.size(), word.find_first_not_of('-')));
  const std::string near = launcher::nearest_word(name, names);
  if (!near.empty()) return Error{kExitUsage, "unknown option '" + word + "'", "did you mean --" + near + "?"};
  if (launcher::find_option(name) != nullptr) {
    const Result<Parameter> parameter = name_parameter(name);
    return Error{kExitUsage, "'" + word + "' is an option of ipexrun, not of hypertune",
                 parameter.ok() ? "--set " + name + "=VALUE fixes it for all trials, several values search it" : parameter.error().hint};
  }
  return Error{kExitUsage, "unknown option '" + word + "'", "hypertune --help lists them; options of the program come after its name"};
}

}  // namespace

Result<Settings> parse_tune_command(const std::vector<std::string>& args, const std::vector<std::pair<std::string, std::string>>& before) {
  Settings out;
  for (const auto& [name, value] : before)
    if (Status done = find_setting(name)->set(out, value); !done.ok()) return done.error();
  std::size_t at = 0;
  if (!args.empty() && (args[0] == "report" || args[0] == "compare")) {
    out.command = args[0] == "report" ? TuneCommand::kReport : TuneCommand::kCompare;
    at = 1;
  } else if (args.size() == 1 && args[0] == "--man") {
    out.command = TuneCommand::kManPage;
    return out;
  }
  const bool tunes = out.command == TuneCommand::kTune;
  for (; at < args.size(); ++at) {
    const std::string& word = args[at];
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (word == "--" || word.size() < 2 || word[0] != '-') {
      if (word == "--") ++at;
      if (tunes) break;
      if (at < args.size()) out.studies.push_back(args[at]);
      continue;
    }
    if (name == "-h" || name == "--help" || name == "-V" || name == "--version") {
      out.command = name == "-h" || name == "--help" ? TuneCommand::kHelp : TuneCommand::kVersion;
      return out;
    }
    if (name == "--no-python" || name == "--no_python") {
      out.no_python = true;
      continue;
    }
    if (tunes && (name == "-m" || name == "--module")) {
      out.program = {"-m"};
      if (equals != std::string::npos) out.program.push_back(word.substr(equals + 1));
      ++at;
      break;
    }
    const SettingRow* row = name.starts_with("--") ? find_setting(name.substr(2)) : nullptr;
    if (row == nullptr) return unknown(name);
    std::string value = "true";
    if (!row->metavar.empty()) {
      if (equals != std::string::npos) {
        value = word.substr(equals + 1);
      } else if (++at < args.size()) {
        value = args[at];
      } else {
        return Error{kExitUsage, name + " needs a value (" + row->metavar + ")", row->help};
      }
    }
    if (Status done = row->set(out, value); !done.ok()) return done.error();
  }
  if (tunes) {
    for (; at < args.size(); ++at) out.program.push_back(args[at]);
    if (out.program.empty() || out.program.back().empty() || (out.program.size() == 1 && out.program[0] == "-m"))
      return Error{kExitUsage, "no PROGRAM given", "usage: hypertune [options] PROGRAM args; see hypertune --help"};
    if (!out.output.empty())
      return Error{kExitUsage, "--output " + out.output + " goes with report and compare",
                   "a search writes report.html into --output-dir; hypertune report DIR --output FILE writes it again"};
    if ((!out.topology.empty() || !out.sysroot.empty()) && !out.dry_run)
      return Error{kExitUsage, "--topology and --sysroot name a machine that is not there: nothing can be started on it", "add --dry-run"};
  } else if (out.studies.size() != (out.command == TuneCommand::kReport ? 1u : 2u)) {
    return Error{kExitUsage, out.command == TuneCommand::kReport ? "report needs one study" : "compare needs two studies",
                 "the folder given as --output-dir"};
  }
  for (const std::string& text : out.objective_texts) {
    auto parsed = parse_objective(text);
    if (!parsed.ok()) return parsed.error();
    if (Status added = add_objective(*parsed, &out.objectives); !added.ok()) return added.error();
    out.has_objectives = true;
  }
  return out;
}

std::string tune_help() {
  std::string out = "Find the best launch configuration of any command line on this machine.\n\nUsage\n";
  for (const auto& [name, text] : commands()) out += help_entry(name, text, 44);
  out += "\nExamples\n";
  for (const auto& [name, text] : examples()) out += "  " + name + "\n      " + text + "\n";
  for (const std::string& group : groups()) {
    out += "\n" + group + "\n";
    for (const SettingRow& row : settings_table())
      if (row.group == group) out += help_entry(form(row), row.help);
  }
  out += "\nProgram and general\n" + help_entry("-m, --module MODULE", "run a Python module; everything after its name belongs to it") +
         help_entry("--no-python", "run PROGRAM itself even if its name ends in .py") +
         help_entry("--", "end of options: the next word is PROGRAM") + help_entry("-h, --help; -V, --version", "this text; the version");
  out += "\nParameters: every long option of ipexrun, env.NAME, args.NAME (the placeholder {NAME} in PROGRAM's arguments), and\n";
  for (const Knob& knob : knobs())
    if (!knob.ipex) out += help_entry(knob.name, knob.help);
  out += "\nExit codes\n";
  for (const auto& [name, text] : exit_codes()) out += help_entry(name, text, 12);
  return out + "\nThe command line beats `tuning:` of the file. docs/tuning.md describes files, strategies and how is measured.\n";
}

std::string tune_man_page(const std::string& version) {
  std::string out = ".TH HYPERTUNE 1 \"\" \"ipexrun " + version +
                    "\" \"User Commands\"\n.SH NAME\nhypertune \\- find the best launch configuration of a program\n.SH SYNOPSIS\n";
  for (const auto& [name, text] : commands()) out += ".B " + roff(name) + "\n.br\n";
  out +=
      ".SH DESCRIPTION\nRuns a program again and again under ipexrun, each time launched another way, measures it, and writes the best way "
      "into a settings "
      "file that ipexrun reads.\nThe program is not edited.\n";
  for (const std::string& group : groups()) {
    std::string title = group;
    std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    out += ".SH " + title + "\n";
    Pairs rows;
    for (const SettingRow& row : settings_table())
      if (row.group == group) rows.emplace_back(form(row), row.help);
    out += roff_list(rows);
  }
  return out + ".SH EXIT STATUS\n" + roff_list(exit_codes()) + ".SH EXAMPLES\n" + roff_list(examples()) + ".SH SEE ALSO\n.BR ipexrun (1)\n";
}

}  // namespace ipexrun::tuner
