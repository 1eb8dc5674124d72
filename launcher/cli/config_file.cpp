#include "launcher/cli/config_file.h"

#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "configs/contract/config.h"
#include "configs/contract/decision.h"
#include "configs/contract/env.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/option_setters.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

/// Where in the file an error was found: "FILE:3".
struct Place {
  std::string path;
  int line = 0;

  [[nodiscard]] Error error(const std::string& what, const std::string& hint = "") const {
    return Error{kExitUsage, path + ":" + std::to_string(line) + ": " + what, hint};
  }
};

Place place_of(const std::string& path, const YAML::Node& node) { return {path, node.Mark().line + 1}; }

Result<std::string> read_limited(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Error{kExitUsage, "cannot read config '" + path + "': " + std::strerror(errno), ""};
  if (!S_ISREG(info.st_mode)) return Error{kExitUsage, "config '" + path + "' is not a regular file", ""};
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size > kConfigMaxBytes)
    return Error{kExitUsage, "config '" + path + "' has " + std::to_string(size) + " bytes",
                 "at most " + std::to_string(kConfigMaxBytes) + " are read"};
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return Error{kExitUsage, "cannot read config '" + path + "'", "is it readable by this user?"};
  return text.str();
}

/// true/yes/on and false/no/off as YAML has them, in our spelling; other text unchanged.
std::string flag_text(const std::string& text) {
  for (const char* word : {"true", "True", "TRUE", "yes", "Yes", "on", "On", "1"})
    if (text == word) return "true";
  for (const char* word : {"false", "False", "FALSE", "no", "No", "off", "Off", "0"})
    if (text == word) return "false";
  return text;
}

Status read_schema(const Place& place, const YAML::Node& value) {
  const auto number = parse_number<int>(value.IsScalar() ? value.Scalar() : "");
  if (!number || *number < 1) return place.error("schema needs a whole number", "this version writes schema: 1");
  if (*number > kConfigSchema)
    return place.error("schema " + std::to_string(*number) + " is newer than this ipexrun knows",
                       "it reads up to " + std::to_string(kConfigSchema) + "; update ipexrun");
  return ok_status();
}

Status read_env(const Place& place, const YAML::Node& value, ConfigFile* out) {
  if (!value.IsMap()) return place.error("env needs NAME: value pairs", "for example env: {MALLOC_CONF: \"...\"}");
  for (const auto& pair : value) {
    const Place here = place_of(place.path, pair.first);
    const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "";
    if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos)
      return here.error("'" + name + "' is no name of a variable");
    if (!pair.second.IsScalar() || pair.second.Scalar().find('\0') != std::string::npos)
      return here.error("the variable " + name + " needs one text as its value");
    for (const env::Row& row : env::rows())
      if (const std::string problem = row.name == name ? env::problem_of(row, pair.second.Scalar()) : ""; !problem.empty())
        return here.error(problem);
    if (!out->env.emplace(name, pair.second.Scalar()).second) return here.error("the variable " + name + " is given twice");
  }
  return ok_status();
}

/// yaml-cpp lets bytes that are no UTF-8 pass; JSON, as which a decision is kept, cannot hold them.
bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

/// Decisions go to the program as lines of fields that tabs separate.
bool is_one_field(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

nlohmann::json scalar_json(const YAML::Node& node) {
  // A quoted scalar has the tag "!": text even when it looks like a number.
  if (node.Tag() != "!") {
    if (const auto number = parse_number<std::int64_t>(node.Scalar())) return *number;
    if (const auto number = parse_number<double>(node.Scalar())) return *number;
  }
  return node.Scalar();
}

Status read_decisions(const Place& place, const YAML::Node& value, ConfigFile* out) {
  if (!value.IsSequence()) return place.error("decisions needs a list");
  for (const YAML::Node& item : value) {
    const Place here = place_of(place.path, item);
    if (!item.IsMap()) return here.error("a decision needs key: value pairs", "such as {site: \"...\", choice: \"...\"}");
    nlohmann::json decision = nlohmann::json::object();
    for (const auto& pair : item) {
      if (!pair.first.IsScalar() || !pair.second.IsScalar()) return here.error("a decision has plain values only");
      if (!is_utf8(pair.first.Scalar()) || !is_utf8(pair.second.Scalar()))
        return place_of(place.path, pair.first).error("a decision has text that is not UTF-8", "save the file as UTF-8");
      if (!is_one_field(pair.second.Scalar()))
        return place_of(place.path, pair.second).error("the " + pair.first.Scalar() + " of a decision has a tab or a line feed in it");
      decision[pair.first.Scalar()] = scalar_json(pair.second);
    }
    if (!decision.contains("site") || !decision.contains("choice")) return here.error("a decision needs site and choice");
    SiteKey site;
    if (!decision["choice"].is_string() || decision["choice"].get<std::string>().empty())
      return here.error("choice " + decision["choice"].dump() + " is none", "such as \"own_bf16\" or \"stock\"");
    if (!decision["site"].is_string() || !parse_site_key(decision["site"].get<std::string>(), &site))
      return here.error("site " + decision["site"].dump() + " is none", "such as \"addmm|f32,f32,f32|ct|m=128,n=768,k=768|t=2|amx|2.13\"");
    out->decisions.push_back(decision.dump());
  }
  return ok_status();
}

/// Whether the option's value is a list, or the option may be given several times.
bool takes_several(const OptionRow& row) { return row.metavar == "LIST" || row.name == "bench-output"; }

Status read_option(const Place& place, const std::string& key, const YAML::Node& value, ConfigFile* out) {
  const OptionRow* row = find_option(key);
  if (row == nullptr || !row->in_config) {
    std::vector<std::string> known = {kConfigKeySchema, kConfigKeyEnv, kConfigKeyDecisions};
    for (const OptionRow& candidate : option_table())
      if (candidate.in_config) known.push_back(candidate.name);
    const std::string near = nearest_word(key, known);
    if (row != nullptr) return place.error("'" + key + "' can be given on the command line only");
    return place.error("unknown key '" + key + "'", near.empty() ? "keys are long option names" : "did you mean " + near + "?");
  }
  std::vector<std::string> values;
  if (value.IsScalar()) {
    values.push_back(row->is_flag() ? flag_text(value.Scalar()) : value.Scalar());
  } else if (value.IsSequence() && takes_several(*row)) {
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) return place.error(key + " needs a list of plain values");
      values.push_back(item.Scalar());
    }
    if (row->metavar == "LIST") {
      std::string joined;
      for (const std::string& item : values) joined += (joined.empty() ? "" : ",") + item;
      values = {joined};
    }
  } else {
    return place.error(key + " needs " + (row->is_flag() ? "true or false" : value.IsSequence() ? "one value, not a list" : "a value"));
  }
  Options scratch;  // checked here, where the line is known; applied by the caller in order of precedence
  for (const std::string& text : values) {
    Status checked = row->set(scratch, text);
    if (!checked.ok()) return place.error(checked.error().what, checked.error().hint);
    out->entries.emplace_back(row, text);
  }
  return ok_status();
}

}  // namespace

