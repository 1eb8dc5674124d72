// Result<T>: the one way a fallible function of launcher, tuner and configs reports failure.
//
// preload does not use it across the host program's frames: there every doubt means stock PyTorch (see preload/README.md).
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace ipexrun {

/// Exit codes of our own; a program's code is passed through untouched, a signal n becomes 128 + n.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,      ///< the run could not be prepared (log directory not writable, ...)
  kExitUsage = 2,        ///< bad option, bad value, impossible request
  kExitTimeLimit = 124,  ///< --timeout, as timeout(1) has it
  kExitNotExecutable = 126,
  kExitNotFound = 127,
};

/// What went wrong, in three parts that print as one line: "ipexrun: <what> (<hint>)".
struct Error {
  int code = kExitFailure;  ///< the exit code that main() returns
  std::string what;         ///< what was wrong AND the value that was seen
  std::string hint;         ///< what to do about it; may be empty

  [[nodiscard]] std::string line() const { return hint.empty() ? what : what + " (" + hint + ")"; }
};

/// Value or Error. Dropping one is a compile error, reading the wrong side throws std::bad_variant_access.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit on purpose, `return value;`
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

struct Nothing {};
/// A Result without a value.
using Status = Result<Nothing>;
inline Status ok_status() { return Nothing{}; }

}  // namespace ipexrun
