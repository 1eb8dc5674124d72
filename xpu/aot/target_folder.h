// The folder of one target: what in it is ours, and nothing else. --into may be any folder of the user's, with any files in it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "xpu/aot/targets.h"

namespace ipexrun::xpu::aot {

/// Letters, digits, '-', '_' and '.', the first a letter or a digit: it can name nothing outside of the folder that it is looked for in.
bool is_target_name(const std::string& name);

/// Whether this folder carries our list (programs.txt), so that ipexrun aot made it.
bool is_target(const std::string& folder);

/// Files of a target by their names without the ending, and what each is: file of xpu/kernels, options.
using Listing = std::map<std::string, std::string>;

/// Makes the folder, or goes on with one of ours, and writes a list of what is there and of what is about to be built: a build that is
/// killed leaves files that are known as ours. Error: others' files are there, or it cannot be written to.
Status open_target(const std::string& folder, const Listing& planned);

/// After building: files on the list that are not `planned` (older kernels) go away, and the list is what is there.
Status close_target(const std::string& folder, const Listing& planned, const std::string& ending);

/// Deletes what the list names, the list, and the folder if it is empty then. What else lies in it stays, and is said.
Status remove_target(const std::string& folder);

/// Makes `folder` where it is missing, and a folder for drafts in it: that both can be done is known before anything is built.
Result<std::string> make_drafts(const std::string& folder);

}  // namespace ipexrun::xpu::aot
