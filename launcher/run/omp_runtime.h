// Which OpenMP runtime a program will load, found out from files: nothing of the program is run, and torch is never imported.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ipexrun::launcher {

/// The three runtimes that torch meets. They differ in the variables that they read and in what a forked child may do.
enum class OmpFamily {
  kNone,   ///< no OpenMP runtime
  kGnu,    ///< libgomp, also under the names that wheels give their copy (libgomp-a34b3233.so.1)
  kIntel,  ///< libiomp5
  kLlvm,   ///< libomp
};

/// By the name of the file, folders before it ignored.
OmpFamily omp_family_of(const std::string& path);

/// "gnu", "intel", "llvm" or "".
std::string omp_family_name(OmpFamily family);

/// The runtime that a program brings.
struct OmpFound {
  OmpFamily family = OmpFamily::kNone;
  std::string path;    ///< "" = none found
  std::string reason;  ///< one sentence, for --explain, either way
};

/// Folders in which the loader looks when neither the library nor the environment says where.
std::vector<std::string> system_library_folders();

/// Follows the names that `start` (a program or a library) wants, in the loader's order, to the first OpenMP runtime. A link such as
/// conda's libgomp.so.1 -> libomp.so counts as what it leads to.
OmpFound follow_to_omp(const std::string& start, const std::map<std::string, std::string>& env,
                       const std::vector<std::string>& system_folders);

/// The runtime that `program` (absolute path) loads under `env`: one in LD_PRELOAD, else that of the torch of a Python (itself, or the
/// one in the first line of a script), else the one that it is linked with.
OmpFound find_program_omp(const std::string& program, const std::map<std::string, std::string>& env);

}  // namespace ipexrun::launcher
