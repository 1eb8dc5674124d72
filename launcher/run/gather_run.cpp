// `ipexrun gather`: writes what launcher/machine/gather.h found, and says what is in it and what is not.
#include "launcher/run/gather_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdio>
#include <ctime>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "launcher/machine/gather.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

/// The time and nothing else: a host name in a file name is easily overlooked.
std::string default_name() { return fmt::format("{}-{:%Y%m%dT%H%M%S}.tar.gz", kArchiveTop, fmt::gmtime(std::time(nullptr))); }

void say(const std::string& line) { std::fputs(("ipexrun: " + line + "\n").c_str(), stderr); }

}  // namespace

Result<int> run_gather(const Options& options) {
  const std::string target = options.output.empty() ? default_name() : options.output;
  const bool folder = target.ends_with('/');
  const Gathered gathered = gather("", env::all());
  const Status written = folder ? write_folder(gathered.tree, target) : write_archive(gathered.tree, kArchiveTop, target);
  if (!written.ok()) return written.error();
  say(fmt::format("gathered {} ({} of text) into {}", count_text(gathered.files, "file"), bytes_text(gathered.bytes), target));
  say("left out: host and user names, process names and command lines, network and serial numbers, mounts that are no cgroups,");
  say("          the environment but for variables of OpenMP, oneDNN, allocators and ranks (ipexrun/environment.txt)");
  if (gathered.hidden_names > 0) say(fmt::format("{} of cgroups replaced by id1, id2, ...", count_text(gathered.hidden_names, "name")));
  for (const std::string& line : gathered.left_out) log::warn("not taken: " + line);
  say(std::string("look at it:  ") + (folder ? "ls -R " : "tar tzf ") + target);
  say("plan for it: ipexrun --sysroot " + target + " --dry-run PROGRAM");
  return kExitOk;
}

}  // namespace ipexrun::launcher
