#include "xpu/opencl/device.h"

#include <sys/mman.h>

#include <algorithm>

#include "xpu/opencl/state.h"

namespace ipexrun::xpu {
namespace {

constexpr cl_svm_mem_flags kUnrestrictedSize = 1u << 23;  // CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL: above 4 GiB in one piece

constexpr std::size_t kMostTimed = 4096;  // events that are kept

std::size_t pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

const char* code_name(cl_int code) {
  switch (code) {
#define IPEXRUN_CODE(name) \
  case name:               \
    return #name;
    IPEXRUN_CODE(CL_DEVICE_NOT_FOUND)
    IPEXRUN_CODE(CL_DEVICE_NOT_AVAILABLE)
    IPEXRUN_CODE(CL_COMPILER_NOT_AVAILABLE)
    IPEXRUN_CODE(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    IPEXRUN_CODE(CL_OUT_OF_RESOURCES)
    IPEXRUN_CODE(CL_OUT_OF_HOST_MEMORY)
    IPEXRUN_CODE(CL_BUILD_PROGRAM_FAILURE)
    IPEXRUN_CODE(CL_INVALID_VALUE)
    IPEXRUN_CODE(CL_INVALID_MEM_OBJECT)
    IPEXRUN_CODE(CL_INVALID_BINARY)
    IPEXRUN_CODE(CL_INVALID_BUILD_OPTIONS)
    IPEXRUN_CODE(CL_INVALID_KERNEL_NAME)
    IPEXRUN_CODE(CL_INVALID_KERNEL_ARGS)
    IPEXRUN_CODE(CL_INVALID_ARG_INDEX)
    IPEXRUN_CODE(CL_INVALID_ARG_VALUE)
    IPEXRUN_CODE(CL_INVALID_ARG_SIZE)
    IPEXRUN_CODE(CL_INVALID_WORK_GROUP_SIZE)
    IPEXRUN_CODE(CL_INVALID_EVENT)
    IPEXRUN_CODE(CL_INVALID_OPERATION)
    IPEXRUN_CODE(CL_INVALID_BUFFER_SIZE)
#undef IPEXRUN_CODE
    default:
      return "an unnamed code";
  }
}

void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS) throw DeviceError(std::string("xpu: ") + what + ": " + code_name(code) + " (" + std::to_string(code) + ")");
}

Device::Event::~Event() {
  if (handle_ != nullptr) ::clReleaseEvent(handle_);
}

Device::Device(std::unique_ptr<State> state) : state_(std::move(state)) {}

Device::~Device() {
  for (auto& [name, kernel] : state_->kernels) ::clReleaseKernel(kernel->handle);
  for (auto& [name, program] : state_->programs) ::clReleaseProgram(program);
  for (auto& [stream, queue] : state_->queues) ::clReleaseCommandQueue(queue);
  ::clReleaseContext(state_->context);
}

const DeviceFacts& Device::facts() const { return state_->facts; }
int Device::matrix_lanes() const { return state_->matrix_lanes.load(std::memory_order_relaxed); }
void Device::give_up_matrix() { state_->matrix_lanes = 0; }
MemoryKind Device::memory_kind() const { return state_->memory; }
ProgramCounts Device::program_counts() const {
  const std::lock_guard lock(state_->programs_mutex);
  return {state_->from_source, state_->from_cache, state_->ahead_of_time, state_->build_seconds};
}
long Device::launches() const { return state_->launches; }

void Device::State::read_time() {
  const auto [kernel, event] = timed.front();
  timed.pop_front();
  cl_ulong start = 0, end = 0;
  const bool known = ::clWaitForEvents(1, &event) == CL_SUCCESS &&
                     ::clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, nullptr) == CL_SUCCESS &&
                     ::clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr) == CL_SUCCESS;
  KernelTime& time = times[kernel->name];
  ++time.calls;
  if (known && end > start) time.seconds += static_cast<double>(end - start) * 1e-9;
  ::clReleaseEvent(event);
}

