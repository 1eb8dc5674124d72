#include "kernels/scratch.h"

#include <cstdlib>

namespace ipexrun::kernels {
namespace {

constexpr std::size_t kAlign = 64;

struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;

  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { clear(); }

  void clear() {
    std::free(data);
    data = nullptr;
    bytes = 0;
  }
};

thread_local Buffer buffer;

}  // namespace

void* thread_scratch(std::size_t bytes) {
  if (bytes <= buffer.bytes && buffer.data != nullptr) return buffer.data;
  buffer.clear();
  const std::size_t rounded = (bytes + kAlign) / kAlign * kAlign;
  if (rounded < bytes) return nullptr;
  buffer.data = std::aligned_alloc(kAlign, rounded);
  if (buffer.data != nullptr) buffer.bytes = rounded;
  return buffer.data;
}

void release_large_scratch() {
  if (buffer.bytes > kScratchKeepBytes) buffer.clear();
}

}  // namespace ipexrun::kernels
