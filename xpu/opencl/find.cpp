// Which devices there are.
#include <algorithm>
#include <array>

#include "xpu/opencl/program_files.h"
#include "xpu/opencl/state.h"

namespace ipexrun::xpu {
namespace {

constexpr cl_device_info kSubGroupSizesIntel = 0x4108;  // CL_DEVICE_SUB_GROUP_SIZES_INTEL of cl_intel_required_subgroup_size
constexpr cl_device_info kIpVersionIntel = 0x4250;      // CL_DEVICE_IP_VERSION_INTEL of cl_intel_device_attribute_query

template <typename Value>
Value info(cl_device_id id, cl_device_info what) {
  Value out{};
  ::clGetDeviceInfo(id, what, sizeof out, &out, nullptr);  // an unknown question leaves zero
  return out;
}

std::string text(cl_device_id id, cl_device_info what) {
  std::size_t bytes = 0;
  if (::clGetDeviceInfo(id, what, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) return "";
  std::string out(bytes, '\0');
  ::clGetDeviceInfo(id, what, bytes, out.data(), nullptr);
  out.resize(out.find('\0') == std::string::npos ? bytes : out.find('\0'));
  return out;
}

bool has_word(const std::string& words, const std::string& word) { return (" " + words + " ").find(" " + word + " ") != std::string::npos; }

/// Lanes that the matrix functions want: Xe-HPG has sub-groups of 8 and more, Xe-HPC and later ones of 16 and more. 0: the driver does not
/// say.
int smallest_sub_group(cl_device_id id) {
  std::array<std::size_t, 8> sizes{};
  std::size_t bytes = 0;
  if (::clGetDeviceInfo(id, kSubGroupSizesIntel, sizeof sizes, sizes.data(), &bytes) != CL_SUCCESS || bytes < sizeof sizes[0]) return 0;
  const std::size_t least = *std::min_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(bytes / sizeof sizes[0]));
  return least == 8 || least == 16 ? static_cast<int>(least) : 0;
}

DeviceFacts read_facts(cl_platform_id platform, cl_device_id id) {
  DeviceFacts out;
  out.name = text(id, CL_DEVICE_NAME);
  out.vendor = text(id, CL_DEVICE_VENDOR);
  out.driver_version = text(id, CL_DRIVER_VERSION);
  out.version = text(id, CL_DEVICE_VERSION);
  char name[256] = {};
  ::clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, nullptr);
  out.platform = name;
  const auto type = info<cl_device_type>(id, CL_DEVICE_TYPE);
  out.type = (type & CL_DEVICE_TYPE_GPU) != 0 ? "gpu" : (type & CL_DEVICE_TYPE_CPU) != 0 ? "cpu" : "accelerator";
  out.memory_bytes = info<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE);
  out.largest_allocation_bytes = info<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  out.local_bytes = info<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE);
  out.max_work_group = info<std::size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  out.compute_units = info<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS);
  out.clock_mhz = info<cl_uint>(id, CL_DEVICE_MAX_CLOCK_FREQUENCY);
  const std::string extensions = text(id, CL_DEVICE_EXTENSIONS);
  out.has_fp16 = has_word(extensions, "cl_khr_fp16");
  out.has_fp64 = has_word(extensions, "cl_khr_fp64");
  out.has_sub_groups = has_word(extensions, "cl_khr_subgroups") || has_word(extensions, "cl_intel_subgroups");
  out.has_svm = (info<cl_device_svm_capabilities>(id, CL_DEVICE_SVM_CAPABILITIES) & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) != 0;
  out.is_intel = info<cl_uint>(id, CL_DEVICE_VENDOR_ID) == 0x8086 && out.type == "gpu";
  if (out.is_intel && has_word(extensions, "cl_intel_device_attribute_query")) out.ip_version = info<cl_uint>(id, kIpVersionIntel);
  if (out.is_intel && has_word(extensions, "cl_intel_subgroup_matrix_multiply_accumulate")) out.matrix_lanes = smallest_sub_group(id);
  return out;
}

}  // namespace

struct Finder {
  static std::unique_ptr<Device> open(cl_platform_id platform, cl_device_id id, const FindOptions& options) {
    auto state = std::make_unique<Device::State>();
    state->platform = platform;
    state->id = id;
    state->facts = read_facts(platform, id);
    state->facts.lanes = state->facts.type != "cpu" || options.force_lanes;
    if (options.emulate_matrix != 0) {
      state->facts.matrix_lanes = options.emulate_matrix;
      state->facts.matrix_emulated = true;
    }
    state->matrix_lanes = state->facts.matrix_lanes;
    state->memory = state->facts.has_svm && !options.force_buffers ? MemoryKind::kSvm : MemoryKind::kBuffers;
    state->cache_folder = options.cache_folder;
    state->ahead_folders = options.ahead_folders;
    state->target = target_of(state->facts);
    state->programs_file = options.programs_file;
    cl_int code = CL_SUCCESS;
    state->context = ::clCreateContext(nullptr, 1, &id, nullptr, nullptr, &code);
    check(code, ("no context on " + state->facts.name).c_str());
    return std::unique_ptr<Device>(new Device(std::move(state)));
  }
};

std::vector<std::unique_ptr<Device>> find_devices(const FindOptions& options, std::string& reason) {
  std::vector<std::unique_ptr<Device>> out;
  reason.clear();
  cl_uint platform_count = 0;
  const cl_int code = ::clGetPlatformIDs(0, nullptr, &platform_count);
  if (code != CL_SUCCESS || platform_count == 0) {
    reason = "no OpenCL driver is installed (none named in /etc/OpenCL/vendors works)";
    return out;
  }
  std::vector<cl_platform_id> platforms(platform_count);
  ::clGetPlatformIDs(platform_count, platforms.data(), nullptr);
  std::size_t passed_over = 0;
  for (cl_platform_id platform : platforms) {
    cl_uint count = 0;
    if (::clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS || count == 0) continue;
    std::vector<cl_device_id> ids(count);
    ::clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr);
    for (cl_device_id id : ids) {
      const bool cpu = (info<cl_device_type>(id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
      if (info<cl_bool>(id, CL_DEVICE_AVAILABLE) == CL_FALSE || info<cl_bool>(id, CL_DEVICE_COMPILER_AVAILABLE) == CL_FALSE) continue;
      if (cpu && !options.any_type) {
        ++passed_over;
        continue;
      }
      try {
        out.push_back(Finder::open(platform, id, options));
      } catch (const DeviceError& problem) {
        reason = problem.what();  // a driver without its device: the others may work
      }
    }
  }
  std::stable_partition(out.begin(), out.end(), [](const auto& device) { return device->facts().type == "gpu"; });
  if (out.size() > kMaxDevices) out.resize(kMaxDevices);
  if (out.empty() && reason.empty()) {
    reason = passed_over > 0 ? "OpenCL has no GPU here, only CPUs (IPEXRUN_XPU=any takes them)"
                             : "the OpenCL drivers that are installed find no device";
  }
  return out;
}

}  // namespace ipexrun::xpu