bool Device::measuring() const { return state_->measuring.load(std::memory_order_relaxed); }
void Device::measure(bool on) {
  const std::lock_guard lock(state_->times_mutex);
  if (on) time_events();
  if (on && !state_->measuring) {
    while (!state_->timed.empty()) state_->read_time();
    state_->times.clear();
  }
  state_->measuring = on;
}
std::vector<KernelTime> Device::kernel_times() {
  const std::lock_guard lock(state_->times_mutex);
  while (!state_->timed.empty()) state_->read_time();
  std::vector<KernelTime> out;
  for (const auto& [name, time] : state_->times) {
    out.push_back(time);
    out.back().name = name;
  }
  return out;
}

Device::State::Queue Device::State::queue(StreamId stream) {
  Queue out{std::shared_lock(queues_mutex)};
  if (stream < first_queues.size()) out.handle = first_queues[stream].load(std::memory_order_acquire);
  if (out.handle != nullptr) return out;
  out.held.unlock();
  {
    const std::lock_guard lock(queues_mutex);
    if (!queues.contains(stream)) {
      cl_int code = CL_SUCCESS;
      cl_command_queue made = ::clCreateCommandQueue(context, id, times_events ? CL_QUEUE_PROFILING_ENABLE : 0, &code);  // in order
      check(code, "no queue");
      queues[stream] = made;
    }
    if (stream < first_queues.size()) first_queues[stream].store(queues[stream], std::memory_order_release);
  }
  out.held.lock();
  out.handle = queues.at(stream);
  return out;
}

void Device::time_events() {
  const std::lock_guard lock(state_->queues_mutex);
  if (state_->times_events) return;
  state_->times_events = true;
  for (auto& [stream, queue] : state_->queues) {
    cl_int code = CL_SUCCESS;
    cl_command_queue timed = ::clCreateCommandQueue(state_->context, state_->id, CL_QUEUE_PROFILING_ENABLE, &code);
    check(code, "no queue whose events have times");
    ::clFinish(queue);
    ::clReleaseCommandQueue(queue);
    queue = timed;
    if (stream < state_->first_queues.size()) state_->first_queues[stream].store(timed, std::memory_order_release);
  }
}

std::pair<cl_mem, std::size_t> Device::State::locate(const void* address) {
  const auto* at = static_cast<const char*>(address);
  const std::lock_guard lock(buffers_mutex);
  auto after = buffers.upper_bound(at);
  if (after != buffers.begin()) {
    const auto& [start, buffer] = *std::prev(after);
    if (at < start + buffer.bytes) return {buffer.object, static_cast<std::size_t>(at - start)};
  }
  throw DeviceError("xpu: an address that is not this device's memory");
}

