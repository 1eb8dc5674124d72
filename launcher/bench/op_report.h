// --report: what the op tier did, per instance, op and site. Terminal and JSON are made from tables of fields; a new field is one row in
// op_report_fields.cpp.
#pragma once

#include <string>
#include <vector>

#include "launcher/bench/report.h"
#include "launcher/run/op_facts.h"
#include "launcher/run/runner.h"

namespace ipexrun::launcher::bench {

/// One instance.
struct OpReport {
  int instance = 0;
  std::string process;  ///< "torch 2.13.0+cpu, amx, 2 threads"; "" = unknown
  std::string problem;  ///< why nothing can be reported; "" = `facts` hold
  OpFacts facts;
};

/// One field of a row of type T. The order of the table is the order everywhere.
template <typename T>
struct FieldOf {
  const char* name;  ///< stable key in JSON
  const char* unit;
  const char* doc;  ///< one sentence, shown in docs/report.md
  Value (*get)(const T& row);
};
const std::vector<FieldOf<OpFact>>& op_fields();
const std::vector<FieldOf<SiteFact>>& site_fields();
const std::vector<FieldOf<DriftFact>>& drift_fields();
const std::vector<FieldOf<ModuleFact>>& module_fields();
const std::vector<FieldOf<RegionFact>>& region_fields();
const std::vector<FieldOf<OpTimeFact>>& op_time_fields();

/// Reads the event files of `outcome`; call it before remove_run_dir() and before the next run in the same folder.
std::vector<OpReport> read_op_reports(const RunOutcome& outcome);

/// For the terminal: a newline after each line and no prefix; of each instance the sites that save most.
std::string op_report_text(const std::vector<OpReport>& reports);

/// Everything, with the meaning of each field.
std::string op_report_json(const std::vector<OpReport>& reports);

/// --report-output can be written: asked before anything runs. "" = not given.
Status check_op_report_output(const std::string& path);

/// What --report asks for: the table on stderr, and the file.
Status show_op_reports(const Options& options, const std::vector<OpReport>& reports);

}  // namespace ipexrun::launcher::bench
