// Where libraries are found that may be preloaded: allocators and OpenMP runtimes.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ipexrun::launcher {

/// Debian's folder name for libraries of this architecture, below lib.
#if defined(__x86_64__)
inline constexpr const char* kMultiarch = "x86_64-linux-gnu";
#elif defined(__aarch64__)
inline constexpr const char* kMultiarch = "aarch64-linux-gnu";
#else
inline constexpr const char* kMultiarch = "";
#endif

/// Folders in the order in which they are searched: those of the program's Python, virtual environment and conda environment before
/// the user's own (LD_LIBRARY_PATH, ~/.local) and the system's. `env` is the caller's environment, `python` the interpreter's path or "";
/// `root` replaces "/" before the system's (tests).
std::vector<std::string> library_folders(const std::map<std::string, std::string>& env, const std::string& python,
                                         const std::string& root = "");

/// The same, and the places of compilers: /opt/intel and /usr/lib/llvm-*, the newest version first.
std::vector<std::string> omp_library_folders(const std::map<std::string, std::string>& env, const std::string& python,
                                             const std::string& root = "");

/// Every library lib<stem>.so or lib<stem>.so.<version> of this machine in `folders`, in their order, the highest version of a folder
/// first. Files that are no ELF library of this machine (linker scripts, other architectures) are left out.
std::vector<std::string> find_libraries(const std::string& stem, const std::vector<std::string>& folders);

}  // namespace ipexrun::launcher
