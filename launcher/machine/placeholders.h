// Names that could tell who or where, replaced by "id1", "id2", ... the same name always by the same placeholder.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace ipexrun::launcher {

class Placeholders {
 public:
  /// "/kubepods.slice/kubepods-pod12ab_34.slice" -> "/kubepods.slice/kubepods-id1.slice": of each part of the path only words that
  /// container managers, systemd and Slurm give every group are kept.
  std::string path(const std::string& original);

  /// A text in which each path that path() saw is replaced.
  [[nodiscard]] std::string text(std::string original) const;

  [[nodiscard]] std::size_t count() const { return ids_.size(); }

 private:
  std::string part(const std::string& original);

  std::map<std::string, std::string> ids_;
  std::map<std::string, std::string> paths_;
};

}  // namespace ipexrun::launcher
