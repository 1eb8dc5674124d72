// The way into the user's Python interpreter, if there is one: loads the extension `_ipexrun_hook` once torch is imported.
#pragma once

#include <string>

#include "preload/hook_abi.h"
#include "preload/plugin_abi.h"

namespace ipexrun::preload {

/// Called by the plugin's start function after the tier is up. In a process without CPython, or before Py_Initialize, it does
/// nothing. Otherwise Python code of ours runs now, if this thread holds the GIL, or else in the main thread at its next
/// bytecode. Never throws and prints nothing but debug lines; a failure leaves the program as it is.
void python_entry_start(const IpexrunStart& start);

/// The part that knows neither torch nor the tier (tests give it a table of their own). `api` must live as long as the process.
void python_entry_run(const std::string& lib_dir, const IpexrunHookApi& api);

}  // namespace ipexrun::preload
