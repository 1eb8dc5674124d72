// Memory that any program gives back and takes again all the time stays with the process (docs/decisions/0027).
#pragma once

namespace ipexrun::preload {

/// From now on torch's allocations of CPU memory are counted, one in 32 looks at a coarse clock, and every 0.1 s of CPU time the process's
/// page faults are read. Once, at start; does nothing where malloc may not be set (preload/memory/c_malloc.h).
void watch_fresh_pages();

/// Steps of training are looked at by themselves (python/ipexrun/training/kept_memory.py): malloc is as before, and left alone from here
/// on.
void leave_fresh_pages() noexcept;

/// "watching", "trying", "kept", "left"; "" where nothing is looked at.
const char* fresh_pages_state() noexcept;

}  // namespace ipexrun::preload
