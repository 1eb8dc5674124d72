#include "preload/xpu/backend.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/XPUHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/csrc/autograd/engine.h>

#include <map>
#include <mutex>
#include <new>

#include "preload/xpu/index_check.h"
#include "preload/xpu/place.h"

namespace ipexrun::preload::xpu {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;
using Event = ::ipexrun::xpu::Device::Event;
using ::ipexrun::xpu::thread_place;
using ::ipexrun::xpu::units;

/// A backward pass on the CPU that came before us has counted the devices and found none: autograd then has no thread for ours.
struct EngineAccess : torch::autograd::Engine {
  static void ensure_threads() {
    auto& engine = static_cast<EngineAccess&>(torch::autograd::Engine::get_default_engine());
    engine.initialize_device_threads_pool();
    if (engine.device_ready_queues_.empty()) engine.start_device_threads();
  }
};

void at_first_use() {
  static std::once_flag once;
  std::call_once(once, EngineAccess::ensure_threads);
}

// ---- memory

void free_memory(void* address) {
  if (::ipexrun::xpu::in_forked_child()) return;  // the parent's
  for (const std::unique_ptr<Unit>& unit : units()) {
    if (unit->memory.free(address)) return;
  }
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const auto index = static_cast<DeviceIndex>(thread_place().device);
    const Device device(DeviceType::XPU, index);
    if (bytes == 0) return {nullptr, nullptr, &free_memory, device};
    Unit& unit = ::ipexrun::xpu::unit(index);
    at_first_use();
    unit.used = true;
    void* address = unit.memory.allocate(bytes, ::ipexrun::xpu::current_stream(index));
    TORCH_CHECK_WITH(OutOfMemoryError, address != nullptr, "XPU out of memory on xpu:", static_cast<int>(index), " (",
                     unit.device->facts().name, "): ", unit.memory.explain(bytes, unit.device->facts().memory_bytes));
    return {address, address, &free_memory, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const int index = thread_place().device;
    ::ipexrun::xpu::unit(index).device->copy(to, from, bytes, ::ipexrun::xpu::current_stream(index));
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    for (const std::unique_ptr<Unit>& unit : units()) unit->memory.empty_cache();
  }
  void recordStream(const c10::DataPtr& data, Stream stream) override {
    if (data.get() == nullptr) return;
    ::ipexrun::xpu::unit(stream.device_index()).memory.record_stream(data.get(), static_cast<StreamId>(stream.id()));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex index) override {
    const ::ipexrun::xpu::MemoryStats from = ::ipexrun::xpu::unit(index).memory.stats();
    c10::CachingDeviceAllocator::DeviceStats out;
    const auto put = [](c10::CachingAllocator::StatArray& to, const ::ipexrun::xpu::StatArray& array) {
      for (std::size_t pool = 0; pool < 3; ++pool) {
        to[pool].current = array.of[pool].current;
        to[pool].peak = array.of[pool].peak;
        to[pool].allocated = array.of[pool].allocated;
        to[pool].freed = array.of[pool].freed;
      }
    };
    put(out.allocation, from.allocation);
    put(out.segment, from.segment);
    put(out.active, from.active);
    put(out.inactive_split, from.inactive_split);
    put(out.allocated_bytes, from.allocated_bytes);
    put(out.reserved_bytes, from.reserved_bytes);
    put(out.active_bytes, from.active_bytes);
    put(out.inactive_split_bytes, from.inactive_split_bytes);
    put(out.requested_bytes, from.requested_bytes);
    out.num_alloc_retries = from.num_alloc_retries;
    out.num_ooms = from.num_ooms;
    out.num_device_alloc = from.num_device_alloc;
    out.num_device_free = from.num_device_free;
    out.num_sync_all_streams = from.num_sync_all_streams;
    return out;
  }
  void resetAccumulatedStats(DeviceIndex index) override { ::ipexrun::xpu::unit(index).memory.reset_accumulated(); }
  void resetPeakStats(DeviceIndex index) override { ::ipexrun::xpu::unit(index).memory.reset_peak(); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(DeviceIndex index) override {
    Unit& unit = ::ipexrun::xpu::unit(index);
    const std::size_t total = unit.device->facts().memory_bytes;
    const auto held = static_cast<std::size_t>(unit.memory.stats().reserved_bytes.current());
    return {held < total ? total - held : 0, total};
  }
};

/// Host memory whose pages stay: copies to a device from there need no second buffer. Remembered so that is_pinned() can tell.
class PinnedAllocator final : public c10::Allocator {
 public:
  static PinnedAllocator& get() {
    static auto* one = new PinnedAllocator;
    return *one;
  }
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, Device(DeviceType::CPU)};
    const std::size_t size = (bytes + 4095) / 4096 * 4096;
    void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK_WITH(OutOfMemoryError, address != MAP_FAILED, "no host memory for a pinned tensor of ", bytes, " bytes");
    (void)::mlock(address, size);  // as far as the limit of this process allows
    const std::lock_guard lock(mutex_);
    ranges_[static_cast<char*>(address)] = size;
    return {address, address, &release, Device(DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool holds(const void* address) {
    auto* at = const_cast<char*>(static_cast<const char*>(address));
    const std::lock_guard lock(mutex_);
    const auto after = ranges_.upper_bound(at);
    return after != ranges_.begin() && at < std::prev(after)->first + std::prev(after)->second;
  }

 private:
  static void release(void* address) {
    if (address == nullptr) return;
    PinnedAllocator& self = get();
    const std::lock_guard lock(self.mutex_);
    const auto found = self.ranges_.find(static_cast<char*>(address));
    if (found == self.ranges_.end()) return;
    ::munmap(address, found->second);
    self.ranges_.erase(found);
  }
  std::mutex mutex_;
  std::map<char*, std::size_t> ranges_;
};

// ---- random numbers

/// Keeps the state of torch's CPU generator, so that what runs on the CPU instead continues the same sequence.
struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(DeviceIndex index, std::uint64_t seed = c10::default_rng_seed_val) : at::CPUGeneratorImpl(seed) {
    device_ = Device(DeviceType::XPU, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::XPU);
  }

 private:
  at::CPUGeneratorImpl* clone_impl() const override {
    auto* out = new Generator(device_.index());
    auto* from = const_cast<Generator*>(this);
    out->set_engine(from->engine());
    out->set_next_float_normal_sample(from->next_float_normal_sample());
    out->set_next_double_normal_sample(from->next_double_normal_sample());
    return out;
  }
};

std::vector<at::Generator>& generators() {
  static auto* all = [] {
    auto* made = new std::vector<at::Generator>;
    for (std::size_t i = 0; i < units().size(); ++i) made->push_back(at::make_generator<Generator>(static_cast<DeviceIndex>(i)));
    return made;
  }();
  return *all;
}

// ---- devices, streams, events

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::XPU; }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return {DeviceType::XPU, static_cast<DeviceIndex>(thread_place().device)}; }
  void setDevice(Device device) const override {
    if (!device.has_index()) return;
    (void)::ipexrun::xpu::unit(device.index());
    thread_place().device = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index()) thread_place().device = device.index();
  }
  static Device known(Device device) {
    return device.has_index() ? device : Device(DeviceType::XPU, static_cast<DeviceIndex>(thread_place().device));
  }
  static Stream stream(Device device, StreamId id) { return Stream(Stream::UNSAFE, known(device), static_cast<c10::StreamId>(id)); }
  Stream getStream(Device device) const override { return stream(device, ::ipexrun::xpu::current_stream(known(device).index())); }
  Stream getDefaultStream(Device device) const override { return stream(device, 0); }
  Stream getNewStream(Device device, int) const override { return stream(device, unit_of(device).streams.next()); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  Stream exchangeStream(Stream next) const override {
    StreamId& current = thread_place().stream[static_cast<std::size_t>(next.device_index())];
    const Stream before = stream(next.device(), current);
    current = static_cast<StreamId>(next.id());
    return before;
  }
  void* getStreamNativeHandle(const Stream one) const override { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(one.id())); }

  static ::ipexrun::xpu::Device& device_of(const Stream& stream) { return *::ipexrun::xpu::unit(stream.device_index()).device; }
  static ::ipexrun::xpu::Device& current() { return *::ipexrun::xpu::unit(thread_place().device).device; }
  void record(void** event, const Stream& stream, const DeviceIndex, const c10::EventFlag flag) const override {
    if (flag == c10::EventFlag::BACKEND_DEFAULT) device_of(stream).time_events();  // enable_timing=True
    if (*event == nullptr) *event = new Event;
    *static_cast<Event*>(*event) = device_of(stream).record(static_cast<StreamId>(stream.id()));
  }
  void block(void* event, const Stream& stream) const override {
    if (event != nullptr) device_of(stream).block(*static_cast<Event*>(event), static_cast<StreamId>(stream.id()));
  }
  bool queryEvent(void* event) const override { return event == nullptr || current().passed(*static_cast<Event*>(event)); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) current().wait(*static_cast<Event*>(event));
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* from, void* to, const DeviceIndex) const override {
    TORCH_CHECK(from != nullptr && to != nullptr, "both events must be recorded before elapsed_time()");
    return current().elapsed_ms(*static_cast<Event*>(from), *static_cast<Event*>(to));
  }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(units().size()); }
  bool queryStream(const Stream& stream) const override { return device_of(stream).idle(static_cast<StreamId>(stream.id())); }
  void synchronizeStream(const Stream& stream) const override { device_of(stream).synchronize(static_cast<StreamId>(stream.id())); }
  void synchronizeDevice(const DeviceIndex index) const override {
    unit_of(Device(DeviceType::XPU, index)).device->synchronize();
    check_indices(Device(DeviceType::XPU, index));
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    device_allocator().recordStream(data, stream);
  }
};