void* Device::allocate(std::size_t bytes) noexcept {
  State& state = *state_;
  if (bytes > state.facts.memory_bytes) return nullptr;
  const bool large = bytes > state.facts.largest_allocation_bytes;
  if (large && !state.facts.is_intel) return nullptr;
  if (state.memory == MemoryKind::kSvm)
    return ::clSVMAlloc(state.context, CL_MEM_READ_WRITE | (large ? kUnrestrictedSize : 0), bytes, 0);  // 0: aligned for every type
  void* address = ::mmap(nullptr, pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  cl_int code = CL_SUCCESS;
  cl_mem object = ::clCreateBuffer(state.context, CL_MEM_READ_WRITE | (large ? kUnrestrictedSize : 0), bytes, nullptr, &code);
  if (code != CL_SUCCESS) {
    ::munmap(address, pages(bytes));
    return nullptr;
  }
  try {
    const std::lock_guard lock(state.buffers_mutex);
    state.buffers[static_cast<const char*>(address)] = {object, bytes};
  } catch (const std::bad_alloc&) {
    ::clReleaseMemObject(object);
    ::munmap(address, pages(bytes));
    return nullptr;
  }
  return address;
}

void Device::release(void* address) {
  State& state = *state_;
  if (state.memory == MemoryKind::kSvm) {
    ++state.released;
    ::clSVMFree(state.context, address);
    return;
  }
  const std::lock_guard lock(state.buffers_mutex);
  const auto found = state.buffers.find(static_cast<const char*>(address));
  if (found == state.buffers.end()) return;
  ::clReleaseMemObject(found->second.object);
  ::munmap(address, pages(found->second.bytes));
  state.buffers.erase(found);
}

Device::Event Device::record(StreamId stream) {
  cl_event event = nullptr;
  const State::Queue queue = state_->queue(stream);
  check(::clEnqueueMarkerWithWaitList(queue, 0, nullptr, &event), "no marker");
  ::clFlush(queue);
  return Event(event);
}

bool Device::passed(const Event& event) {
  if (event.handle() == nullptr) return true;
  cl_int status = CL_COMPLETE;
  ::clGetEventInfo(event.handle(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
  return status <= CL_COMPLETE;  // negative: it failed, and nothing waits for it any more
}

void Device::wait(const Event& event) {
  cl_event handle = event.handle();
  if (handle != nullptr) check(::clWaitForEvents(1, &handle), "waiting for an event");
}

void Device::block(const Event& event, StreamId stream) {
  cl_event handle = event.handle();
  if (handle == nullptr) return;
  check(::clEnqueueBarrierWithWaitList(state_->queue(stream), 1, &handle, nullptr), "no barrier");
}

void Device::synchronize() {
  const std::shared_lock lock(state_->queues_mutex);
  for (const auto& [stream, queue] : state_->queues) check(::clFinish(queue), "waiting for the device");
}

void Device::synchronize(StreamId stream) { check(::clFinish(state_->queue(stream)), "waiting for a stream"); }

bool Device::idle(StreamId stream) { return passed(record(stream)); }

double Device::elapsed_ms(const Event& from, const Event& to) {
  cl_ulong start = 0, end = 0;
  wait(from);
  wait(to);
  check(::clGetEventProfilingInfo(from.handle(), CL_PROFILING_COMMAND_END, sizeof start, &start, nullptr), "no time of an event");
  check(::clGetEventProfilingInfo(to.handle(), CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr), "no time of an event");
  return (static_cast<double>(end) - static_cast<double>(start)) * 1e-6;
}

void Device::write(void* to, const void* host, std::size_t bytes, StreamId stream) {
  if (bytes == 0) return;
  const State::Queue queue = state_->queue(stream);
  if (state_->memory == MemoryKind::kSvm) {
    check(::clEnqueueSVMMemcpy(queue, CL_TRUE, to, host, bytes, 0, nullptr, nullptr), "copying to the device");
    return;
  }
  const auto [object, offset] = state_->locate(to);
  check(::clEnqueueWriteBuffer(queue, object, CL_TRUE, offset, bytes, host, 0, nullptr, nullptr), "copying to the device");
}

void Device::read(void* host, const void* from, std::size_t bytes, StreamId stream) {
  if (bytes == 0) return;
  const State::Queue queue = state_->queue(stream);
  if (state_->memory == MemoryKind::kSvm) {
    check(::clEnqueueSVMMemcpy(queue, CL_TRUE, host, from, bytes, 0, nullptr, nullptr), "copying from the device");
    return;
  }
  const auto [object, offset] = state_->locate(from);
  check(::clEnqueueReadBuffer(queue, object, CL_TRUE, offset, bytes, host, 0, nullptr, nullptr), "copying from the device");
}

void Device::copy(void* to, const void* from, std::size_t bytes, StreamId stream) {
  if (bytes == 0 || to == from) return;
  const State::Queue queue = state_->queue(stream);
  if (state_->memory == MemoryKind::kSvm) {
    check(::clEnqueueSVMMemcpy(queue, CL_FALSE, to, from, bytes, 0, nullptr, nullptr), "copying on the device");
    return;
  }
  const auto [source, source_offset] = state_->locate(from);
  const auto [target, target_offset] = state_->locate(to);
  check(::clEnqueueCopyBuffer(queue, source, target, source_offset, target_offset, bytes, 0, nullptr, nullptr), "copying on the device");
}

void Device::send(void* to, std::vector<std::uint64_t> words, StreamId stream) {
  if (words.empty()) return;
  const State::Queue queue = state_->queue(stream);
  const std::size_t bytes = words.size() * sizeof words[0];
  const std::lock_guard lock(state_->sent_mutex);
  while (!state_->sent.empty() && passed(state_->sent.front().first)) state_->sent.pop_front();
  auto& [event, kept] = state_->sent.emplace_back(Event(), std::move(words));
  cl_event handle = nullptr;
  cl_int code = CL_SUCCESS;
  if (state_->memory == MemoryKind::kSvm) {
    code = ::clEnqueueSVMMemcpy(queue, CL_FALSE, to, kept.data(), bytes, 0, nullptr, &handle);
  } else {
    const auto [object, offset] = state_->locate(to);
    code = ::clEnqueueWriteBuffer(queue, object, CL_FALSE, offset, bytes, kept.data(), 0, nullptr, &handle);
  }
  event = Event(handle);
  if (code != CL_SUCCESS) state_->sent.pop_back();
  check(code, "sending to the device");
}

bool Device::reaches() const { return state_->memory == MemoryKind::kSvm && state_->reaches.load(std::memory_order_relaxed); }

void Device::launch(Kernel& kernel, std::span<const Argument> arguments, std::array<std::size_t, 3> global,
                    std::array<std::size_t, 3> local, StreamId stream, const Reached& reached) {
  const State::Queue queue = state_->queue(stream);
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (global[axis] == 0) return;
    global[axis] = (global[axis] + local[axis] - 1) / local[axis] * local[axis];
  }
  const std::lock_guard lock(state_->launch_mutex);
  const std::uint64_t released = state_->released.load(std::memory_order_relaxed);
  cl_uint at = 0;
  const auto set_value = [&](const void* value, std::size_t bytes, const char* what) {
    if (!kernel.has(at, value, bytes)) {
      check(::clSetKernelArg(kernel.handle, at, bytes, value), what);
      kernel.remember(at, value, bytes);
    }
    ++at;
  };
  for (const Argument& argument : arguments) {
    if (argument.bytes_ != 0) {
      set_value(argument.value_, argument.bytes_, "an argument of a kernel");
      continue;
    }
    // Every address travels as a pointer and an offset in bytes: a cl_mem has no pointer into its middle.
    cl_ulong offset = 0;
    if (state_->memory == MemoryKind::kSvm || argument.address_ == nullptr) {
      // A driver may keep more of an address than its value: one that was given back and came again is told again.
      const std::array<std::uint64_t, 2> known{reinterpret_cast<std::uint64_t>(argument.address_), released};
      if (!kernel.has(at, known.data(), sizeof known)) {
        check(::clSetKernelArgSVMPointer(kernel.handle, at, argument.address_), "an address for a kernel");
        kernel.remember(at, known.data(), sizeof known);
      }
      ++at;
    } else {
      const auto [object, within] = state_->locate(argument.address_);
      offset = within;
      check(::clSetKernelArg(kernel.handle, at++, sizeof(cl_mem), &object), "a buffer for a kernel");
    }
    set_value(&offset, sizeof offset, "an offset for a kernel");
  }
  const auto& [met, version] = reached;
  if (!met.empty() &&
      (version != kernel.reached_version || !std::equal(met.begin(), met.end(), kernel.reached.begin(), kernel.reached.end()))) {
    const cl_int code = ::clSetKernelExecInfo(kernel.handle, CL_KERNEL_EXEC_INFO_SVM_PTRS, met.size_bytes(), met.data());
    if (code != CL_SUCCESS) state_->reaches = false;
    check(code, "addresses that a kernel will meet");
    kernel.reached.assign(met.begin(), met.end());
    kernel.reached_version = version;
  }
  cl_event event = nullptr;
  const bool timed = state_->measuring.load(std::memory_order_relaxed);
  check(::clEnqueueNDRangeKernel(queue, kernel.handle, 3, nullptr, global.data(), local.data(), 0, nullptr, timed ? &event : nullptr),
        "launching a kernel");
  if (timed) {
    const std::lock_guard times_lock(state_->times_mutex);
    state_->timed.emplace_back(&kernel, event);
    if (state_->timed.size() > kMostTimed) state_->read_time();
  }
  state_->launches.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ipexrun::xpu
