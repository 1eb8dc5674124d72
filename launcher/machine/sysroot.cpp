// Folders that stand in for "/".
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "launcher/machine/tree.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

Error cannot_write(const fs::path& path, const std::string& why) {
  return Error{kExitFailure, "cannot write '" + path.string() + "': " + why, ""};
}

/// An entry below a link would be written wherever that points to.
bool below_a_link(const Tree& tree, const std::string& path) {
  for (std::size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
    const auto parent = tree.find(path.substr(0, at));
    if (parent != tree.end() && parent->second.kind != TreeEntry::Kind::kFolder) return true;
  }
  return false;
}

}  // namespace

Status write_folder(const Tree& tree, const std::string& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) return cannot_write(folder, failure.message());
  if (!fs::is_empty(folder, failure) || failure)
    return Error{kExitFailure, "folder '" + folder + "' is not empty", "name another one, or remove it first"};
  for (const auto& [path, entry] : tree) {
    if (below_a_link(tree, path)) continue;
    const fs::path place = fs::path(folder) / path;
    fs::create_directories(entry.kind == TreeEntry::Kind::kFolder ? place : place.parent_path(), failure);
    if (failure) return cannot_write(place, failure.message());
    if (entry.kind == TreeEntry::Kind::kLink) fs::create_symlink(entry.content, place, failure);
    if (failure) return cannot_write(place, failure.message());
    if (entry.kind != TreeEntry::Kind::kFile) continue;
    std::ofstream out(place, std::ios::binary);
    out.write(entry.content.data(), static_cast<std::streamsize>(entry.content.size()));
    out.close();
    if (!out) return cannot_write(place, std::strerror(errno));
  }
  return ok_status();
}

Result<Sysroot> Sysroot::open(const std::string& path) {
  Sysroot out;
  if (path.empty()) return out;
  std::error_code failure;
  if (fs::is_directory(path, failure)) {
    // The folder that `tar x` left the archive's only folder in is as good as that folder.
    const bool outer = fs::is_directory(fs::path(path) / kArchiveTop, failure) && !fs::exists(fs::path(path) / "proc", failure);
    out.folder_ = outer ? (fs::path(path) / kArchiveTop).string() : path;
    return out;
  }
  if (!fs::is_regular_file(path, failure))
    return Error{kExitUsage, "--sysroot '" + path + "' is neither a folder nor an archive", "ipexrun gather writes one"};
  Result<Tree> tree = read_archive(path);
  if (!tree.ok()) return tree.error();
  std::string name = (fs::temp_directory_path(failure) / "ipexrun-sysroot-XXXXXX").string();
  if (failure || ::mkdtemp(name.data()) == nullptr) return cannot_write(name, failure ? failure.message() : std::strerror(errno));
  out.folder_ = out.unpacked_ = name;
  Status written = write_folder(*tree, name);
  if (!written.ok()) return written.error();
  return out;
}

Status Sysroot::check_describes_machine() const {
  std::error_code failure;
  if (folder_.empty() || fs::is_directory(folder_ + "/proc", failure) || fs::is_directory(folder_ + "/sys", failure)) return ok_status();
  return Error{kExitUsage, "--sysroot '" + folder_ + "' has neither proc nor sys: it describes no machine",
               "ipexrun gather writes one that does; --topology describes the cores alone"};
}

Sysroot::Sysroot(Sysroot&& other) noexcept : folder_(std::move(other.folder_)), unpacked_(std::move(other.unpacked_)) {
  other.unpacked_.clear();
}

Sysroot::~Sysroot() {
  if (unpacked_.empty()) return;
  std::error_code ignored;
  fs::remove_all(unpacked_, ignored);
}

}  // namespace ipexrun::launcher
