// The library's only export, and the operators `ipexrun_xpu::*` that the package's xpu.py calls. RTLD_LOCAL, no constructors: nothing
// happens before ipexrun_xpu_start().
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "preload/xpu/backend.h"
#include "preload/xpu/choose_kernel.h"
#include "preload/xpu/fallback.h"
#include "preload/xpu/operators.h"
#include "preload/xpu/place.h"
#include "preload/xpu/redirect.h"
#include "preload/xpu/reduced.h"

namespace ipexrun::preload::xpu {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    if (static_cast<unsigned char>(letter) >= ' ') out += letter;
  }
  return out + '"';
}
std::string field(const char* name, const std::string& value) { return quoted(name) + ": " + value + ", "; }

std::string properties(std::int64_t index) {
  const ::ipexrun::xpu::DeviceFacts& facts = ::ipexrun::xpu::unit(static_cast<int>(index)).device->facts();
  const auto yes = [](bool value) { return std::string(value ? "true" : "false"); };
  return "{" + field("name", quoted(facts.name)) + field("platform_name", quoted(facts.platform)) + field("vendor", quoted(facts.vendor)) +
         field("driver_version", quoted(facts.driver_version)) + field("version", quoted(facts.version)) +
         field("type", quoted(facts.type)) + field("total_memory", std::to_string(facts.memory_bytes)) +
         field("max_allocation", std::to_string(facts.largest_allocation_bytes)) +
         field("local_mem_size", std::to_string(facts.local_bytes)) + field("max_work_group_size", std::to_string(facts.max_work_group)) +
         field("max_compute_units", std::to_string(facts.compute_units)) + field("max_clock_frequency", std::to_string(facts.clock_mhz)) +
         field("has_fp16", yes(facts.has_fp16)) + field("has_fp64", yes(facts.has_fp64)) +
         field("matrix_lanes", std::to_string(facts.matrix_lanes)) + field("has_subgroups", yes(facts.has_sub_groups)) +
         field("is_intel", yes(facts.is_intel)) + "\"memory\": \"" +
         (::ipexrun::xpu::unit(static_cast<int>(index)).device->memory_kind() == ::ipexrun::xpu::MemoryKind::kSvm ? "svm" : "buffers") +
         "\"}";
}

