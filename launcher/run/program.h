// Where PROGRAM is, and whether a library can be preloaded into it.
#pragma once

#include <string>

#include "configs/base/result.h"

namespace ipexrun::launcher {

/// The absolute path of `name`: itself when it has a slash, else the first executable file of that name in `search_path` (PATH's
/// text). Symbolic links are kept: a virtual environment is recognised by the link that started its Python. Errors: 127 not found,
/// 126 found but a directory or not executable.
Result<std::string> resolve_program(const std::string& name, const std::string& search_path);

/// The interpreter of scripts and modules: `python`, else `python3`, of `search_path`; "" when there is none.
std::string find_python(const std::string& search_path);

/// A readable regular file, or an error: 127 when it is missing, 126 when it cannot be read or is a directory.
Status check_script(const std::string& path);

/// Why the dynamic loader will not preload anything into `executable` (static, foreign machine, set-user-ID, file capabilities); ""
/// when it will. For a script the question is asked of the interpreter in its first line.
std::string preload_obstacle(const std::string& executable);

/// Why `library` must not be preloaded: not absolute, a colon or blank in its path, not a library of this machine, or replaceable by
/// somebody other than root, this user and the owner of this launcher; "" when it may be.
std::string preload_objection(const std::string& library);

}  // namespace ipexrun::launcher
