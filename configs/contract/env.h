// Typed access to the rows of env_vars.def; the only place in the project that calls getenv().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ipexrun::env {

enum class Id : int {
#define IPEXRUN_ENV_VAR(id, name, type, fallback, set_by, read_by, inherited, help) id,
#include "configs/contract/env_vars.def"
#undef IPEXRUN_ENV_VAR
};

/// One row of env_vars.def, all fields as text.
struct Row {
  Id id;
  const char* name;
  std::string type;                  ///< flag, word, path, int, bytes, seconds
  std::vector<std::string> allowed;  ///< of a word: the only values; empty = any
  const char* fallback;
  const char* set_by;
  const char* read_by;
  bool inherited;
  const char* help;
};

const std::vector<Row>& rows();
const Row& row(Id id);
inline const char* name(Id id) { return row(id).name; }

/// What is wrong with `value`: "IPEXRUN_DTYPE=foo is none of auto, ..."; "" = nothing. An empty value counts as unset.
std::string problem_of(const Row& row, const std::string& value);

/// The same of this process's environment: of its first variable of ours with a value that it cannot have. With the kill switch on nothing
/// else counts.
std::string problem_of_environment();

/// The variable's text; nullopt when unset or empty (an empty variable counts as unset everywhere in ipexrun).
std::optional<std::string> get(Id id);

/// "1", "true", "on", "yes" (any case) are true; everything else, and unset, is false.
bool get_flag(Id id);

/// A whole number; nullopt when unset or not a number.
std::optional<std::int64_t> get_int(Id id);

/// Bytes with an optional K, M, G or T suffix (powers of 1024); nullopt when unset or malformed.
std::optional<std::uint64_t> get_bytes(Id id);
std::optional<std::uint64_t> parse_bytes(std::string_view text);

/// Any variable by name, for the launcher's table of other tools' variables (OMP_NUM_THREADS, MALLOC_CONF, PATH, ...).
std::optional<std::string> get_named(const char* name);

/// The calling process's whole environment as NAME=value strings, in its order.
std::vector<std::string> all();

}  // namespace ipexrun::env
