// An environment as the planner and its callers have it: a map, so that nothing is looked up in the process's own.
#pragma once

#include <map>
#include <string>

namespace ipexrun::launcher {

/// "" when it is not set.
inline std::string value_of(const std::map<std::string, std::string>& env, const std::string& name) {
  const auto found = env.find(name);
  return found == env.end() ? "" : found->second;
}

}  // namespace ipexrun::launcher
