// A folder tree in memory: what `ipexrun gather` found, before it becomes an archive or a folder.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "configs/base/result.h"

namespace ipexrun::launcher {

struct TreeEntry {
  enum class Kind { kFile, kFolder, kLink };
  Kind kind = Kind::kFile;
  std::string content;  ///< of a file; the target of a link
};

/// By path without a leading '/'; parents of an entry need no entry of their own.
using Tree = std::map<std::string, TreeEntry>;

/// FILE.tar.gz with everything below `top`. An existing file is not overwritten.
Status write_archive(const Tree& tree, const std::string& top, const std::string& file);

/// The files of an archive that write_archive() made (or tar did, of the same folder), without its top folder. kExitUsage when it is
/// none, and when it is suspicious: a path or link that could lead out of it ("..", absolute, odd spellings), more than 256 MiB.
Result<Tree> read_archive(const std::string& file);

/// Makes `folder`, which must be new or empty, and everything in it.
Status write_folder(const Tree& tree, const std::string& folder);

/// What --sysroot named, as a folder. An archive is unpacked into a folder of its own, which goes when this goes.
class Sysroot {
 public:
  /// "" stays "". kExitUsage when `path` is neither a folder nor an archive.
  static Result<Sysroot> open(const std::string& path);

  Sysroot(Sysroot&& other) noexcept;
  Sysroot(const Sysroot&) = delete;
  Sysroot& operator=(const Sysroot&) = delete;
  Sysroot& operator=(Sysroot&&) = delete;
  ~Sysroot();

  /// An empty folder would be taken for a machine without limits, with the cores of this one.
  [[nodiscard]] Status check_describes_machine() const;
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  Sysroot() = default;
  std::string folder_;
  std::string unpacked_;  ///< to be removed; "" = nothing
};

/// Name of the folder that holds everything in an archive.
inline constexpr const char* kArchiveTop = "ipexrun-machine";

}  // namespace ipexrun::launcher
