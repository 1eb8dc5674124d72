#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "preload/memory/room.h"

namespace ipexrun::preload {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t mapped_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long pages = 0;
  if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1) std::exit(2);
  std::fclose(file);
  return static_cast<std::size_t>(pages) * 4096;
}

/// In a process of its own: a limit is not taken back for others.
[[noreturn]] void ask_with(std::size_t more, bool (*question)()) {
  const std::size_t most = mapped_bytes() + more;
  const rlimit limit{most, most};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
  std::exit(question() ? 1 : 0);
}

TEST(Room, AsMuchAsTheLimitLeaves) {
  EXPECT_TRUE(has_room(kMiB));
  EXPECT_EXIT(ask_with(100 * kMiB, [] { return has_room(80 * kMiB); }), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(ask_with(100 * kMiB, [] { return has_room(120 * kMiB); }), testing::ExitedWithCode(0), "");
}

TEST(Room, NoLimitNoQuestion) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  if (limit.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "the address space is limited here";
  errno = EDOM;
  EXPECT_TRUE(has_room(kMiB));
  EXPECT_EQ(errno, EDOM);
}

TEST(Room, AskingTakesNone) {
  EXPECT_EXIT(ask_with(100 * kMiB,
                       [] {
                         bool all = true;
                         for (int i = 0; i < 1000; ++i) all = has_room(80 * kMiB) && all;
                         return all;
                       }),
              testing::ExitedWithCode(1), "");
}

TEST(Room, APackNeedsCopiesAndKernels) {
  EXPECT_TRUE(has_room_for_pack(kMiB));
  EXPECT_EXIT(ask_with(100 * kMiB, [] { return has_room_for_pack(kMiB); }), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(ask_with(100 * kMiB, [] { return has_room_for_pack(20 * kMiB); }), testing::ExitedWithCode(0), "");
  EXPECT_FALSE(has_room_for_pack(std::numeric_limits<std::size_t>::max() / 2));
}

}  // namespace
}  // namespace ipexrun::preload
