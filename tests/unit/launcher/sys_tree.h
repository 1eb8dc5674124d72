// Makes a tree of /sys and /dev from a description in tests/machines/xpu (its README.md says what the words become).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace ipexrun::launcher::sys_tree {

namespace fs = std::filesystem;

inline void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text << "\n";
}

inline void add_device(const fs::path& root, const std::string& address, std::map<std::string, std::string> words) {
  const fs::path device = root / "sys/bus/pci/devices" / address;
  for (const char* name : {"vendor", "device", "class", "numa_node"}) write(device / name, words[name]);
  if (words.count("driver") != 0) fs::create_symlink("../../../bus/pci/drivers/" + words["driver"], device / "driver");
  const bool has_card = words.count("card") != 0;
  const fs::path card = device / "drm" / ("card" + words["card"]);
  if (has_card) {
    fs::create_directories(card);
    fs::create_directories(root / "sys/class/drm");
    fs::create_symlink("../../bus/pci/devices/" + address + "/drm/card" + words["card"], root / "sys/class/drm" / ("card" + words["card"]));
  }
  if (words.count("render") != 0) {
    fs::create_directories(device / "drm" / ("renderD" + words["render"]));
    fs::create_directories(root / "dev/dri");
    if (words.count("no_node") == 0) write(root / "dev/dri" / ("renderD" + words["render"]), "");
  }
  for (int gt = 0; gt < std::atoi(words["gt"].c_str()); ++gt) fs::create_directories(card / "gt" / ("gt" + std::to_string(gt)));
  for (int tile = 0; tile < std::atoi(words["tile"].c_str()); ++tile) {
    const fs::path folder = device / ("tile" + std::to_string(tile));
    for (int gt = 0; gt < std::atoi(words["gts_of_tile"].c_str()); ++gt) fs::create_directories(folder / ("gt" + std::to_string(gt)));
    if (words.count("vram") != 0) write(folder / "physical_vram_size_bytes", words["vram"]);
  }
  if (words.count("lmem") != 0) write(card / "lmem_total_bytes", words["lmem"]);
}

/// Makes the tree below `root`.
inline void expand(const fs::path& description, const fs::path& root) {
  fs::create_directories(root / "sys/bus/pci/devices");
  std::ifstream in(description);
  for (std::string line; std::getline(in, line);) {
    std::istringstream text(line);
    std::string word;
    text >> word;
    if (word != "pci") continue;
    std::string address;
    text >> address;
    std::map<std::string, std::string> words;
    while (text >> word) words[word.substr(0, word.find('='))] = word.find('=') == std::string::npos ? "" : word.substr(word.find('=') + 1);
    add_device(root, address, words);
  }
}

}  // namespace ipexrun::launcher::sys_tree
