#include "kernels/scratch.h"

#include <cstdlib>

namespace ipexrun::kernels {
namespace {

constexpr std::size_t kAlign = 64;

struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
  bool thread_ends = false;

  void clear() {
    std::free(data);
    data = nullptr;
    bytes = 0;
  }
};

constinit thread_local Buffer buffer;  // without a destructor: those of the program's own thread_local objects may compute after ours

struct End {
  ~End() {
    buffer.clear();
    buffer.thread_ends = true;
  }
};

}  // namespace

void* thread_scratch(std::size_t bytes) {
  if (bytes <= buffer.bytes && buffer.data != nullptr) return buffer.data;
  static thread_local const End end;
  buffer.clear();
  const std::size_t rounded = (bytes + kAlign) / kAlign * kAlign;
  if (rounded < bytes) return nullptr;
  buffer.data = std::aligned_alloc(kAlign, rounded);
  if (buffer.data != nullptr) buffer.bytes = rounded;
  return buffer.data;
}

void release_large_scratch() {
  if (buffer.bytes > kScratchKeepBytes || buffer.thread_ends) buffer.clear();
}

}  // namespace ipexrun::kernels
