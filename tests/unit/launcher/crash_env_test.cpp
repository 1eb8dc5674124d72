// --crash-report in the plan: one more library, and never in the stock side of a comparison.
#include <gtest/gtest.h>

#include "launcher/plan/planner.h"
#include "tests/unit/launcher/made_up.h"

namespace ipexrun::launcher {
namespace {

constexpr const char* kLibrary = "/opt/lib/ipexrun/libipexrun_crash.so";

std::string var(const LaunchPlan& plan, const std::string& name) {
  const auto& env = plan.instances.at(0).env;
  return env.count(name) == 0 ? "-" : env.at(name);
}

PlanContext context() {
  PlanContext out = made_up::context();
  out.crash_library = kLibrary;
  return out;
}

Options options() {
  Options out = made_up::options();
  out.crash_report = true;
  return out;
}

TEST(CrashEnv, the_library_comes_after_the_shim) {
  const LaunchPlan plan = make_plan(options(), made_up::machine({4}), context()).value();
  EXPECT_EQ(var(plan, "LD_PRELOAD"), std::string("/opt/lib/ipexrun/libipexrun_shim.so:") + kLibrary);
  EXPECT_EQ(var(plan, "IPEXRUN_PRELOAD"), var(plan, "LD_PRELOAD"));
  EXPECT_EQ(var(plan, "IPEXRUN_CRASH_REPORT"), "1");
}

TEST(CrashEnv, it_needs_no_shim) {
  Options wanted = options();
  wanted.optimize = false;
  const LaunchPlan plan = make_plan(wanted, made_up::machine({4}), context()).value();
  EXPECT_EQ(var(plan, "LD_PRELOAD"), kLibrary);
  EXPECT_EQ(var(plan, "IPEXRUN_LIB_DIR"), "/opt/lib/ipexrun");
}

TEST(CrashEnv, not_without_the_option) {
  const LaunchPlan plan = make_plan(made_up::options(), made_up::machine({4}), context()).value();
  EXPECT_EQ(var(plan, "LD_PRELOAD"), "/opt/lib/ipexrun/libipexrun_shim.so");
  EXPECT_EQ(var(plan, "IPEXRUN_CRASH_REPORT"), "-");
}

TEST(CrashEnv, stock_stays_stock) {
  const LaunchPlan plan = make_variant_plan("stock", options(), made_up::machine({4}), context()).value();
  EXPECT_EQ(var(plan, "LD_PRELOAD"), "/opt/lib/ipexrun/libipexrun_shim.so");
}

TEST(CrashEnv, one_that_an_outer_ipexrun_left_is_not_kept_twice) {
  PlanContext nested = context();
  nested.env = {{"LD_PRELOAD", std::string("/usr/lib/own.so:") + kLibrary}};
  EXPECT_EQ(var(make_plan(options(), made_up::machine({4}), nested).value(), "LD_PRELOAD"),
            std::string("/usr/lib/own.so:/opt/lib/ipexrun/libipexrun_shim.so:") + kLibrary);
}

TEST(CrashEnv, without_the_library_one_line_says_why) {
  PlanContext bare = made_up::context();
  bare.crash_problem = "'/x' does not exist";
  const LaunchPlan plan = make_plan(options(), made_up::machine({4}), bare).value();
  EXPECT_TRUE(made_up::has_warning(plan, "--crash-report has no effect: '/x' does not exist"));
  bare.crash_library = "/with space/libipexrun_crash.so";
  EXPECT_TRUE(made_up::has_warning(make_plan(options(), made_up::machine({4}), bare).value(), "has a space or a colon"));
}

}  // namespace
}  // namespace ipexrun::launcher
