// Which GPUs and tiles an instance of `ipexrun xpu` gets, and which it sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "launcher/plan/devices.h"
#include "launcher/plan/planner.h"
#include "launcher/plan/show.h"
#include "tests/unit/launcher/devices_made_up.h"

namespace ipexrun::launcher {
namespace {

using made_up::cores;
using made_up::desktop;
using made_up::env_of;
using made_up::error_of;
using made_up::four_cards;
using made_up::gpu;
using made_up::masks;
using made_up::plan_of;
using made_up::with;
using made_up::xpu;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

TEST(DevicesPlan, one_instance_sees_everything_and_nothing_is_set) {
  const auto plan = plan_of(xpu(), four_cards());
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_THAT(cores(*plan), ElementsAre("0-15"));
  EXPECT_THAT(plan->instances[0].devices, SizeIs(8));
  for (const char* name : {"ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY", "ZE_ENABLE_PCI_ID_DEVICE_ORDER", "ONEAPI_DEVICE_SELECTOR"})
    EXPECT_EQ(env_of(*plan, 0, name), "-") << name;
}

TEST(DevicesPlan, with_opencl_off_it_launches_only) {
  Options options = xpu();
  options.opencl = "off";
  const auto plan = plan_of(options, four_cards());
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_EQ(env_of(*plan, 0, "LD_PRELOAD"), "-");
  EXPECT_EQ(env_of(*plan, 0, "IPEXRUN_XPU_START"), "-");
  EXPECT_TRUE(made_up::has_reason(*plan, "preload", "launch only"));
}

TEST(DevicesPlan, a_report_asks_the_device_for_times) {
  Options options = xpu();
  options.report = true;
  const auto with = plan_of(options, four_cards());
  ASSERT_TRUE(with.ok()) << error_of(with);
  EXPECT_EQ(env_of(*with, 0, "IPEXRUN_XPU_REPORT"), "1");
  const auto without = plan_of(xpu(), four_cards());
  ASSERT_TRUE(without.ok()) << error_of(without);
  EXPECT_EQ(env_of(*without, 0, "IPEXRUN_XPU_REPORT"), "-");
}

TEST(DevicesPlan, any_device_of_opencl_needs_no_gpu) {
  Options options = xpu();
  options.opencl = "any";
  Machine machine = four_cards();
  machine.gpus.clear();
  const auto plan = plan_of(options, machine);
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_THAT(cores(*plan), ElementsAre("0-15"));
  EXPECT_EQ(env_of(*plan, 0, "ZE_AFFINITY_MASK"), "-");
}

TEST(DevicesPlan, one_a_tile_on_the_cores_of_its_node) {
  Options options = xpu();
  options.one_per_tile = true;
  const auto plan = plan_of(options, four_cards());
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_THAT(masks(*plan), ElementsAre("0", "1", "2", "3", "4", "5", "6", "7"));
  EXPECT_THAT(cores(*plan), ElementsAre("0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"));
  EXPECT_THAT(plan->instances[7].numa_nodes, ElementsAre(1));
  EXPECT_EQ(plan->instances[7].memory_policy, MemoryPolicy::kBind);
  EXPECT_EQ(env_of(*plan, 3, "ZE_FLAT_DEVICE_HIERARCHY"), "FLAT");
  EXPECT_EQ(env_of(*plan, 3, "ZE_ENABLE_PCI_ID_DEVICE_ORDER"), "1");
  EXPECT_EQ(env_of(*plan, 3, "ONEAPI_DEVICE_SELECTOR"), "level_zero:gpu");
  EXPECT_EQ(plan->instances[3].devices[0].device, 1);
  EXPECT_EQ(plan->instances[3].devices[0].tile, 1);
  EXPECT_EQ(plan->instances[3].devices[0].address, "0000:3a:00.0");
}

TEST(DevicesPlan, composite_names_tiles_below_their_gpu) {
  Options options = xpu();
  options.one_per_tile = true;
  options.device_hierarchy = "composite";
  const auto plan = plan_of(options, four_cards());
  EXPECT_THAT(masks(*plan), ElementsAre("0.0", "0.1", "1.0", "1.1", "2.0", "2.1", "3.0", "3.1"));
  EXPECT_EQ(env_of(*plan, 0, "ZE_FLAT_DEVICE_HIERARCHY"), "COMPOSITE");
}

TEST(DevicesPlan, combined_numbers_as_flat_does) {
  Options options = xpu();
  options.one_per_device = true;
  options.device_hierarchy = "combined";
  const auto plan = plan_of(options, four_cards());
  EXPECT_THAT(masks(*plan), ElementsAre("0,1", "2,3", "4,5", "6,7"));
  EXPECT_EQ(env_of(*plan, 0, "ZE_FLAT_DEVICE_HIERARCHY"), "COMBINED");
}

TEST(DevicesPlan, one_a_device) {
  Options options = xpu();
  options.one_per_device = true;
  options.device_hierarchy = "composite";
  const auto plan = plan_of(options, four_cards());
  EXPECT_THAT(masks(*plan), ElementsAre("0", "1", "2", "3"));
  EXPECT_THAT(cores(*plan), ElementsAre("0-3", "4-7", "8-11", "12-15"));
}

TEST(DevicesPlan, a_number_of_instances_shares_out_whole_gpus_as_long_as_there_are_enough) {
  Options options = xpu();
  options.ninstances = 2;
  const auto two = plan_of(options, four_cards());
  EXPECT_THAT(masks(*two), ElementsAre("0,1,2,3", "4,5,6,7"));
  EXPECT_THAT(cores(*two), ElementsAre("0-7", "8-15"));
  options.ninstances = 3;
  const auto three = plan_of(options, four_cards());
  EXPECT_THAT(masks(*three), ElementsAre("0,1", "2,3", "4,5"));
  EXPECT_TRUE(made_up::has_reason(*three, "instances", "1 GPU used by none"));
  options.ninstances = 6;
  EXPECT_THAT(masks(*plan_of(options, four_cards())), ElementsAre("0", "1", "2", "3", "4", "5"));
  options.ninstances = 9;
  const auto many = plan_of(options, four_cards());
  EXPECT_THAT(error_of(many), HasSubstr("--ninstances 9: there are 8 tiles"));
  EXPECT_EQ(many.error().code, kExitUsage);
}

TEST(DevicesPlan, auto_means_one_a_tile) {
  Options options = xpu();
  options.ninstances_auto = true;
  EXPECT_THAT(plan_of(options, four_cards())->instances, SizeIs(8));
}

TEST(DevicesPlan, chosen_devices_and_tiles) {
  Options options = xpu();
  options.devices = {1, 3};
  const auto devices = plan_of(options, four_cards());
  EXPECT_THAT(masks(*devices), ElementsAre("2,3,6,7"));
  EXPECT_THAT(cores(*devices), ElementsAre("0-15"));
  options.devices = {3};
  EXPECT_THAT(cores(*plan_of(options, four_cards())), ElementsAre("8-15"));
  options.tiles = {1};
  const auto tile = plan_of(options, four_cards());
  EXPECT_THAT(masks(*tile), ElementsAre("7"));
  options.devices = {};
  options.one_per_tile = true;
  EXPECT_THAT(masks(*plan_of(options, four_cards())), ElementsAre("1", "3", "5", "7"));
}

TEST(DevicesPlan, what_is_not_there_is_one_clear_line) {
  Options options = xpu();
  options.devices = {4};
  EXPECT_THAT(error_of(plan_of(options, four_cards())), HasSubstr("--devices 4: this machine has 4 Intel GPUs"));
  options.devices = {0};
  options.tiles = {2};
  EXPECT_THAT(error_of(plan_of(options, four_cards())), HasSubstr("--tiles 2: no GPU that is used has such a tile"));
}

TEST(DevicesPlan, no_gpu_is_a_usage_error) {
  const auto plan = plan_of(xpu(), made_up::machine({4}));
  EXPECT_THAT(error_of(plan), HasSubstr("no Intel GPU"));
  EXPECT_EQ(plan.error().code, kExitUsage);
}

TEST(DevicesPlan, unusable_gpus_are_said_and_not_counted) {
  Machine machine = with(made_up::machine({4}), {gpu("0000:ab:00.0", 0, 1), gpu("0000:ac:00.0", 0, 1)});
  machine.gpus[0].problem = "/dev/dri/renderD128: Permission denied";
  Options options = xpu();
  options.one_per_tile = true;
  const auto plan = plan_of(options, machine);
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_THAT(masks(*plan), ElementsAre("0"));  // the driver does not see the other one
  EXPECT_EQ(plan->instances[0].devices[0].device, 1);
  EXPECT_TRUE(made_up::has_warning(*plan, "GPU 0 (0000:ab:00.0) cannot be used: /dev/dri/renderD128: Permission denied"));
  options.one_per_tile = false;
  options.devices = {0};
  EXPECT_THAT(error_of(plan_of(options, machine)), HasSubstr("--devices 0 (0000:ab:00.0): /dev/dri/renderD128: Permission denied"));
  machine.gpus[1].problem = "no driver is bound to it";
  options.devices = {};
  EXPECT_THAT(error_of(plan_of(options, machine)), HasSubstr("none of 2 Intel GPUs can be used; GPU 0 (0000:ab:00.0): /dev/dri"));
}

TEST(DevicesPlan, an_integrated_gpu_is_left_out_beside_a_card_but_counts_in_the_mask) {
  Options options = xpu();
  options.one_per_device = true;
  const auto plan = plan_of(options, desktop());
  EXPECT_THAT(masks(*plan), ElementsAre("1"));  // by PCI order the integrated one is 0
  EXPECT_EQ(env_of(*plan, 0, "ZE_ENABLE_PCI_ID_DEVICE_ORDER"), "1");
  options.devices = {1};
  EXPECT_THAT(masks(*plan_of(options, desktop())), ElementsAre("0"));
  options.devices = {0, 1};
  EXPECT_THAT(masks(*plan_of(options, desktop())), ElementsAre("1", "0"));
}

TEST(DevicesPlan, an_integrated_gpu_alone_is_used) {
  Machine machine = with(made_up::machine({6}), {gpu("0000:00:02.0", -1, 1)});
  machine.gpus[0].integrated = true;
  const auto plan = plan_of(xpu(), machine);
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_THAT(cores(*plan), ElementsAre("0-5"));
  EXPECT_TRUE(made_up::has_reason(*plan, "cores", "does not say"));
}

// ---- a mask that is there already ----

TEST(DevicesPlan, an_own_mask_is_left_alone_by_one_instance) {
  const auto plan = plan_of(xpu(), four_cards(), {{"ZE_AFFINITY_MASK", "6,7"}});
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_THAT(masks(*plan), ElementsAre("-"));
  EXPECT_THAT(plan->instances[0].devices, SizeIs(2));
  EXPECT_THAT(cores(*plan), ElementsAre("8-15"));
}

TEST(DevicesPlan, an_own_mask_bounds_what_is_given_out) {
  Options options = xpu();
  options.one_per_tile = true;
  const auto flat = plan_of(options, four_cards(), {{"ZE_AFFINITY_MASK", "1, 6"}});
  EXPECT_THAT(masks(*flat), ElementsAre("1", "6"));
  EXPECT_THAT(cores(*flat), ElementsAre("0-7", "8-15"));
  EXPECT_EQ(env_of(*flat, 0, "ZE_ENABLE_PCI_ID_DEVICE_ORDER"), "-");  // the numbers keep the meaning they had
  const auto composite = plan_of(options, four_cards(), {{"ZE_AFFINITY_MASK", "1,3.1"}, {"ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"}});
  EXPECT_THAT(masks(*composite), ElementsAre("1.0", "1.1", "3.1"));
  EXPECT_EQ(env_of(*composite, 0, "ZE_FLAT_DEVICE_HIERARCHY"), "-");
  options.one_per_tile = false;
  options.devices = {0};
  EXPECT_THAT(error_of(plan_of(options, four_cards(), {{"ZE_AFFINITY_MASK", "6"}})),
              HasSubstr("ZE_AFFINITY_MASK=6 of the environment hides it"));
  options.devices = {3};
  EXPECT_THAT(masks(*plan_of(options, four_cards(), {{"ZE_AFFINITY_MASK", "0,6"}})), ElementsAre("6"));
}

TEST(DevicesPlan, an_own_mask_counts_discrete_gpus_first_unless_bus_order_is_asked_for) {
  const auto by_kind = plan_of(xpu(), desktop(), {{"ZE_AFFINITY_MASK", "0"}});
  EXPECT_EQ(by_kind->instances[0].devices[0].address, "0000:03:00.0");
  Options options = xpu();
  options.devices = {1};
  const auto by_bus = plan_of(options, desktop(), {{"ZE_AFFINITY_MASK", "0"}, {"ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1"}});
  ASSERT_TRUE(by_bus.ok()) << error_of(by_bus);
  EXPECT_EQ(by_bus->instances[0].devices[0].address, "0000:00:02.0");
}

TEST(DevicesPlan, a_mask_that_selects_nothing_is_said) {
  const auto plan = plan_of(xpu(), four_cards(), {{"ZE_AFFINITY_MASK", "0.0,0.1"}});
  EXPECT_THAT(error_of(plan), HasSubstr("ZE_AFFINITY_MASK=0.0,0.1 of the environment selects no GPU (ZE_FLAT_DEVICE_HIERARCHY is FLAT)"));
  EXPECT_THAT(error_of(plan), HasSubstr("COMPOSITE"));
  for (const char* nothing : {"99", "abc", ",", "-1", "1.", "0x1"})
    EXPECT_FALSE(plan_of(xpu(), four_cards(), {{"ZE_AFFINITY_MASK", nothing}}).ok()) << nothing;
  for (const char* none : {"", "default"}) EXPECT_TRUE(plan_of(xpu(), four_cards(), {{"ZE_AFFINITY_MASK", none}}).ok()) << none;
  // GPUs of one tile are devices by themselves, and 0.0 is their only tile.
  EXPECT_TRUE(plan_of(xpu(), desktop(), {{"ZE_AFFINITY_MASK", "0.0"}}).ok());
}

TEST(DevicesPlan, the_environments_hierarchy_is_kept_and_an_option_beats_it) {
  Options options = xpu();
  options.one_per_device = true;
  const std::map<std::string, std::string> env = {{"ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"}};
  const auto kept = plan_of(options, four_cards(), env);
  EXPECT_THAT(masks(*kept), ElementsAre("0", "1", "2", "3"));
  options.device_hierarchy = "flat";
  const auto replaced = plan_of(options, four_cards(), env);
  EXPECT_THAT(masks(*replaced), ElementsAre("0,1", "2,3", "4,5", "6,7"));
  EXPECT_TRUE(made_up::has_warning(*replaced, "--device-hierarchy replaces ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE"));
}

TEST(DevicesPlan, an_own_selector_is_kept) {
  Options options = xpu();
  options.one_per_tile = true;
  const auto plan = plan_of(options, four_cards(), {{"ONEAPI_DEVICE_SELECTOR", "level_zero:1"}});
  EXPECT_EQ(env_of(*plan, 0, "ONEAPI_DEVICE_SELECTOR"), "-");
  EXPECT_TRUE(made_up::has_warning(*plan, "its numbers count what each instance sees"));
}

TEST(DevicesPlan, the_configs_environment_beats_ours) {
  Options options = xpu();
  options.one_per_device = true;
  options.env = {{"ONEAPI_DEVICE_SELECTOR", "opencl:gpu"}};
  EXPECT_EQ(env_of(*plan_of(options, four_cards()), 0, "ONEAPI_DEVICE_SELECTOR"), "opencl:gpu");
}

// ---- ranks of another launcher ----

TEST(DevicesPlan, ranks_take_their_own_device_and_hide_nothing) {
  std::vector<Reason> reasons;
  const auto slots = devices_of_ranks(xpu(), four_cards(), {}, 6, reasons);
  ASSERT_TRUE(slots.ok());
  ASSERT_THAT(*slots, SizeIs(6));
  EXPECT_EQ(devices_text((*slots)[0].tiles, four_cards()), "0.0");
  EXPECT_EQ(devices_text((*slots)[5].tiles, four_cards()), "2.1");
  EXPECT_THAT((*slots)[5].nodes, ElementsAre(1));
  EXPECT_THAT((*slots)[5].env, IsEmpty());
  const auto composite = devices_of_ranks(xpu(), four_cards(), {{"ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"}}, 4, reasons);
  EXPECT_EQ(devices_text((*composite)[3].tiles, four_cards()), "3");
}

TEST(DevicesPlan, chosen_devices_hold_for_every_rank) {
  std::vector<Reason> reasons;
  Options options = xpu();
  options.devices = {2, 3};
  const auto slots = devices_of_ranks(options, four_cards(), {}, 4, reasons);
  ASSERT_TRUE(slots.ok());
  for (const DeviceSlot& slot : *slots) EXPECT_THAT(slot.env, testing::Contains(Pair("ZE_AFFINITY_MASK", "4,5,6,7")));
  EXPECT_EQ(devices_text((*slots)[1].tiles, four_cards()), "2.1");
}

TEST(DevicesPlan, the_hierarchy_holds_for_every_rank) {
  std::vector<Reason> reasons;
  Options options = xpu();
  options.device_hierarchy = "composite";
  const auto slots = devices_of_ranks(options, four_cards(), {}, 4, reasons);
  ASSERT_TRUE(slots.ok());
  EXPECT_EQ(devices_text((*slots)[3].tiles, four_cards()), "3");
  for (const DeviceSlot& slot : *slots) EXPECT_THAT(slot.env, ElementsAre(Pair("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE")));
  const auto replaced = devices_of_ranks(options, four_cards(), {{"ZE_FLAT_DEVICE_HIERARCHY", "FLAT"}}, 4, reasons);
  ASSERT_TRUE(replaced.ok());
  EXPECT_THAT((*replaced)[0].env, ElementsAre(Pair("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE")));
  EXPECT_TRUE(std::any_of(reasons.begin(), reasons.end(), [](const Reason& one) {
    return one.warn && one.text == "--device-hierarchy replaces ZE_FLAT_DEVICE_HIERARCHY=FLAT";
  }));
}

TEST(DevicesPlan, a_plan_of_ranks_has_near_cores_and_no_mask) {
  Options options = xpu();
  options.ninstances = 4;  // as rank_plan.cpp asks for the slices of a host
  options.slices_are_ranks = true;
  const auto plan = plan_of(options, four_cards());
  ASSERT_TRUE(plan.ok()) << error_of(plan);
  EXPECT_THAT(masks(*plan), ElementsAre("-", "-", "-", "-"));
  EXPECT_THAT(cores(*plan), ElementsAre("0-1", "2-3", "4-5", "6-7"));  // xpu:0 to xpu:3 are tiles of the first two GPUs
  options.ninstances = 8;
  EXPECT_THAT(cores(*plan_of(options, four_cards())), ElementsAre("0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"));
  options.one_per_tile = true;
  EXPECT_THAT(error_of(plan_of(options, four_cards())), HasSubstr("--one-per-tile inside a rank"));
}

// ---- output ----

TEST(DevicesPlan, json_and_table_name_the_devices) {
  Options options = xpu();
  options.one_per_tile = true;
  const auto plan = plan_of(options, four_cards());
  EXPECT_THAT(plan_json(*plan), HasSubstr("\"device\": 3"));
  EXPECT_THAT(plan_json(*plan), HasSubstr("\"address\": \"0000:ca:00.0\""));
  EXPECT_THAT(plan_table(*plan), HasSubstr("GPU tiles"));
  EXPECT_THAT(plan_json(*plan_of(made_up::options(), four_cards())), Not(HasSubstr("devices")));
  EXPECT_THAT(machine_text(four_cards()), HasSubstr("0000:9a:00.0  1"));
  EXPECT_THAT(machine_json(four_cards()), HasSubstr("\"tiles\": 2"));
  EXPECT_THAT(machine_text(made_up::machine({4})), Not(HasSubstr("GPU")));
}

TEST(DevicesPlan, devices_text_shortens_whole_gpus) {
  const Machine machine = four_cards();
  EXPECT_EQ(devices_text({{0, 0, ""}, {0, 1, ""}, {1, 0, ""}, {1, 1, ""}, {3, 1, ""}}, machine), "0-1,3.1");
}

}  // namespace
}  // namespace ipexrun::launcher
