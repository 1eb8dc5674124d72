// What the rest of the plugin says to drift checks. Needs no torch header.
#pragma once

namespace ipexrun::preload {

/// torch's Python operators skip the dispatch key of drift checks: the Python side says so, once. Before, no check begins where there is
/// Python.
void drift_python_is_ready() noexcept;

/// How many calls of the program's modules the calling thread is in, below 0 while nobody watches them: callable from any thread, for as
/// long as the process lives.
void drift_tell_depth(int (*depth)()) noexcept;

/// The calling thread is back from its outermost call of a module: what the module returned is judged now, before the program drops it.
void drift_left_modules() noexcept;

/// This thread goes on in a captured form, whose operators no check sees: one that is open ends here, or begins anew later. Its dispatch
/// key is taken away, which TorchDynamo would meet in its guards.
void drift_leave() noexcept;

/// Whether this thread is in no call of a module, in a program with Python: what it computes is no network's, as far as anybody can tell, but
/// numbers that somebody compares, sums up or carries on (docs/decisions/0061).
bool drift_outside_modules() noexcept;

/// Whether a check is open in this thread.
bool drift_is_open() noexcept;

/// In a forked child, by the thread that forked: the check that it may have been in the middle of goes no further.
void drift_forget_after_fork() noexcept;

/// From now on no check begins in this thread (one that is under way is left as above), or checks may begin again. Gives what held before.
bool drift_set_apart(bool apart) noexcept;

/// Likewise for code that the program itself had TorchDynamo compile.
void drift_in_compiled_code(bool inside) noexcept;

/// While one lives, a captured program runs in this thread: its fused steps write what no check sees, so none begins in it, and one that
/// was under way is left as above.
class DriftApart {
 public:
  DriftApart() noexcept;
  ~DriftApart();
  DriftApart(const DriftApart&) = delete;
  DriftApart& operator=(const DriftApart&) = delete;

 private:
  bool was_;
};

}  // namespace ipexrun::preload