Result<ConfigFile> read_config(const std::string& path) {
  Result<std::string> text = read_limited(path);
  if (!text.ok()) return text.error();
  ConfigFile out;
  try {
    const YAML::Node root = YAML::Load(*text);
    if (root.IsNull()) return out;
    if (!root.IsMap()) return place_of(path, root).error("a config needs key: value pairs", "such as ninstances: 2");
    std::set<std::string> seen;
    for (const auto& pair : root) {
      const Place place = place_of(path, pair.first);
      if (!pair.first.IsScalar()) return place.error("a key is a plain word");
      const std::string& key = pair.first.Scalar();
      const OptionRow* row = find_option(key);
      if (!seen.insert(row != nullptr ? row->name : key).second) return place.error("'" + key + "' is given twice");
      Status done = key == kConfigKeySchema      ? read_schema(place, pair.second)
                    : key == kConfigKeyEnv       ? read_env(place, pair.second, &out)
                    : key == kConfigKeyDecisions ? read_decisions(place, pair.second, &out)
                                                 : read_option(place, key, pair.second, &out);
      if (!done.ok()) return done.error();
    }
  } catch (const YAML::Exception& failure) {
    return Place{path, failure.mark.line + 1}.error("not valid YAML: " + failure.msg);
  }
  return out;
}

std::string config_text(const Options& options) {
  YAML::Emitter yaml;
  yaml << YAML::BeginMap << YAML::Key << kConfigKeySchema << YAML::Value << kConfigSchema;
  for (const OptionRow& row : option_table()) {
    const std::vector<std::string> values = row.values_to_keep(options);
    if (!row.in_config || values.empty()) continue;
    yaml << YAML::Key << row.name << YAML::Value;
    if (row.name == "bench-output") {
      yaml << YAML::Flow << values;
    } else {
      yaml << values.front();
    }
  }
  if (!options.env.empty()) {
    yaml << YAML::Key << kConfigKeyEnv << YAML::Value << YAML::BeginMap;
    for (const auto& [name, value] : options.env) yaml << YAML::Key << name << YAML::Value << YAML::DoubleQuoted << value;
    yaml << YAML::EndMap;
  }
  if (!options.decisions.empty()) {
    yaml << YAML::Key << kConfigKeyDecisions << YAML::Value << YAML::BeginSeq;
    for (const std::string& decision : options.decisions) {
      yaml << YAML::Flow << YAML::BeginMap;
      const nlohmann::json fields = nlohmann::json::parse(decision);
      for (const auto& [key, value] : fields.items()) {
        yaml << YAML::Key << key << YAML::Value;
        if (value.is_string()) {
          yaml << YAML::DoubleQuoted << value.get<std::string>();
        } else {
          yaml << value.dump();
        }
      }
      yaml << YAML::EndMap;
    }
    yaml << YAML::EndSeq;
  }
  yaml << YAML::EndMap;
  return std::string(yaml.c_str()) + "\n";
}

Status save_config(const Options& options, const std::string& path) {
  std::ofstream out(path, std::ios::trunc);
  out << "# Written by `ipexrun --save-config`; read it with `ipexrun --config FILE`.\n" << config_text(options);
  out.flush();
  if (!out) return Error{kExitFailure, "cannot write '" + path + "': " + std::strerror(errno), ""};
  return ok_status();
}

}  // namespace ipexrun::launcher
