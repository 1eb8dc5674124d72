// Whether drift checks may run in a process with Python. Needs no torch header.
#pragma once

namespace ipexrun::preload {

/// torch's Python operators skip the dispatch key of drift checks: the Python side says so, once. Before, no check begins where there is
/// Python.
void drift_python_is_ready() noexcept;

}  // namespace ipexrun::preload