std::string kernels_json() {
  std::map<std::string, ::ipexrun::xpu::KernelTime> all;  // of all devices
  for (const auto& unit : ::ipexrun::xpu::units())
    for (const ::ipexrun::xpu::KernelTime& one : unit->device->kernel_times()) {
      all[one.name].calls += one.calls;
      all[one.name].seconds += one.seconds;
    }
  std::vector<std::pair<std::string, ::ipexrun::xpu::KernelTime>> rows(all.begin(), all.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::string out = "[";
  for (const auto& [name, time] : rows) {
    char numbers[80];
    std::snprintf(numbers, sizeof numbers, "\"calls\": %ld, \"seconds\": %.9f}", time.calls, time.seconds);
    out += std::string(out.size() > 1 ? ", {" : "{") + field("name", quoted(name)) + numbers;
  }
  return out + "]";
}

std::string report() {
  long launches = 0, from_source = 0, from_cache = 0, ahead_of_time = 0;
  double build = 0;
  for (const auto& unit : ::ipexrun::xpu::units()) {
    launches += unit->device->launches();
    const ::ipexrun::xpu::ProgramCounts programs = unit->device->program_counts();
    from_source += programs.from_source;
    from_cache += programs.from_cache;
    ahead_of_time += programs.ahead_of_time;
    build += programs.seconds;
  }
  return "{" + field("launches", std::to_string(launches)) + field("programs_from_source", std::to_string(from_source)) +
         field("programs_from_cache", std::to_string(from_cache)) + field("programs_ahead_of_time", std::to_string(ahead_of_time)) +
         field("program_seconds", std::to_string(build)) + field("kernels", kernels_json()) + field("reduced", reduced_json()) +
         field("products", kernel_choices_json()) + "\"fallbacks\": " + fallbacks_json() + "}";
}

void measure(bool on) {
  for (const auto& unit : ::ipexrun::xpu::units()) unit->device->measure(on);
}

std::string snapshot(std::int64_t index) {
  std::string out = "[";
  for (const ::ipexrun::xpu::SegmentInfo& segment : ::ipexrun::xpu::unit(static_cast<int>(index)).memory.snapshot()) {
    std::string blocks = "[";
    std::size_t allocated = 0, active = 0, requested = 0;
    for (const ::ipexrun::xpu::BlockInfo& block : segment.blocks) {
      blocks += std::string(blocks.size() > 1 ? ", {" : "{") + field("address", std::to_string(block.address)) +
                field("size", std::to_string(block.bytes)) + field("requested_size", std::to_string(block.requested_bytes)) +
                "\"state\": \"" +
                (block.allocated ? "active_allocated"
                 : block.active  ? "active_pending_free"
                                 : "inactive") +
                "\", \"frames\": []}";
      if (block.allocated) allocated += block.bytes;
      if (block.active) active += block.bytes;
      requested += block.requested_bytes;
    }
    out += std::string(out.size() > 1 ? ", {" : "{") + field("device", std::to_string(index)) +
           field("address", std::to_string(segment.address)) + field("total_size", std::to_string(segment.bytes)) +
           field("allocated_size", std::to_string(allocated)) + field("active_size", std::to_string(active)) +
           field("requested_size", std::to_string(requested)) + field("stream", std::to_string(segment.stream)) +
           field("segment_type", segment.pool == ::ipexrun::xpu::PoolKind::kSmall ? "\"small\"" : "\"large\"") +
           field("segment_pool_id", "[0, 0]") + field("is_expandable", "false") + "\"blocks\": " + blocks + "]}";
  }
  return out + "]";
}

at::Generator generator(std::int64_t index) { return default_generator(static_cast<c10::DeviceIndex>(index)); }
void set_limit(std::int64_t index, std::int64_t bytes) {
  ::ipexrun::xpu::unit(static_cast<int>(index))
      .memory.set_limit_bytes(bytes < 0 ? decltype(Unit::memory)::kNoLimit : static_cast<std::size_t>(bytes));
}

void register_functions() {
  static auto* library = new torch::Library(torch::Library::DEF, "ipexrun_xpu", std::nullopt, __FILE__, __LINE__);
  library->def("default_generator(int index) -> Generator?", &generator);
  library->def("properties(int index) -> str", &properties);
  library->def("report() -> str", &report);
  library->def("forget_fallbacks() -> ()", &forget_fallbacks);
  library->def("measure(bool on) -> ()", &measure);
  library->def("redirect_cuda() -> str", &redirect_cuda);
  library->def("snapshot(int index) -> str", &snapshot);
  library->def("set_limit(int index, int bytes) -> ()", &set_limit);
}

int refuse(char* reason, std::uint32_t bytes, const std::string& why) {
  if (reason != nullptr && bytes > 0) std::snprintf(reason, bytes, "%s", why.c_str());
  return -1;
}

}  // namespace
}  // namespace ipexrun::preload::xpu

/// Registers the device type with the torch of this process; `torch_version` as aoti_torch_abi_version() has it. Returns the number of
/// devices; 0 or -1: nothing was registered, and `reason` says why. Call it once, with torch initialised. Never throws.
extern "C" __attribute__((visibility("default"))) int ipexrun_xpu_start(std::uint64_t torch_version, char* reason,
                                                                        std::uint32_t reason_bytes) {
  using namespace ipexrun::preload::xpu;
  try {
    const auto major = static_cast<unsigned>(torch_version >> 56);
    const auto minor = static_cast<unsigned>(torch_version >> 48 & 0xff);
    if (major != TORCH_VERSION_MAJOR || minor != TORCH_VERSION_MINOR) {
      return refuse(
          reason, reason_bytes,
          "the xpu library was built for torch " TORCH_VERSION ", the program has " + std::to_string(major) + '.' + std::to_string(minor));
    }
    std::string why;
    if (!::ipexrun::xpu::start_runtime(why)) {
      refuse(reason, reason_bytes, why);
      return 0;
    }
    register_backend();
    register_basics();
    register_sparse();
    register_composites();
    register_attention();
    register_elementwise();
    register_fast();
    register_products();
    register_rows();
    register_batch_norm();
    register_pools();
    register_indexing();
    register_losses();
    register_creation();
    register_random();
    register_optimizers();
    register_foreach();
    register_reductions();
    register_search();
    register_sort();
    register_rest();
    register_reduced();
    register_functions();
    return static_cast<int>(::ipexrun::xpu::units().size());
  } catch (const std::exception& problem) {
    return refuse(reason, reason_bytes, problem.what());
  }
}
