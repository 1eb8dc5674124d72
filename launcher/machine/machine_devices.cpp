#include "launcher/machine/machine_devices.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>

#include "launcher/machine/text_files.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIntel = "0x8086";
constexpr std::string_view kDisplayClass = "0x03";  // VGA 0x0300, other display controller 0x0380

/// PCI device numbers of discrete GPUs. What is not listed is told by its place: Intel's integrated GPUs sit on bus 0.
struct Family {
  unsigned first;
  unsigned last;
  const char* name;
};
constexpr std::array<Family, 7> kFamilies{{{0x0b69, 0x0b6e, "Intel Data Center GPU Max"},
                                           {0x0bd0, 0x0bdf, "Intel Data Center GPU Max"},
                                           {0x4905, 0x4909, "Intel Iris Xe MAX"},
                                           {0x5690, 0x56bf, "Intel Arc A-series"},
                                           {0x56c0, 0x56c0, "Intel Data Center GPU Flex 170"},
                                           {0x56c1, 0x56c1, "Intel Data Center GPU Flex 140"},
                                           {0xe200, 0xe2ff, "Intel Arc B-series"}}};

std::string line_of(const fs::path& path) { return first_line(path.string()).value_or(""); }

/// The number in "gt0", "tile1", "renderD128"; nullopt when `name` is not `stem` and digits.
std::optional<int> number_after(const std::string& name, std::string_view stem) {
  if (!name.starts_with(stem) || name.size() == stem.size()) return std::nullopt;
  return parse_number<int>(std::string_view(name).substr(stem.size()));
}

/// Entries of `folder` that are named `stem` and a number, in order of the numbers. A folder that is not there has none.
std::vector<fs::path> numbered(const fs::path& folder, std::string_view stem) {
  std::map<int, fs::path> out;
  for (const std::string& name : names_in(folder.string()))
    if (const auto number = number_after(name, stem)) out.emplace(*number, folder / name);
  std::vector<fs::path> paths;
  for (auto& [number, path] : out) paths.push_back(std::move(path));
  return paths;
}

/// PCI devices by address. A system that hides /sys/bus shows its GPUs through /sys/class/drm alone.
std::map<std::string, fs::path> pci_devices(const std::string& sysroot) {
  std::map<std::string, fs::path> out;
  const fs::path bus = sysroot + "/sys/bus/pci/devices";
  for (const std::string& address : names_in(bus.string())) out.emplace(address, bus / address);
  for (const fs::path& card : numbered(sysroot + "/sys/class/drm", "card")) {
    std::ifstream in(card / "device/uevent");
    constexpr std::string_view key = "PCI_SLOT_NAME=";
    for (std::string line; std::getline(in, line);)
      if (line.starts_with(key)) out.emplace(line.substr(key.size()), card / "device");
  }
  return out;
}

const Family* family_of(unsigned id) {
  const auto found =
      std::find_if(kFamilies.begin(), kFamilies.end(), [id](const Family& one) { return one.first <= id && id <= one.last; });
  return found == kFamilies.end() ? nullptr : &*found;
}

bool on_bus_zero(const std::string& address) { return address.find(":00:") != std::string::npos; }

std::string driver_of(const fs::path& device) {
  std::error_code failure;
  const fs::path link = fs::read_symlink(device / "driver", failure);
  return failure ? "" : link.filename().string();
}

/// i915 shows a "gt" a tile, but on integrated GPUs the second one is the media engine; xe shows tiles by name, each with its engines.
int tiles_of(const fs::path& device, const fs::path& card, bool integrated) {
  if (integrated) return 1;
  if (const std::size_t tiles = numbered(device, "tile").size(); tiles > 0) return static_cast<int>(tiles);
  return card.empty() ? 1 : std::max<int>(1, static_cast<int>(numbered(card / "gt", "gt").size()));
}

/// Only some driver versions say it.
std::uint64_t memory_of(const fs::path& device, const fs::path& card) {
  if (!card.empty())
    if (const auto bytes = whole_number_in(line_of(card / "lmem_total_bytes"))) return *bytes;
  std::uint64_t sum = 0;
  for (const fs::path& tile : numbered(device, "tile"))
    for (const char* place : {"physical_vram_size_bytes", "memory/physical_vram_size_bytes"})
      if (const auto bytes = whole_number_in(line_of(tile / place))) {
        sum += *bytes;
        break;
      }
  return sum;
}

std::string problem_of(const Gpu& gpu, const std::string& sysroot, const NodeProbe& probe) {
  if (gpu.driver.empty()) return "no driver is bound to it";
  if (gpu.driver != "i915" && gpu.driver != "xe") return "it is bound to '" + gpu.driver + "', not to i915 or xe";
  if (gpu.render_node.empty()) return "its driver shows no render node";
  std::error_code ignored;
  if (!sysroot.empty() && !fs::exists(sysroot + "/dev/dri", ignored)) return "";
  const int code = probe(sysroot + gpu.render_node);
  if (code == 0) return "";
  std::string hint;
  if (code == EACCES) hint = " (its group, mostly 'render', may use it)";
  if (code == ENOENT || code == EPERM) hint = " (a container needs the device: --device /dev/dri)";
  return gpu.render_node + ": " + std::strerror(code) + hint;
}

}  // namespace

int open_node(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno;
  ::close(fd);
  return 0;
}

std::vector<Gpu> read_gpus(const std::string& sysroot, const NodeProbe& probe) {
  std::vector<Gpu> out;
  for (const auto& [address, device] : pci_devices(sysroot)) {
    if (line_of(device / "vendor") != kIntel || !line_of(device / "class").starts_with(kDisplayClass)) continue;
    Gpu gpu;
    gpu.address = address;
    const std::string id_text = line_of(device / "device");
    unsigned id = 0;
    if (id_text.starts_with("0x")) std::from_chars(id_text.data() + 2, id_text.data() + id_text.size(), id, 16);
    const Family* family = family_of(id);
    gpu.integrated = family == nullptr && on_bus_zero(address);
    gpu.name = (family != nullptr ? family->name : gpu.integrated ? "Intel integrated GPU" : "Intel GPU") + (" (" + id_text + ")");
    gpu.driver = driver_of(device);
    gpu.node = static_cast<int>(number_in(line_of(device / "numa_node")).value_or(-1));
    const std::vector<fs::path> cards = numbered(device / "drm", "card");
    const std::vector<fs::path> nodes = numbered(device / "drm", "renderD");
    const fs::path card = cards.empty() ? fs::path() : cards.front();
    if (!nodes.empty()) gpu.render_node = "/dev/dri/" + nodes.front().filename().string();
    gpu.tiles = tiles_of(device, card, gpu.integrated);
    if (!gpu.integrated) gpu.memory_bytes = memory_of(device, card);
    gpu.problem = problem_of(gpu, sysroot, probe);
    out.push_back(std::move(gpu));
  }
  std::sort(out.begin(), out.end(),
            [](const Gpu& a, const Gpu& b) { return a.integrated != b.integrated ? b.integrated : address_before(a.address, b.address); });
  for (std::size_t i = 0; i < out.size(); ++i) out[i].index = static_cast<int>(i);
  return out;
}

}  // namespace ipexrun::launcher
