// The user's folders that programs under ipexrun read: remembered decisions, and plugins that doctor --build made.
#pragma once

#include <map>
#include <string>

#include "configs/base/result.h"

namespace ipexrun::launcher {

/// Where plugins are that were built for this user and this version: IPEXRUN_PLUGIN_DIR, else below XDG_DATA_HOME or HOME of `env`; "" when
/// all are unset.
std::string user_plugin_dir(const std::map<std::string, std::string>& env);

/// Where selection remembers decisions, as the plugin looks for it (preload/select/decision_cache.cpp); "" = nowhere.
std::string cache_dir(const std::map<std::string, std::string>& env);

/// Why what lies in `folder` is not to be trusted: no folder, not ours, or others may write to it; "" when it is.
std::string folder_objection(const std::string& folder);

/// Makes `folder` and what is missing above it, mode 0700, and checks it. kExitFailure.
Status make_private_folder(const std::string& folder);

/// How a folder that programs write to is: "'/home/a/.cache/ipexrun', mode 700, writable, programs cannot be started there (noexec)".
struct FolderState {
  bool usable = false;  ///< it is there, ours and writable, or can be made
  std::string text;
};
FolderState folder_state(const std::string& folder);

}  // namespace ipexrun::launcher
