// The settings file ("config"), the one kind of file that --config reads and --save-config, hypertune's best.yaml and the
// shipped recipes write. YAML; since JSON is YAML, JSON is accepted.
//
//   schema: 1                      # optional; a newer number than kConfigSchema is refused with one line
//   ninstances: 2                  # any long option name without the dashes; lists as [a, b] or "a,b"; flags as true/false
//   dtype: bfloat16
//   env: {MALLOC_CONF: "..."}      # variables for the program, beating the planned defaults
//   decisions:                     # optional list; each entry is a Decision (configs/contract/decision.h)
//     - {site: "...", choice: "...", stock_ns: 1, choice_ns: 1, samples: 8}
//
// Precedence: command line, then file, then environment, then our defaults. An unknown key is an error that names the key.
// The file is at most kConfigMaxBytes long. The parser is launcher/config_file.cpp.
#pragma once

#include <cstddef>

namespace ipexrun {

inline constexpr int kConfigSchema = 1;
inline constexpr std::size_t kConfigMaxBytes = 1u << 20;
inline constexpr const char* kConfigKeySchema = "schema";
inline constexpr const char* kConfigKeyEnv = "env";
inline constexpr const char* kConfigKeyDecisions = "decisions";

}  // namespace ipexrun
