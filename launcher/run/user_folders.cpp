#include "launcher/run/user_folders.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>

#include "configs/contract/env.h"
#include "launcher/plan/environment.h"
#include "launcher/run/posix.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

/// `variable`/ipexrun, else ~/`fallback`/ipexrun; a relative path counts as unset.
std::string below(const std::map<std::string, std::string>& env, const char* variable, const char* fallback) {
  const std::string named = value_of(env, variable);
  const std::string home = value_of(env, "HOME");
  if (named.starts_with('/')) return named + "/ipexrun";
  return home.starts_with('/') ? home + "/" + fallback + "/ipexrun" : "";
}

/// The nearest folder above `path` that is there.
std::string existing_above(const std::string& path) {
  std::error_code failure;
  fs::path place = path;
  while (place.has_relative_path() && !fs::exists(place, failure)) place = place.parent_path();
  return place.string();
}

}  // namespace

std::string user_plugin_dir(const std::map<std::string, std::string>& env) {
  const std::string named = value_of(env, env::name(env::Id::kPluginDir));
  if (!named.empty()) return named;
  const std::string folder = below(env, "XDG_DATA_HOME", ".local/share");
  return folder.empty() ? "" : folder + "/plugins/" IPEXRUN_VERSION;
}

std::string cache_dir(const std::map<std::string, std::string>& env) {
  const std::string named = value_of(env, env::name(env::Id::kCache));
  if (named == "off") return "";
  if (named.empty()) return below(env, "XDG_CACHE_HOME", ".cache");
  std::error_code failure;
  const fs::path whole = fs::absolute(named, failure);  // a relative one is that of now, as the plugin takes it
  return failure ? named : whole.string();
}

std::string folder_objection(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return errno_text(errno);
  if (!S_ISDIR(info.st_mode)) return "not a folder";
  if (info.st_uid != ::geteuid()) return "it belongs to another user";
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "others may write to it";
  return "";
}

Status make_private_folder(const std::string& folder) {
  const auto failed = [&folder](const std::string& why) {
    return Error{kExitFailure, "cannot use the folder '" + folder + "': " + why, "it must be yours alone and writable (chmod 700)"};
  };
  if (!folder.starts_with('/')) return failed("not an absolute path");
  for (std::size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
    const std::string part = folder.substr(0, end);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      const int problem = errno;
      struct stat info {};
      if (::stat(part.c_str(), &info) != 0) return failed(errno_text(problem));  // "/home" on a read-only root is no failure
    }
    if (end == std::string::npos) break;
  }
  const std::string why = folder_objection(folder);
  if (!why.empty()) return failed(why);
  return ::access(folder.c_str(), W_OK | X_OK) == 0 ? ok_status() : Status(failed(errno_text(errno)));
}

FolderState folder_state(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) {
    const bool missing = errno == ENOENT;
    const std::string above = existing_above(folder);
    const bool can = missing && !above.empty() && ::access(above.c_str(), W_OK | X_OK) == 0;
    return {can, "'" + folder + (can ? "' is made when it is needed" : "' cannot be made in '" + above + "'")};
  }
  FolderState out;
  if (const std::string why = folder_objection(folder); !why.empty()) {
    out.text = "'" + folder + "': " + why;
    return out;
  }
  out.usable = ::access(folder.c_str(), W_OK | X_OK) == 0;
  out.text = fmt::format("'{}', mode {:o}, {}", folder, info.st_mode & 07777u, out.usable ? "writable" : "not writable");
  struct statvfs system {};
  if (::statvfs(folder.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0) out.text += ", no code can be loaded from it (noexec)";
  return out;
}

}  // namespace ipexrun::launcher
