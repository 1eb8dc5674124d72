// The inside of a Device, shared by the files of this folder.
#pragma once

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS  // clCreateCommandQueue: devices of OpenCL 1.2 have no other
#include <CL/cl.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "xpu/core/streams.h"
#include "xpu/opencl/device.h"
#include "xpu/opencl/sources.h"

namespace ipexrun::xpu {

/// The name of a code of OpenCL, e.g. CL_OUT_OF_RESOURCES.
const char* code_name(cl_int code);
/// Throws DeviceError "what: code" unless the code is CL_SUCCESS.
void check(cl_int code, const char* what);

struct Kernel {
  cl_kernel handle = nullptr;
  std::string name;  ///< for people: file, operator, function
  /// The values that its arguments have, by position; those of addresses are followed by Device::State::released. OpenCL keeps a kernel's
  /// arguments from launch to launch.
  std::vector<std::string> values;
  std::vector<const void*> reached;  ///< what it was told last, with the version
  std::uint64_t reached_version = 0;

  bool has(unsigned at, const void* value, std::size_t bytes) const {
    return at < values.size() && values[at].size() == bytes && std::memcmp(values[at].data(), value, bytes) == 0;
  }
  void remember(unsigned at, const void* value, std::size_t bytes) {
    if (values.size() <= at) values.resize(at + 1);
    values[at].assign(static_cast<const char*>(value), bytes);
  }
};

struct Device::State {
  cl_platform_id platform = nullptr;
  cl_device_id id = nullptr;
  cl_context context = nullptr;
  MemoryKind memory = MemoryKind::kSvm;
  DeviceFacts facts;
  std::string cache_folder;
  std::vector<std::string> ahead_folders;
  std::string target;         ///< whose programs of these folders are the device's
  std::string programs_file;  ///< every program asked for is written there; "": none
  std::atomic<int> matrix_lanes{0};

  /// A stream's queue, and that it stays it.
  struct Queue {
    std::shared_lock<std::shared_mutex> held;
    cl_command_queue handle = nullptr;
    operator cl_command_queue() const { return handle; }  // NOLINT(google-explicit-constructor): for the calls of OpenCL
  };
  std::shared_mutex queues_mutex;
  std::map<StreamId, cl_command_queue> queues;
  std::array<std::atomic<cl_command_queue>, kStreamsPerDevice + 1> first_queues{};  ///< those of `queues`, found without a search
  bool times_events = false;                                                        ///< the queues' events have times; it costs each launch
  Queue queue(StreamId stream);

  /// kBuffers: start address -> object and size.
  struct Buffer {
    cl_mem object;
    std::size_t bytes;
  };
  std::mutex buffers_mutex;
  std::map<const char*, Buffer> buffers;
  std::pair<cl_mem, std::size_t> locate(const void* address);

  std::mutex programs_mutex;
  std::map<std::string, cl_program> programs;
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels;
  std::atomic<std::uint64_t> released{0};  ///< allocations that went back to the driver
  std::mutex launch_mutex;                 ///< arguments of a cl_kernel are state
  std::atomic<bool> reaches{true};         ///< no driver has refused to be told of addresses in memory
  std::mutex sent_mutex;
  std::deque<std::pair<Event, std::vector<std::uint64_t>>> sent;  ///< what the device has perhaps not read yet
  std::atomic<long> from_source{0}, from_cache{0}, ahead_of_time{0}, launches{0};
  double build_seconds = 0;  ///< under programs_mutex

  std::atomic<bool> measuring{false};
  std::mutex times_mutex;
  std::deque<std::pair<const Kernel*, cl_event>> timed;  ///< launches whose times were not read yet
  std::map<std::string, KernelTime> times;
  void read_time();  ///< of the oldest of them; waits for it
  cl_program program(const std::string& file, const std::string& options);
  cl_program built_ahead(const std::string& name, const std::string& all_options);
  cl_program from_source_text(const std::string& file, const std::string& all_options);
};

}  // namespace ipexrun::xpu