/// No data members: it is written over torch's stub where that one was asked for before us.
struct Hooks final : at::XPUHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return !units().empty(); }
  bool hasXPU() const override { return !units().empty(); }
  bool hasPrimaryContext(DeviceIndex index) const override { return ::ipexrun::xpu::unit(index).used; }
  std::string showConfig() const override { return "ipexrun over OpenCL\n"; }
  int32_t getGlobalIdxFromDevice(const Device& device) const override { return device.index(); }
  const at::Generator& getDefaultGenerator(DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(DeviceIndex index) const override {
    return at::make_generator<Generator>(Guard::known(Device(DeviceType::XPU, index)).index());
  }
  DeviceIndex getNumGPUs() const override { return deviceCount(); }
  DeviceIndex current_device() const override { return getCurrentDevice(); }
  Device getDeviceFromPtr(void*) const override { return {DeviceType::XPU, static_cast<DeviceIndex>(thread_place().device)}; }
  void deviceSynchronize(DeviceIndex index) const override { ::ipexrun::xpu::unit(index).device->synchronize(); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator::get(); }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::get().holds(data); }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(units().size()); }
  void setCurrentDevice(DeviceIndex index) const override { Guard().setDevice({DeviceType::XPU, index}); }
  DeviceIndex getCurrentDevice() const override { return static_cast<DeviceIndex>(thread_place().device); }
  DeviceIndex exchangeDevice(DeviceIndex index) const override { return Guard().exchangeDevice({DeviceType::XPU, index}).index(); }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return index < 0 ? getCurrentDevice() : exchangeDevice(index); }
};

Guard g_guard;

}  // namespace

c10::DeviceAllocator& device_allocator() {
  static auto* one = new Allocator;
  return *one;
}

const at::Generator& default_generator(DeviceIndex index) {
  (void)::ipexrun::xpu::unit(index < 0 ? thread_place().device : index);
  return generators()[static_cast<std::size_t>(index < 0 ? thread_place().device : index)];
}

void register_backend() {
  c10::SetAllocator(DeviceType::XPU, &device_allocator());
  static const c10::impl::DeviceGuardImplRegistrar registrar(DeviceType::XPU, &g_guard);
  at::XPUHooksRegistry()->Register("XPUHooks", []() -> std::unique_ptr<at::XPUHooksInterface> { return std::make_unique<Hooks>(); });
  // Whoever asked before got a stub that torch keeps: it becomes ours in place. Both have a table of functions and nothing else.
  static_assert(sizeof(Hooks) == sizeof(at::XPUHooksInterface));
  const at::XPUHooksInterface& known = at::detail::getXPUHooks();
  if (!known.hasXPU()) new (const_cast<at::XPUHooksInterface*>(&known)) Hooks;
}

}  // namespace ipexrun::preload::xpu
