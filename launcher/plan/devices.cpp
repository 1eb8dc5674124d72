#include "launcher/plan/devices.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "launcher/plan/environment.h"
#include "launcher/plan/show.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

constexpr const char* kMask = "ZE_AFFINITY_MASK";
constexpr const char* kHierarchy = "ZE_FLAT_DEVICE_HIERARCHY";
constexpr const char* kPciOrder = "ZE_ENABLE_PCI_ID_DEVICE_ORDER";
constexpr const char* kSelector = "ONEAPI_DEVICE_SELECTOR";

using Variables = std::map<std::string, std::string>;

/// A tile as (Gpu::index, tile).
using TileId = std::pair<int, int>;

const Gpu& gpu_of(const Machine& machine, int index) { return machine.gpus[static_cast<std::size_t>(index)]; }

/// How Level Zero numbers what it shows. FLAT and COMBINED count tiles, COMPOSITE counts GPUs and names tiles "1.0".
struct Numbering {
  std::string hierarchy;
  std::vector<int> gpus;  ///< usable ones (Gpu::index), in the driver's order

  [[nodiscard]] bool flat() const { return hierarchy != "COMPOSITE"; }
};

std::vector<int> usable(const Machine& machine) {
  std::vector<int> out;
  for (const Gpu& gpu : machine.gpus)
    if (gpu.problem.empty()) out.push_back(gpu.index);
  return out;
}

/// --device-hierarchy, else the caller's, else the driver's own default: tiles as devices where a GPU has several.
std::string hierarchy_of(const Options& options, const Machine& machine, const Variables& env) {
  if (!options.device_hierarchy.empty()) {
    std::string out = options.device_hierarchy;
    std::transform(out.begin(), out.end(), out.begin(), [](char c) { return static_cast<char>(c - 'a' + 'A'); });
    return out;
  }
  const std::string own = value_of(env, kHierarchy);
  if (own == "COMPOSITE" || own == "FLAT" || own == "COMBINED") return own;
  const std::vector<int> all = usable(machine);
  return std::any_of(all.begin(), all.end(), [&](int gpu) { return gpu_of(machine, gpu).tiles > 1; }) ? "FLAT" : "COMPOSITE";
}

Numbering numbering_of(const Machine& machine, const std::string& hierarchy, bool pci_order) {
  Numbering out{hierarchy, usable(machine)};  // discrete ones first, as the driver has it by default
  if (pci_order)
    std::sort(out.gpus.begin(), out.gpus.end(),
              [&](int a, int b) { return address_before(gpu_of(machine, a).address, gpu_of(machine, b).address); });
  return out;
}

std::vector<TileId> tiles_in_order(const Machine& machine, const Numbering& numbering) {
  std::vector<TileId> out;
  for (const int gpu : numbering.gpus)
    for (int tile = 0; tile < gpu_of(machine, gpu).tiles; ++tile) out.emplace_back(gpu, tile);
  return out;
}

