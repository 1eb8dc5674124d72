// Risk: a forked child waits for a thread that it does not have, or a fork waits for ever.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "preload/select/fork_gate.h"
#include "tests/unit/select/fakes.h"

namespace ipexrun::preload {
namespace {

/// Time passes whenever somebody asks for it.
class PassingClock final : public Clock {
 public:
  std::int64_t now_ns() noexcept override { return now_ += kForkPatienceNs / 10; }
  std::int64_t thread_cpu_ns() noexcept override { return 0; }

 private:
  std::atomic<std::int64_t> now_{0};
};

TEST(ForkGate, calls_pass_while_nobody_forks) {
  ForkGate gate;
  const ForkGate::Passage one(gate);
  const ForkGate::Passage two(gate);
  EXPECT_TRUE(one);
  EXPECT_TRUE(two);
}

TEST(ForkGate, a_fork_waits_for_a_call_under_way) {
  testing::FakeClock clock;  // stands still: only the end of the call ends the wait
  ForkGate gate;
  std::atomic<bool> inside{false};
  std::atomic<bool> go_on{false};
  std::atomic<bool> finished{false};
  std::thread call([&] {
    const ForkGate::Passage passage(gate);
    inside = true;
    while (!go_on) std::this_thread::yield();
    finished = true;
  });
  while (!inside) std::this_thread::yield();
  std::thread helper([&] {
    // Closed is closed at once, for calls that come while the fork waits.
    for (bool passes = true; passes;) passes = static_cast<bool>(ForkGate::Passage(gate));
    go_on = true;
  });
  gate.close(clock);
  EXPECT_TRUE(finished);
  call.join();
  helper.join();
  EXPECT_FALSE(ForkGate::Passage(gate));
  gate.open_in_parent();
  EXPECT_TRUE(ForkGate::Passage(gate));
}

TEST(ForkGate, the_child_of_a_quiet_process_goes_on) {
  testing::FakeClock clock;
  ForkGate gate;
  gate.close(clock);
  gate.open_in_child();
  EXPECT_TRUE(ForkGate::Passage(gate));
}

TEST(ForkGate, after_a_wait_that_was_too_long_the_child_stays_stock_and_the_parent_goes_on) {
  PassingClock clock;
  ForkGate child;
  ForkGate parent;
  const ForkGate::Passage of_another_thread(child);
  child.close(clock);
  child.open_in_child();
  EXPECT_FALSE(ForkGate::Passage(child));
  const ForkGate::Passage slow(parent);
  parent.close(clock);
  parent.open_in_parent();
  EXPECT_TRUE(ForkGate::Passage(parent));
}

TEST(ForkGate, two_forks_at_a_time) {
  testing::FakeClock clock;
  ForkGate gate;
  gate.close(clock);
  gate.close(clock);
  gate.open_in_parent();
  EXPECT_FALSE(ForkGate::Passage(gate));
  gate.open_in_parent();
  EXPECT_TRUE(ForkGate::Passage(gate));
}

}  // namespace
}  // namespace ipexrun::preload
