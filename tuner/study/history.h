// Between records of the journal and the study's data.
#pragma once

#include "tuner/study/journal.h"
#include "tuner/study/trial.h"

namespace ipexrun::tuner {

Record record_of(const StudyHead& head);
Record record_of(const std::vector<Objective>& objectives);
/// "start": trial `trial` is taken by its worker.
Record start_record(const Trial& trial);
Record run_record(int trial, const Run& run);
Record end_record(int trial, State state, const std::string& why);
Record round_record(const Round& round);
/// More points that the planner refused.
Record dropped_record(const std::map<std::string, int>& more);
Record stop_record(const std::string& why);
Record verdict_record(const std::string& text, int best);

/// Takes one record over. Records of unknown kinds (of a later version) are ignored; a second end of a trial counts as damage.
void apply(const Record& record, History* history);

/// Reads a whole study for a report. `place`: its folder or its journal. kExitUsage when there is none.
Result<History> read_study(const std::string& place);

}  // namespace ipexrun::tuner
