// A folder that stands in for "/": the files below /sys and /proc that describe a machine, made up.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "launcher/plan/show.h"

namespace ipexrun::launcher {

class SysTree {
 public:
  SysTree() : root_(testing::TempDir() + "ipexrun_root_XXXXXX") {
    if (mkdtemp(root_.data()) == nullptr) std::abort();
  }
  SysTree(const SysTree&) = delete;
  SysTree& operator=(const SysTree&) = delete;
  ~SysTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  [[nodiscard]] const std::string& root() const { return root_; }

  void file(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).find_last_of('/')));
    std::ofstream(root_ + path) << text;
  }
  void append(const std::string& path, const std::string& text) const { std::ofstream(root_ + path, std::ios::app) << text; }

  /// One core of `package` with these CPUs (numbers below 32).
  void core(int package, const std::vector<int>& cpus) {
    for (const int cpu : cpus) {
      packages_[package].push_back(cpu);
      all_.push_back(cpu);
      const std::string folder = cpu_folder(cpu) + "/topology/";
      file(folder + "core_cpus", mask(cpus));
      file(folder + "thread_siblings", mask(cpus));
      file(folder + "core_id", std::to_string(cpus.front()));
      file(folder + "physical_package_id", std::to_string(package));
    }
  }
  void l3(int id, const std::vector<int>& cpus) const {
    for (const int cpu : cpus) {
      const std::string folder = cpu_folder(cpu) + "/cache/index3/";
      file(folder + "type", "Unified\n");
      file(folder + "level", "3\n");
      file(folder + "id", std::to_string(id) + "\n");
      file(folder + "size", "32768K\n");
      file(folder + "coherency_line_size", "64\n");
      file(folder + "number_of_sets", "32768\n");
      file(folder + "physical_line_partition", "1\n");
      file(folder + "shared_cpu_map", mask(cpus));
    }
  }
  void node(int number, const std::vector<int>& cpus, long kibibytes) {
    const std::string folder = "/sys/devices/system/node/node" + std::to_string(number) + "/";
    file(folder + "cpumap", mask(cpus));
    file(folder + "meminfo", "Node " + std::to_string(number) + " MemTotal:       " + std::to_string(kibibytes) + " kB\n");
    nodes_.push_back(number);
  }
  /// After all cores and nodes.
  void finish() const {
    for (const auto& [package, cpus] : packages_)
      for (const int cpu : cpus) {
        file(cpu_folder(cpu) + "/topology/package_cpus", mask(cpus));
        file(cpu_folder(cpu) + "/topology/core_siblings", mask(cpus));
      }
    const std::string folder = "/sys/devices/system/cpu/";
    for (const char* name : {"online", "present", "possible"})
      if (!std::filesystem::exists(root_ + folder + name)) file(folder + name, cpu_list_text(all_) + "\n");
    if (!nodes_.empty()) file("/sys/devices/system/node/online", cpu_list_text(nodes_) + "\n");
  }

  static std::string cpu_folder(int cpu) { return "/sys/devices/system/cpu/cpu" + std::to_string(cpu); }

  static std::string mask(const std::vector<int>& cpus) {
    unsigned bits = 0;
    for (const int cpu : cpus) bits |= 1u << static_cast<unsigned>(cpu);
    char text[16];
    std::snprintf(text, sizeof text, "%08x\n", bits);
    return text;
  }

 private:
  std::string root_;
  std::map<int, std::vector<int>> packages_;
  std::vector<int> all_;
  std::vector<int> nodes_;
};

}  // namespace ipexrun::launcher