std::optional<int> whole_number(std::string_view text) {
  const auto value = parse_number<int>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

/// The tiles that a mask shows. Entries that name nothing in this numbering are passed over, as the driver does.
std::set<TileId> tiles_of_mask(const std::string& mask, const Machine& machine, const Numbering& numbering) {
  const std::vector<TileId> all = tiles_in_order(machine, numbering);
  std::set<TileId> out;
  for (std::size_t at = 0; at <= mask.size();) {
    const std::size_t end = std::min(mask.find(',', at), mask.size());
    std::string_view entry(mask.data() + at, end - at);
    at = end + 1;
    while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
    while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
    const std::size_t dot = entry.find('.');
    const auto number = whole_number(entry.substr(0, dot));
    if (!number) continue;
    const auto at_number = static_cast<std::size_t>(*number);
    if (numbering.flat()) {
      if (dot == std::string_view::npos && at_number < all.size()) out.insert(all[at_number]);
      continue;
    }
    if (at_number >= numbering.gpus.size()) continue;
    const int gpu = numbering.gpus[at_number];
    const auto tile = dot == std::string_view::npos ? std::nullopt : whole_number(entry.substr(dot + 1));
    if (dot != std::string_view::npos && !tile) continue;
    for (int one = 0; one < gpu_of(machine, gpu).tiles; ++one)
      if (!tile || *tile == one) out.insert({gpu, one});
  }
  return out;
}

/// The inverse: a mask that shows exactly `tiles`.
std::string mask_of(const std::vector<TileId>& tiles, const Machine& machine, const Numbering& numbering) {
  std::string out;
  const auto add = [&out](const std::string& entry) { out += (out.empty() ? "" : ",") + entry; };
  const auto wanted = [&](const TileId& tile) { return std::find(tiles.begin(), tiles.end(), tile) != tiles.end(); };
  if (numbering.flat()) {
    const std::vector<TileId> all = tiles_in_order(machine, numbering);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (wanted(all[i])) add(std::to_string(i));
    return out;
  }
  for (std::size_t i = 0; i < numbering.gpus.size(); ++i) {
    const int gpu = numbering.gpus[i];
    const int count = gpu_of(machine, gpu).tiles;
    std::vector<int> here;
    for (int tile = 0; tile < count; ++tile)
      if (wanted({gpu, tile})) here.push_back(tile);
    if (static_cast<int>(here.size()) == count) {
      add(std::to_string(i));
    } else {
      for (const int tile : here) add(std::to_string(i) + "." + std::to_string(tile));
    }
  }
  return out;
}

Error no_gpu(const Machine& machine) {
  if (machine.gpus.empty())
    return Error{kExitUsage, "ipexrun xpu: this machine has no Intel GPU (none under /sys/bus/pci and /sys/class/drm)",
                 "ipexrun PROGRAM runs it on the CPU; ipexrun topology shows the machine"};
  const Gpu& first = machine.gpus.front();
  return Error{kExitUsage,
               "ipexrun xpu: none of " + count_text(machine.gpus.size(), "Intel GPU") + " can be used; GPU 0 (" + first.address +
                   "): " + first.problem,
               ""};
}

/// What --devices and --tiles leave of `all`.
Result<std::vector<TileId>> selected(const Options& options, const Machine& machine, const std::vector<TileId>& all) {
  for (const int device : options.devices) {
    if (device < 0 || static_cast<std::size_t>(device) >= machine.gpus.size())
      return Error{kExitUsage, "--devices " + std::to_string(device) + ": this machine has " + count_text(machine.gpus.size(), "Intel GPU"),
                   "ipexrun topology numbers them"};
    const Gpu& gpu = gpu_of(machine, device);
    if (!gpu.problem.empty())
      return Error{kExitUsage, "--devices " + std::to_string(device) + " (" + gpu.address + "): " + gpu.problem, ""};
  }
  const auto listed = [](const std::vector<int>& list, int value) {
    return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
  };
  // Integrated ones are for machines that have nothing else, as torch.xpu has it too; --devices can name them.
  const bool discrete = std::any_of(all.begin(), all.end(), [&](const TileId& tile) { return !gpu_of(machine, tile.first).integrated; });
  std::vector<TileId> out;
  for (const TileId& tile : all) {
    if (options.devices.empty() && discrete && gpu_of(machine, tile.first).integrated) continue;
    if (listed(options.devices, tile.first) && listed(options.tiles, tile.second)) out.push_back(tile);
  }
  for (const int tile : options.tiles)
    if (std::none_of(out.begin(), out.end(), [tile](const TileId& one) { return one.second == tile; }))
      return Error{kExitUsage, "--tiles " + std::to_string(tile) + ": no GPU that is used has such a tile", "ipexrun topology counts them"};
  return out;
}

/// The tiles of each instance: whole GPUs as long as there are enough of them.
Result<std::vector<std::vector<TileId>>> shares(const Options& options, const std::vector<TileId>& tiles, std::vector<Reason>& reasons) {
  std::vector<std::vector<TileId>> by_gpu;
  for (const TileId& tile : tiles) {
    if (by_gpu.empty() || by_gpu.back().front().first != tile.first) by_gpu.emplace_back();
    by_gpu.back().push_back(tile);
  }
  std::vector<std::vector<TileId>> one_each;
  for (const TileId& tile : tiles) one_each.push_back({tile});
  if (options.one_per_tile || options.ninstances_auto) {
    reasons.push_back(
        {"instances", std::to_string(tiles.size()), options.one_per_tile ? "--one-per-tile" : "--ninstances auto: one a tile"});
    return one_each;
  }
  if (options.one_per_device) {
    reasons.push_back({"instances", std::to_string(by_gpu.size()), "--one-per-device"});
    return by_gpu;
  }
  if (options.ninstances == 0) {
    reasons.push_back({"instances", "1", "the default: one instance that sees every GPU (--one-per-tile starts one a tile)"});
    return std::vector<std::vector<TileId>>{tiles};
  }
  const auto wanted = static_cast<std::size_t>(options.ninstances);
  if (wanted > tiles.size())
    return Error{kExitUsage, "--ninstances " + std::to_string(wanted) + ": there are " + count_text(tiles.size(), "tile") + " to give out",
                 "instances do not share a tile"};
  const std::vector<std::vector<TileId>>& pieces = wanted <= by_gpu.size() ? by_gpu : one_each;
  const std::size_t size = pieces.size() / wanted;
  std::vector<std::vector<TileId>> out(wanted);
  for (std::size_t i = 0; i < wanted * size; ++i) out[i / size].insert(out[i / size].end(), pieces[i].begin(), pieces[i].end());
  const std::string unit = wanted <= by_gpu.size() ? "GPU" : "tile";
  const std::size_t unused = pieces.size() - wanted * size;
  reasons.push_back({"instances", std::to_string(wanted),
                     "--ninstances " + std::to_string(wanted) + ": " + count_text(size, unit) + " each" +
                         (unused > 0 ? ", " + count_text(unused, unit) + " used by none" : "")});
  return out;
}

DeviceSlot slot_of(const Machine& machine, const std::vector<TileId>& tiles) {
  DeviceSlot out;
  std::set<int> nodes;
  bool known = true;
  for (const auto& [index, tile] : tiles) {
    const Gpu& gpu = gpu_of(machine, index);
    out.tiles.push_back({index, tile, gpu.address});
    known = known && gpu.node >= 0;
    nodes.insert(gpu.node);
  }
  if (known) out.nodes.assign(nodes.begin(), nodes.end());
  return out;
}

void explain_unusable(const Machine& machine, std::vector<Reason>& reasons) {
  for (const Gpu& gpu : machine.gpus)
    if (!gpu.problem.empty())
      reasons.push_back({"devices", "not GPU " + std::to_string(gpu.index),
                         "GPU " + std::to_string(gpu.index) + " (" + gpu.address + ") cannot be used: " + gpu.problem, true});
}

/// What is visible before any option of ours: everything usable, or what the caller's own mask leaves.
struct View {
  Numbering numbering;
  std::vector<TileId> tiles;  ///< in the driver's order
  std::string own_mask;       ///< "" = none
};

Result<View> view_of(const Options& options, const Machine& machine, const Variables& env, std::vector<Reason>& reasons) {
  explain_unusable(machine, reasons);
  if (usable(machine).empty()) return no_gpu(machine);
  View out;
  out.own_mask = value_of(env, kMask);
  if (out.own_mask == "default") out.own_mask.clear();  // the driver's own word for none
  const std::string hierarchy = hierarchy_of(options, machine, env);
  // Numbers in a mask that we write must mean the same to every driver version; numbers of the caller's keep their meaning.
  const std::string order = value_of(env, kPciOrder);
  const bool pci_order = order.empty() ? out.own_mask.empty() : order != "0";
  out.numbering = numbering_of(machine, hierarchy, pci_order);
  // What is given out follows Gpu::index, the order in which a program counts.
  for (const int gpu : usable(machine))
    for (int tile = 0; tile < gpu_of(machine, gpu).tiles; ++tile) out.tiles.emplace_back(gpu, tile);
  if (out.own_mask.empty()) return out;
  const std::set<TileId> shown = tiles_of_mask(out.own_mask, machine, out.numbering);
  if (shown.empty())
    return Error{kExitUsage,
                 std::string(kMask) + "=" + out.own_mask + " of the environment selects no GPU (" + kHierarchy + " is " + hierarchy + ")",
                 out.numbering.flat() ? "in FLAT and COMBINED tiles are numbered 0, 1, ...; numbers like 0.1 need COMPOSITE" : ""};
  std::erase_if(out.tiles, [&](const TileId& tile) { return shown.count(tile) == 0; });
  reasons.push_back({"devices", std::string(kMask) + "=" + out.own_mask, "the environment's own mask: nothing else is given out"});
  return out;
}

/// What makes a program see exactly `tiles`.
Variables mask_variables(const View& view, const std::vector<TileId>& tiles, const Machine& machine, const Variables& env) {
  Variables out;
  out[kMask] = mask_of(tiles, machine, view.numbering);
  if (view.own_mask.empty() && value_of(env, kPciOrder).empty()) out[kPciOrder] = "1";
  // A mask means something else in another hierarchy, so the two go together.
  if (value_of(env, kHierarchy) != view.numbering.hierarchy) out[kHierarchy] = view.numbering.hierarchy;
  // SYCL's selector: Level Zero's GPUs, so that none appears twice (OpenCL shows them too). The caller's own is kept.
  if (value_of(env, kSelector).empty()) out[kSelector] = "level_zero:gpu";
  return out;
}

/// --devices must not name what the caller's own mask hides.
Status check_hidden(const Options& options, const Machine& machine, const View& view) {
  if (view.own_mask.empty()) return ok_status();
  for (const int device : options.devices) {
    const bool there = device >= 0 && static_cast<std::size_t>(device) < machine.gpus.size() && gpu_of(machine, device).problem.empty();
    const bool shown = std::any_of(view.tiles.begin(), view.tiles.end(), [device](const TileId& tile) { return tile.first == device; });
    if (there && !shown)
      return Error{kExitUsage, "--devices " + std::to_string(device) + ": " + kMask + "=" + view.own_mask + " of the environment hides it",
                   std::string("unset ") + kMask + " to choose freely"};
  }
  return ok_status();
}

void explain_selector(const Variables& env, bool several, std::vector<Reason>& reasons) {
  const std::string own = value_of(env, kSelector);
  if (own.empty()) return;
  const bool counts = several && own.find_first_of("0123456789") != std::string::npos;
  reasons.push_back({"devices", std::string(kSelector) + "=" + own,
                     std::string(kSelector) + "=" + own + " of the environment is kept" +
                         (counts ? "; its numbers count what each instance sees, not the machine's devices" : ""),
                     counts});
}

/// What instances and ranks begin with: the tiles that are to be used.
struct Offer {
  View view;
  std::vector<TileId> tiles;
};

Result<Offer> offer_of(const Options& options, const Machine& machine, const Variables& env, std::vector<Reason>& reasons) {
  Result<View> view = view_of(options, machine, env, reasons);
  if (!view.ok()) return view.error();
  if (Status hidden = check_hidden(options, machine, *view); !hidden.ok()) return hidden.error();
  Result<std::vector<TileId>> tiles = selected(options, machine, view->tiles);
  if (!tiles.ok()) return tiles.error();
  return Offer{std::move(*view), std::move(*tiles)};
}

/// The variables of a process that gets `tiles`; `narrowed`: which are not all that it would see anyway.
Variables env_for(const Options& options, const View& view, const std::vector<TileId>& tiles, bool narrowed, const Machine& machine,
                  const Variables& env) {
  Variables out;
  if (narrowed) out = mask_variables(view, tiles, machine, env);
  const std::string& hierarchy = view.numbering.hierarchy;
  if (!options.device_hierarchy.empty() && value_of(env, kHierarchy) != hierarchy) out[kHierarchy] = hierarchy;
  return out;
}

/// Reasons for what env_for() sets. `several`: processes that see different tiles.
void explain_env(const Options& options, const View& view, bool narrowed, bool several, const Variables& env,
                 std::vector<Reason>& reasons) {
  const std::string& hierarchy = view.numbering.hierarchy;
  const std::string own = value_of(env, kHierarchy);
  if (!options.device_hierarchy.empty() && !own.empty() && own != hierarchy)
    reasons.push_back({"devices", hierarchy, "--device-hierarchy replaces " + std::string(kHierarchy) + "=" + own, true});
  if (!narrowed) return;
  std::string why = hierarchy == "COMPOSITE" ? "GPUs are devices, with their tiles below them" : "tiles are devices";
  if (options.device_hierarchy.empty() && own != hierarchy) why += " (--device-hierarchy)";
  reasons.push_back({"devices", hierarchy, why});
  explain_selector(env, several, reasons);
}

}  // namespace

