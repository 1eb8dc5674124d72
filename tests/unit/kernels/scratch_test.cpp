// Risk covered: the destructor of a thread_local object of the program's computes after the thread's buffer was freed, and the kernel
// writes into memory that is somebody else's by then.
#include "kernels/scratch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace ipexrun::kernels {
namespace {

constexpr std::size_t kBytes = 512;

bool apart = false;

/// Made before the thread's buffer, so it ends after that.
struct EndsLast {
  EndsLast() = default;
  EndsLast(const EndsLast&) = delete;
  EndsLast& operator=(const EndsLast&) = delete;
  ~EndsLast() {
    std::vector<void*> taken;  // what was freed is given out again
    for (int i = 0; i < 64; ++i) taken.push_back(std::calloc(1, kBytes + 64));
    void* scratch = thread_scratch(kBytes);
    apart = scratch != nullptr;
    for (void* one : taken) apart = apart && one != scratch;
    if (apart) std::memset(scratch, 1, kBytes);
    release_large_scratch();
    for (void* one : taken) std::free(one);
  }
  int made = 0;
};

TEST(Scratch, serves_destructors_that_run_after_its_own) {
  std::thread([] {
    static thread_local EndsLast last;
    last.made = 1;
    ASSERT_NE(thread_scratch(kBytes), nullptr);
  }).join();
  EXPECT_TRUE(apart);
}

TEST(Scratch, keeps_what_fits) {
  void* const first = thread_scratch(kBytes);
  release_large_scratch();
  EXPECT_EQ(thread_scratch(kBytes / 2), first);
  ASSERT_NE(thread_scratch(kScratchKeepBytes + 1), nullptr);
  release_large_scratch();
}

}  // namespace
}  // namespace ipexrun::kernels
