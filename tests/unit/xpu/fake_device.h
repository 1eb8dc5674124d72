// A device without hardware: memory is addresses only, work is counted, and events pass when the test says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "xpu/core/memory_blocks.h"

namespace ipexrun::xpu::test {

class FakeDevice {
 public:
  struct Event {
    StreamId stream;
    std::uint64_t work;
  };

  explicit FakeDevice(std::size_t bytes) : bytes_(bytes) {}

  void* allocate(std::size_t bytes) {
    if (bytes > bytes_ - used_) return nullptr;
    used_ += bytes;
    auto* address = reinterpret_cast<void*>(next_);
    segments_[next_] = bytes;
    next_ += bytes + kGranularity;  // segments never touch, so a block that spans two is found
    ++allocations;
    return address;
  }
  void release(void* address) {
    const auto found = segments_.find(reinterpret_cast<std::uintptr_t>(address));
    if (found == segments_.end()) {
      ++wrong_releases;
      return;
    }
    if (busy()) ++releases_while_busy;
    used_ -= found->second;
    segments_.erase(found);
  }
  Event record(StreamId stream) { return {stream, submitted_[stream]}; }
  bool passed(const Event& event) { return done_[event.stream] >= event.work; }
  void synchronize() {
    for (const auto& [stream, work] : submitted_) done_[stream] = work;
  }

  void submit(StreamId stream) { ++submitted_[stream]; }
  void run(StreamId stream) { done_[stream] = submitted_[stream]; }
  [[nodiscard]] bool busy() {
    for (const auto& [stream, work] : submitted_)
      if (done_[stream] < work) return true;
    return false;
  }
  [[nodiscard]] std::size_t used() const { return used_; }
  [[nodiscard]] bool holds(std::uintptr_t address, std::size_t bytes) const {
    auto after = segments_.upper_bound(address);
    if (after == segments_.begin()) return false;
    const auto& [start, size] = *--after;
    return address + bytes <= start + size;
  }

  int allocations = 0;
  int wrong_releases = 0;
  int releases_while_busy = 0;

 private:
  std::size_t bytes_;
  std::size_t used_ = 0;
  std::uintptr_t next_ = 1u << 30;
  std::map<std::uintptr_t, std::size_t> segments_;
  std::map<StreamId, std::uint64_t> submitted_, done_;
};

}  // namespace ipexrun::xpu::test