std::string devices_text(const std::vector<DevicePlan>& tiles, const Machine& machine) {
  std::vector<int> whole;
  std::string parts;
  std::map<int, std::vector<int>> by_gpu;
  for (const DevicePlan& one : tiles) by_gpu[one.device].push_back(one.tile);
  for (const auto& [gpu, own] : by_gpu) {
    if (static_cast<int>(own.size()) == gpu_of(machine, gpu).tiles) {
      whole.push_back(gpu);
    } else {
      for (const int tile : own) parts += (parts.empty() ? "" : ",") + std::to_string(gpu) + "." + std::to_string(tile);
    }
  }
  const std::string list = cpu_list_text(whole);
  return list + (list.empty() || parts.empty() ? "" : ",") + parts;
}

Result<std::vector<DeviceSlot>> choose_devices(const Options& options, const Machine& machine, const Variables& env,
                                               std::vector<Reason>& reasons) {
  const Result<Offer> offer = offer_of(options, machine, env, reasons);
  if (!offer.ok()) return offer.error();
  const Result<std::vector<std::vector<TileId>>> parts = shares(options, offer->tiles, reasons);
  if (!parts.ok()) return parts.error();

  const bool split = options.one_per_tile || options.one_per_device || parts->size() > 1;
  const bool narrowed = split || !options.devices.empty() || !options.tiles.empty();
  std::vector<DeviceSlot> out;
  for (const std::vector<TileId>& part : *parts) {
    out.push_back(slot_of(machine, part));
    out.back().env = env_for(options, offer->view, part, narrowed, machine, env);
  }
  explain_env(options, offer->view, narrowed, parts->size() > 1, env, reasons);
  for (std::size_t i = 0; i < out.size(); ++i)
    reasons.push_back(
        {"devices", devices_text(out[i].tiles, machine),
         "instance " + std::to_string(i) + ": " +
             (out[i].nodes.empty() ? "the nearest NUMA node is not known" : "nearest to NUMA node " + cpu_list_text(out[i].nodes))});
  return out;
}

