// Building blocks of option_table.cpp: each function makes one row, with its setter and getter, from an accessor to a field.
// An accessor is a generic lambda `[](auto& o) -> auto& { return o.field; }`, so that one serves reading and writing.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/cli/option_table.h"
#include "launcher/plan/show.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher::setters {

inline const Options& default_options() {
  static const Options defaults;
  return defaults;
}

inline Error bad_value(const std::string& name, const std::string& wanted, const std::string& seen, std::string hint = "") {
  return Error{kExitUsage, "--" + name + " needs " + wanted + ", not '" + seen + "'", std::move(hint)};
}

template <typename Field>
std::string number_text(Field value) {
  if constexpr (std::is_floating_point_v<Field>) {
    char buffer[32];
    const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
    return {buffer, result.ptr};
  } else {
    return std::to_string(value);
  }
}

inline OptionRow row(std::string name, OptionGroup group, std::string metavar, std::string help) {
  OptionRow out;
  out.name = std::move(name);
  out.group = group;
  out.metavar = std::move(metavar);
  out.help = std::move(help);
  out.get = [](const Options&) { return std::vector<std::string>{}; };
  return out;
}

/// A flag that stores `on` (false for a --no-... option).
template <typename Access>
OptionRow flag(const std::string& name, OptionGroup group, Access access, std::string help, bool on = true) {
  OptionRow out = row(name, group, "", std::move(help));
  out.set = [access, on, name](Options& options, const std::string& value) -> Status {
    if (value != "true" && value != "false") return bad_value(name, "true or false", value);
    access(options) = (value == "true") == on;
    return ok_status();
  };
  out.get = [access](const Options& options) {
    const Options& defaults = default_options();
    const bool value = access(options);
    return value == access(defaults) ? std::vector<std::string>{} : std::vector<std::string>{"true"};
  };
  return out;
}

/// A number in [low, high]; the field may be a number or a std::optional of one.
template <typename Number, typename Access>
OptionRow number(const std::string& name, OptionGroup group, Access access, Number low, Number high, std::string help,
                 const std::string& metavar = "N") {
  OptionRow out = row(name, group, metavar, std::move(help));
  out.set = [access, name, low, high](Options& options, const std::string& value) -> Status {
    const std::optional<Number> parsed = parse_number<Number>(value);
    const std::string kind = std::is_floating_point_v<Number> ? "a number" : "a whole number";
    if (!parsed || !(*parsed >= low && *parsed <= high))
      return bad_value(name, kind + " from " + number_text(low) + " to " + number_text(high), value);
    access(options) = *parsed;
    return ok_status();
  };
  out.get = [access](const Options& options) -> std::vector<std::string> {
    const Options& defaults = default_options();
    const auto& value = access(options);
    if (value == access(defaults)) return {};
    if constexpr (requires { value.has_value(); }) {
      return {number_text(*value)};
    } else {
      return {number_text(value)};
    }
  };
  return out;
}

/// Blanks beside numbers, as other launchers take them: "0, 1" and "0 - 3" become "0,1" and "0-3". Those within one ("1 2") stay.
inline std::string without_blanks(const std::string& list) {
  const auto separates = [](char c) { return c == ',' || c == '-'; };
  std::string out;
  for (std::size_t at = 0; at < list.size(); ++at) {
    const std::size_t next = list.find_first_not_of(' ', at);
    if (list[at] == ' ' && (out.empty() || separates(out.back()) || next == std::string::npos || separates(list[next]))) continue;
    out += list[at];
  }
  return out;
}

/// "0-3,8".
template <typename Access>
OptionRow number_list(const std::string& name, OptionGroup group, Access access, std::string help) {
  OptionRow out = row(name, group, "LIST", std::move(help));
  out.set = [access, name](Options& options, const std::string& value) -> Status {
    auto list = parse_cpu_list(without_blanks(value));
    if (!list.ok() || list->empty()) return bad_value(name, "numbers and ranges such as 0-3,8", value);
    access(options) = *list;
    return ok_status();
  };
  out.get = [access](const Options& options) -> std::vector<std::string> {
    if (access(options).empty()) return {};
    return {cpu_list_text(access(options))};
  };
  return out;
}

/// A string; with `choices` one of them.
template <typename Access>
OptionRow word(const std::string& name, OptionGroup group, Access access, const std::string& metavar, std::string help,
               std::vector<std::string> choices = {}) {
  OptionRow out = row(name, group, metavar, std::move(help));
  out.choices = choices;
  out.set = [access, name, choices = std::move(choices)](Options& options, const std::string& value) -> Status {
    if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
      std::string wanted = "one of";
      for (const std::string& choice : choices) wanted += (choice == choices.front() ? " " : ", ") + choice;
      const std::string near = nearest_word(value, choices);
      return bad_value(name, wanted, value, near.empty() ? "" : "did you mean " + near + "?");
    }
    if (value.empty()) return bad_value(name, "a value", value);
    access(options) = value;
    return ok_status();
  };
  out.get = [access](const Options& options) -> std::vector<std::string> {
    const Options& defaults = default_options();
    if (access(options) == access(defaults)) return {};
    return {access(options)};
  };
  return out;
}

/// A name of another launcher: does `apply` and leaves a remark; not written to config files.
template <typename Apply>
OptionRow compatible(const std::string& name, const std::string& metavar, Apply apply, std::string help) {
  OptionRow out = row(name, OptionGroup::kCompatible, metavar, std::move(help));
  out.in_config = false;
  out.set = [apply, name, is_flag = out.is_flag()](Options& options, const std::string& value) -> Status {
    if (is_flag && value == "false") return ok_status();
    if (is_flag && value != "true") return bad_value(name, "true or false", value);
    return apply(options, value);
  };
  return out;
}

/// Known, but not in this version: one clear line instead of "unknown option".
inline OptionRow refused(const std::string& name, const std::string& metavar, const std::string& what, const std::string& hint,
                         OptionGroup group = OptionGroup::kLater) {
  OptionRow out = row(name, group, metavar, what);
  out.in_config = false;
  out.set = [name, what, hint](Options&, const std::string&) -> Status { return Error{kExitUsage, "--" + name + ": " + what, hint}; };
  return out;
}

}  // namespace ipexrun::launcher::setters
