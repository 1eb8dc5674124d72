// One OpenCL device: its memory, its queues, its kernels. Handles of OpenCL stay behind this header; nothing outside xpu/opencl needs them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "xpu/core/memory_blocks.h"

struct _cl_event;
struct _cl_device_id;

namespace ipexrun::xpu {

/// What OpenCL refused, with the name of its code.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How a device's memory is had. kSvm: coarse-grained shared virtual memory, the pointer is the device's. kBuffers: cl_mem objects behind
/// reserved addresses that the host cannot read: for devices without SVM, and for tests, where a wrong access of the host crashes at once.
enum class MemoryKind { kSvm, kBuffers };

/// What the device says of itself. Sizes in bytes.
struct DeviceFacts {
  std::string name, vendor, driver_version, version, platform;
  std::string type;    ///< gpu, cpu or accelerator
  bool lanes = false;  ///< work items are lanes that load side by side, not loops of a CPU: decides between kernels
  std::size_t memory_bytes = 0;
  std::size_t largest_allocation_bytes = 0;
  std::size_t local_bytes = 0;
  std::size_t max_work_group = 0;
  unsigned compute_units = 0;
  unsigned clock_mhz = 0;
  unsigned ip_version = 0;  ///< of an Intel GPU (program_files.h, intel_target); 0: not said
  int matrix_lanes = 0;     ///< lanes of a sub-group with matrix units (gemm_matrix.cl): 16, 8; 0: none
  bool matrix_emulated = false;
  bool has_fp16 = false, has_fp64 = false, has_sub_groups = false, has_svm = false, is_intel = false;
};

/// Where a kernel's argument comes from: an address of the device's memory, or a value.
class Argument {
 public:
  static Argument memory(const void* address) { return Argument{address}; }
  template <typename Value>
  static Argument value(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= kMaxBytes);
    Argument out{nullptr};
    out.bytes_ = sizeof(Value);
    __builtin_memcpy(out.value_, &value, sizeof(Value));
    return out;
  }
  // Of its 512 bytes only those in use travel: an operator makes about ten of these.
  Argument(const Argument& other) : address_(other.address_), bytes_(other.bytes_) { __builtin_memcpy(value_, other.value_, bytes_); }
  Argument& operator=(const Argument& other) {
    address_ = other.address_;
    bytes_ = other.bytes_;
    __builtin_memmove(value_, other.value_, bytes_);
    return *this;
  }
  ~Argument() = default;

 private:
  friend class Device;
  explicit Argument(const void* address) : address_(address) {}
  static constexpr std::size_t kMaxBytes = 512;
  const void* address_;
  std::size_t bytes_ = 0;                       ///< 0: an address
  alignas(16) unsigned char value_[kMaxBytes];  // NOLINT(modernize-avoid-c-arrays): not set on purpose
};

struct Kernel;  ///< of one device; lives as long as it

/// Memory that no argument of a launch names but whose addresses lie in memory: an address in each allocation of the driver. `version`
/// changes when any of them may have gone back to it.
struct Reached {
  std::span<const void* const> addresses;
  std::uint64_t version = 0;
};

/// How programs came to be in this process.
struct ProgramCounts {
  long from_source = 0, from_cache = 0, ahead_of_time = 0;
  double seconds = 0;  ///< what building and loading took
};

/// What a kernel took on the device, all its launches together.
struct KernelTime {
  std::string name;
  long calls = 0;
  double seconds = 0;
};

class Device {
 public:
  /// A moment of a stream. Empty: passed.
  class Event {
   public:
    Event() = default;
    explicit Event(_cl_event* handle) : handle_(handle) {}
    Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Event& operator=(Event&& other) noexcept {
      std::swap(handle_, other.handle_);
      return *this;
    }
    ~Event();
    [[nodiscard]] _cl_event* handle() const { return handle_; }

   private:
    _cl_event* handle_ = nullptr;
  };

  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const DeviceFacts& facts() const;
  [[nodiscard]] MemoryKind memory_kind() const;
  /// facts().matrix_lanes, until give_up_matrix(): the compiler does not take the kernels for them. Any thread.
  [[nodiscard]] int matrix_lanes() const;
  void give_up_matrix();

  // Memory (xpu/core/caching_allocator.h, MemoryDevice).
  void* allocate(std::size_t bytes) noexcept;
  void release(void* address);

  // Order. A stream is an in-order queue, made at its first use.
  Event record(StreamId stream);
  bool passed(const Event& event);
  void wait(const Event& event);
  void block(const Event& event, StreamId stream);  ///< what `stream` is given from now on runs after the event
  void synchronize();
  void synchronize(StreamId stream);
  bool idle(StreamId stream);
  double elapsed_ms(const Event& from, const Event& to);  ///< of events that were recorded after time_events()
  /// From now on events have times. Waits for the device; launches take longer afterwards.
  void time_events();

  // Copies. Those that touch the host's memory return when it may be used again.
  void write(void* to, const void* host, std::size_t bytes, StreamId stream);
  void read(void* host, const void* from, std::size_t bytes, StreamId stream);
  void copy(void* to, const void* from, std::size_t bytes, StreamId stream);
  /// Returns at once; the device reads the bytes when the stream gets there.
  void send(void* to, std::vector<std::uint64_t> words, StreamId stream);

  /// The kernel `name` of the file `file` (xpu/kernels), built with `options`; built once, remembered in the cache folder. Throws
  /// DeviceError with the compiler's words when it does not build. Any thread.
  Kernel& kernel(const std::string& file, const std::string& options, const std::string& name);
  /// Enqueues; `global` is rounded up to multiples of `local`, so kernels test their index. `reached` only where reaches() is true.
  void launch(Kernel& kernel, std::span<const Argument> arguments, std::array<std::size_t, 3> global, std::array<std::size_t, 3> local,
              StreamId stream, const Reached& reached = {});
  /// Whether kernels may follow addresses that lie in memory.
  [[nodiscard]] bool reaches() const;

  /// The driver's binary of a program, built from source now; "" where the driver hands out none. Throws like kernel().
  std::string build_binary(const std::string& file, const std::string& options);
  [[nodiscard]] ProgramCounts program_counts() const;
  [[nodiscard]] long launches() const;

  /// While on, the device's own clock times every launch (an event each: about a microsecond on the host).
  void measure(bool on);
  [[nodiscard]] bool measuring() const;
  /// Since measure(true), by name. Waits for what was launched.
  std::vector<KernelTime> kernel_times();

 private:
  friend struct Finder;
  struct State;
  explicit Device(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct FindOptions {
  bool any_type = false;                   ///< CPUs too; otherwise GPUs and accelerators
  bool force_buffers = false;              ///< MemoryKind::kBuffers even where there is SVM
  bool force_lanes = false;                ///< CPUs get the kernels of GPUs
  int emulate_matrix = 0;                  ///< 16 or 8: products as on a device with matrix units of so many lanes, which work items play
  std::string cache_folder;                ///< "": programs are not remembered
  std::vector<std::string> ahead_folders;  ///< of programs built ahead of time (program_files.h)
  std::string programs_file;               ///< a line for each program asked for is appended; "": none
};

/// All usable devices, GPUs first. An empty list: `reason` says why.
std::vector<std::unique_ptr<Device>> find_devices(const FindOptions& options, std::string& reason);

}  // namespace ipexrun::xpu