Result<std::vector<DeviceSlot>> devices_of_ranks(const Options& options, const Machine& machine, const Variables& env, int local_size,
                                                 std::vector<Reason>& reasons) {
  if (options.one_per_tile || options.one_per_device)
    return Error{kExitUsage,
                 std::string(options.one_per_tile ? "--one-per-tile" : "--one-per-device") + " inside a rank: a rank is one process",
                 "the ranks are as many as their engine was asked for"};
  const Result<Offer> offer = offer_of(options, machine, env, reasons);
  if (!offer.ok()) return offer.error();
  std::vector<std::vector<TileId>> shown;  // what the program counts as xpu:0, xpu:1, ...
  for (const TileId& tile : offer->tiles) {
    const bool same = !shown.empty() && !offer->view.numbering.flat() && shown.back().front().first == tile.first;
    if (!same) shown.emplace_back();
    shown.back().push_back(tile);
  }
  // --devices and --tiles hold for the host as a whole: every rank gets the same mask, and counts within it.
  const bool narrowed = !options.devices.empty() || !options.tiles.empty();
  std::vector<DeviceSlot> out;
  for (int rank = 0; rank < local_size; ++rank) {
    out.push_back(slot_of(machine, shown[static_cast<std::size_t>(rank) % shown.size()]));
    out.back().env = env_for(options, offer->view, offer->tiles, narrowed, machine, env);
  }
  explain_env(options, offer->view, narrowed, false, env, reasons);
  reasons.push_back({"devices", "xpu:LOCAL_RANK",
                     std::string("a rank takes its own device: ") +
                         (narrowed ? "all ranks see the same ones" : "nothing is hidden from it") + ", its cores are near that device"});
  return out;
}

}  // namespace ipexrun::launcher
