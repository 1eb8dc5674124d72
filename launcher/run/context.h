// What the planner must know of the world besides the machine: looked up here, once, before anything is planned or started.
#pragma once

#include <string>

#include "configs/base/result.h"
#include "launcher/options.h"
#include "launcher/plan/machine.h"
#include "launcher/plan/planner.h"

namespace ipexrun::launcher {

/// Finds PROGRAM, the interpreter, our libraries, the allocator and the OpenMP runtime. Errors: 127 program or script not found,
/// 126 not executable, 2 an allocator or OpenMP runtime that was asked for by name and is not there. For a machine that is not
/// there (--topology) nothing that is missing is an error: its field stays "". May start short-lived children (allocator probes).
Result<PlanContext> make_context(const Options& options, const Machine& machine);

/// Folder with the shim and the plugins: IPEXRUN_LIB_DIR, else lib/ipexrun beside the folder of the running executable; "" = none.
std::string find_lib_dir();
/// Why find_lib_dir() found none.
std::string no_lib_dir_text();
/// "" where /proc/self/exe can be read: by it ipexrun finds its own files.
std::string no_proc_text();

/// A new private folder (0700) for event files, below XDG_RUNTIME_DIR, TMPDIR or /tmp, whichever is the first that can be written.
/// Folders that a killed launcher left there are removed. An error is no reason to stop: the run then has no events and no summary.
Result<std::string> make_run_dir();

/// Removes a folder made by make_run_dir() and the files in it; keeps it, and says where it is, under IPEXRUN_LOG=debug. "" is ignored.
void remove_run_dir(const std::string& path);

}  // namespace ipexrun::launcher
