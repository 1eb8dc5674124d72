// One function a group of options, each in a file of its own (rows_<group>.cpp). option_table.cpp puts them together; the order of
// the calls is the order in --help.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/cli/option_setters.h"
#include "launcher/cli/option_table.h"

namespace ipexrun::launcher {

void add_instance_rows(std::vector<OptionRow>& rows);
void add_process_rows(std::vector<OptionRow>& rows);
void add_distributed_rows(std::vector<OptionRow>& rows);
void add_log_rows(std::vector<OptionRow>& rows);
void add_show_rows(std::vector<OptionRow>& rows);
void add_bench_rows(std::vector<OptionRow>& rows);
void add_xpu_rows(std::vector<OptionRow>& rows);
void add_doctor_rows(std::vector<OptionRow>& rows);
void add_compatible_rows(std::vector<OptionRow>& rows);
void add_later_rows(std::vector<OptionRow>& rows);

namespace setters {

inline void note(Options& options, std::string text) { options.notes.push_back(std::move(text)); }

inline OptionRow with_aliases(OptionRow row, std::vector<std::string> aliases) {
  row.aliases = std::move(aliases);
  return row;
}

inline OptionRow not_in_config(OptionRow row) {
  row.in_config = false;
  return row;
}

}  // namespace setters

}  // namespace ipexrun::launcher
