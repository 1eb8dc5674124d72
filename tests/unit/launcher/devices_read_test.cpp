// Intel GPUs out of /sys: what each driver shows, what is not a GPU, and what cannot be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "launcher/machine/machine_devices.h"
#include "tests/unit/launcher/sys_tree.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class DevicesRead : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "ipexrun_gpus_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  [[nodiscard]] std::vector<Gpu> read(const std::string& machine) const {
    sys_tree::expand(std::filesystem::path(IPEXRUN_TEST_MACHINES) / "xpu" / (machine + ".txt"), root_);
    // A probe that tells what is there, whoever runs the test.
    return read_gpus(root_, [](const std::string& path) { return std::filesystem::exists(path) ? 0 : ENOENT; });
  }

  std::string root_;
};

template <typename Field>
auto each(const std::vector<Gpu>& gpus, Field Gpu::*field) {
  std::vector<Field> out;
  for (const Gpu& gpu : gpus) out.push_back(gpu.*field);
  return out;
}

TEST_F(DevicesRead, i915_has_a_gt_a_tile) {
  const auto gpus = read("max-1550-x4");
  EXPECT_THAT(each(gpus, &Gpu::address), ElementsAre("0000:1a:00.0", "0000:3a:00.0", "0000:9a:00.0", "0000:ca:00.0"));
  EXPECT_THAT(each(gpus, &Gpu::tiles), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(each(gpus, &Gpu::node), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(each(gpus, &Gpu::problem), ElementsAre("", "", "", ""));
  EXPECT_EQ(gpus[0].memory_bytes, 137438953472u);
  EXPECT_EQ(gpus[0].name, "Intel Data Center GPU Max (0x0bd5)");
  EXPECT_EQ(gpus[3].render_node, "/dev/dri/renderD131");
}

TEST_F(DevicesRead, xe_names_its_tiles) {
  const auto gpus = read("max-xe-snc");
  ASSERT_THAT(gpus, SizeIs(1));
  EXPECT_EQ(gpus[0].tiles, 2);
  EXPECT_EQ(gpus[0].driver, "xe");
  EXPECT_EQ(gpus[0].memory_bytes, 2 * 51539607552u);
}

TEST_F(DevicesRead, a_media_engine_is_no_tile) {
  const auto laptop = read("laptop-media-gt");
  ASSERT_THAT(laptop, SizeIs(1));
  EXPECT_EQ(laptop[0].tiles, 1);
  EXPECT_TRUE(laptop[0].integrated);
  EXPECT_EQ(laptop[0].node, -1);
}

TEST_F(DevicesRead, xe_with_a_media_engine_has_one_tile_and_other_vendors_are_left_out) {
  const auto gpus = read("battlemage-xe");
  EXPECT_THAT(each(gpus, &Gpu::tiles), ElementsAre(1, 1));
  EXPECT_THAT(each(gpus, &Gpu::address), ElementsAre("0000:04:00.0", "10000:04:00.0"));
  EXPECT_FALSE(gpus[1].integrated);
}

TEST_F(DevicesRead, discrete_ones_come_first) {
  const auto gpus = read("arc-and-integrated");
  EXPECT_THAT(each(gpus, &Gpu::address), ElementsAre("0000:03:00.0", "0000:00:02.0"));
  EXPECT_THAT(each(gpus, &Gpu::integrated), ElementsAre(false, true));
  EXPECT_THAT(each(gpus, &Gpu::index), ElementsAre(0, 1));
}

TEST_F(DevicesRead, a_discrete_gpu_of_a_virtual_machine_sits_on_bus_zero_too) {
  sys_tree::add_device(root_, "0000:00:05.0", {{"vendor", "0x8086"}, {"device", "0x56c0"}, {"class", "0x038000"}, {"numa_node", "-1"}});
  const auto gpus = read("none");
  ASSERT_THAT(gpus, SizeIs(1));
  EXPECT_FALSE(gpus[0].integrated);
}

TEST_F(DevicesRead, a_container_without_the_node_is_told_what_it_needs) {
  const auto gpus = read("container-with-one-node");
  ASSERT_THAT(gpus, SizeIs(2));
  EXPECT_THAT(gpus[0].problem, HasSubstr("/dev/dri/renderD128: No such file"));
  EXPECT_THAT(gpus[0].problem, HasSubstr("--device /dev/dri"));
  EXPECT_EQ(gpus[1].problem, "");
}

TEST_F(DevicesRead, a_node_that_may_not_be_opened_is_a_problem) {
  ASSERT_THAT(read("flex-170-x2"), SizeIs(2));
  const auto gpus = read_gpus(root_, [](const std::string& path) { return path.ends_with("128") ? EACCES : 0; });
  EXPECT_THAT(gpus[0].problem, HasSubstr("/dev/dri/renderD128: Permission denied"));
  EXPECT_THAT(gpus[0].problem, HasSubstr("render"));
  EXPECT_EQ(gpus[1].problem, "");
}

TEST_F(DevicesRead, the_real_probe_opens_the_node) {
  EXPECT_EQ(open_node("/dev/null"), 0);
  EXPECT_EQ(open_node(root_ + "/nothing"), ENOENT);
}

TEST_F(DevicesRead, other_drivers_and_none) {
  EXPECT_THAT(each(read("passed-through"), &Gpu::problem),
              ElementsAre("it is bound to 'vfio-pci', not to i915 or xe", "no driver is bound to it", "its driver shows no render node"));
}

TEST_F(DevicesRead, a_machine_without_any) { EXPECT_THAT(read("none"), IsEmpty()); }

TEST_F(DevicesRead, a_tree_without_anything) { EXPECT_THAT(read_gpus(root_), IsEmpty()); }

TEST_F(DevicesRead, a_recorded_machine_has_no_nodes_to_try) {
  ASSERT_THAT(read("flex-170-x2"), SizeIs(2));
  std::filesystem::remove_all(root_ + "/dev");
  const auto gpus = read_gpus(root_, [](const std::string&) { return ENOENT; });
  EXPECT_THAT(each(gpus, &Gpu::problem), ElementsAre("", ""));
}

TEST_F(DevicesRead, without_the_bus_the_cards_name_their_devices) {
  ASSERT_THAT(read("flex-170-x2"), SizeIs(2));
  for (const auto& [card, address] : {std::pair("card0", "0000:ab:00.0"), std::pair("card1", "0000:ac:00.0")}) {
    const std::string place = root_ + "/sys/class/drm/" + card;
    std::filesystem::remove(place);  // it is a link into the bus, which goes away
    std::filesystem::create_directories(place);
    std::filesystem::rename(root_ + "/sys/bus/pci/devices/" + address, place + "/device");
    sys_tree::write(place + "/device/uevent", std::string("DRIVER=i915\nPCI_SLOT_NAME=") + address);
  }
  std::filesystem::remove_all(root_ + "/sys/bus");
  EXPECT_THAT(each(read_gpus(root_, [](const std::string&) { return 0; }), &Gpu::address), ElementsAre("0000:ab:00.0", "0000:ac:00.0"));
}

TEST_F(DevicesRead, broken_files_are_no_gpu_or_an_unknown_place) {
  ASSERT_THAT(read("flex-170-x2"), SizeIs(2));
  const std::string bus = root_ + "/sys/bus/pci/devices/";
  sys_tree::write(bus + "0000:ab:00.0/vendor", "");
  sys_tree::write(bus + "0000:ac:00.0/numa_node", "garbage");
  sys_tree::write(bus + "0000:ac:00.0/device", "0xzz");
  const auto gpus = read_gpus(root_, [](const std::string&) { return 0; });
  ASSERT_THAT(gpus, SizeIs(1));
  EXPECT_EQ(gpus[0].node, -1);
  EXPECT_EQ(gpus[0].name, "Intel GPU (0xzz)");
}

}  // namespace
}  // namespace ipexrun::launcher
