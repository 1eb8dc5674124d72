// The risk: a plugin that is built into a folder that others can write to, a build that starts without its tools, or a promise that the
// CPU does not keep.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/run/gain.h"
#include "launcher/run/plugin_build.h"
#include "launcher/run/trial.h"
#include "launcher/run/user_folders.h"
#include "tests/unit/run/temp_folder.h"

namespace ipexrun::launcher {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(UserFolders, FollowTheEnvironment) {
  EXPECT_THAT(user_plugin_dir({{"HOME", "/home/a"}}), StartsWith("/home/a/.local/share/ipexrun/plugins/"));
  EXPECT_THAT(user_plugin_dir({{"HOME", "/home/a"}, {"XDG_DATA_HOME", "/d"}}), StartsWith("/d/ipexrun/plugins/"));
  EXPECT_THAT(user_plugin_dir({{"HOME", "/home/a"}, {"XDG_DATA_HOME", "relative"}}), StartsWith("/home/a/"));
  EXPECT_EQ(user_plugin_dir({{"HOME", "/home/a"}, {"IPEXRUN_PLUGIN_DIR", "/mine"}}), "/mine");
  EXPECT_EQ(user_plugin_dir({}), "");
  EXPECT_EQ(cache_dir({{"HOME", "/home/a"}}), "/home/a/.cache/ipexrun");
  EXPECT_EQ(cache_dir({{"HOME", "/home/a"}, {"XDG_CACHE_HOME", "/c"}}), "/c/ipexrun");
  EXPECT_EQ(cache_dir({{"HOME", "/home/a"}, {"IPEXRUN_CACHE", "/mine"}}), "/mine");
  EXPECT_EQ(cache_dir({{"HOME", "/home/a"}, {"IPEXRUN_CACHE", "off"}}), "");
}

TEST(UserFolders, AreMadePrivateAndRefusedWhenOthersMayWrite) {
  const TempFolder folder;
  const std::string deep = folder.path("a/b/c");
  ASSERT_TRUE(make_private_folder(deep).ok());
  struct stat info {};
  for (const char* part : {"a", "a/b", "a/b/c"}) {
    ASSERT_EQ(::stat(folder.path(part).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777u, 0700u) << part;
  }
  ASSERT_TRUE(make_private_folder(deep).ok()) << "a second time";
  EXPECT_EQ(folder_objection(deep), "");
  ::chmod(deep.c_str(), 0720);
  const Status open_to_a_group = make_private_folder(deep);
  ASSERT_FALSE(open_to_a_group.ok());
  EXPECT_EQ(open_to_a_group.error().code, kExitFailure);
  EXPECT_THAT(open_to_a_group.error().line(), HasSubstr("others may write to it"));
  EXPECT_FALSE(make_private_folder("relative/folder").ok());
  folder.write("file", "");
  EXPECT_FALSE(make_private_folder(folder.path("file")).ok());
  EXPECT_THAT(folder_objection(folder.path("file")), HasSubstr("not a folder"));
  if (::geteuid() == 0) {
    ASSERT_EQ(::chmod(deep.c_str(), 0700), 0);
    ASSERT_EQ(::chown(deep.c_str(), 12345, 12345), 0);
    EXPECT_THAT(make_private_folder(deep).error().line(), HasSubstr("another user"));
  }
}

TEST(UserFolders, AreDescribed) {
  const TempFolder folder;
  const FolderState missing = folder_state(folder.path("x/y"));
  EXPECT_TRUE(missing.usable);
  EXPECT_THAT(missing.text, HasSubstr("is made when it is needed"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("x"))) << "looking makes nothing";
  ASSERT_TRUE(make_private_folder(folder.path("x")).ok());
  EXPECT_THAT(folder_state(folder.path("x")).text, AllOf(HasSubstr("mode 700"), HasSubstr(", writable")));
  ::chmod(folder.path("x").c_str(), 0777);
  EXPECT_FALSE(folder_state(folder.path("x")).usable);
  EXPECT_THAT(folder_state(folder.path("x")).text, HasSubstr("others may write"));
}

TEST(PluginBuild, TheCommandsNameTreeTargetAndJobs) {
  const BuildTools tools{"/usr/bin/cmake", "Ninja", 3};
  EXPECT_THAT(configure_command(tools, "/src", "/tree"), AllOf(Contains("/src"), Contains("/tree"), Contains("-DIPEXRUN_LAUNCHER=OFF")));
  const auto build = build_command(tools, "/tree");
  EXPECT_THAT(build, AllOf(Contains("ipexrun_plugin"), Contains("3")));
}

TEST(PluginBuild, SaysWhichToolsAreMissing) {
  const TempFolder folder;
  const auto none = find_build_tools({{"PATH", folder.path()}}, 1);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, kExitFailure);
  EXPECT_THAT(none.error().line(), HasSubstr("not in PATH: cmake, ninja or make, a C++ compiler, a C compiler"));
  for (const char* name : {"cmake", "make", "my-cxx", "cc"}) folder.write(name, "#!/bin/sh\n", true);
  EXPECT_THAT(find_build_tools({{"PATH", folder.path()}}, 1).error().line(),
              AllOf(HasSubstr(": a C++ compiler"), Not(HasSubstr("a C comp"))));
  const auto tools = find_build_tools({{"PATH", folder.path()}, {"CXX", "my-cxx -O2"}}, 2);
  ASSERT_TRUE(tools.ok());
  EXPECT_EQ(tools->generator, "Unix Makefiles");
  EXPECT_EQ(tools->cmake, folder.path("cmake"));
  folder.write("ninja", "#!/bin/sh\n", true);
  EXPECT_EQ(find_build_tools({{"PATH", folder.path()}, {"CXX", "my-cxx -O2"}}, 2)->generator, "Ninja");
}

TEST(PluginBuild, WithoutSourcesNothingIsTried) {
  const TempFolder folder;
  EXPECT_EQ(find_sources(""), "");
  EXPECT_EQ(find_sources(folder.path("lib/ipexrun")), "");
  PythonFacts python;
  python.torch_version = "2.13.0";
  const auto built = build_plugin(python, folder.path("lib/ipexrun"), folder.path("plugins"), 1);
  ASSERT_FALSE(built.ok());
  EXPECT_THAT(built.error().line(), HasSubstr("share/ipexrun/src"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("plugins")));
  folder.write("share/ipexrun/src/preload/plugin/CMakeLists.txt", "");
  std::filesystem::create_directories(folder.path("lib/x86_64-linux-gnu/ipexrun"));
  std::filesystem::create_directories(folder.path("lib/ipexrun"));
  EXPECT_THAT(find_sources(folder.path("lib/ipexrun")), EndsWith("share/ipexrun/src"));
  EXPECT_THAT(find_sources(folder.path("lib/x86_64-linux-gnu/ipexrun")), EndsWith("share/ipexrun/src"));
}

TEST(PluginBuild, JobsFitProcessorsQuotaAndMemory) {
  EXPECT_EQ(build_jobs(8, 0, 0), 8);
  EXPECT_EQ(build_jobs(8, 2.5, 0), 2);
  EXPECT_EQ(build_jobs(8, 0, 4'500'000'000), 3);
  EXPECT_EQ(build_jobs(8, 0.5, 100), 1);
  EXPECT_EQ(build_jobs(0, 0, 0), 1);
}

TEST(PluginBuild, ProgressIsReadFromTheOutput) {
  EXPECT_EQ(build_progress("[1/9] Building\n[2/9] Building CXX object a.o\n"), "2 of 9");
  EXPECT_EQ(build_progress("[ 35%] Building CXX object a[0].o\n"), "35%");
  EXPECT_EQ(build_progress("-- Configuring done\nwarning: x[3/4]\n"), "");
  EXPECT_EQ(build_progress("[1/9] Building\n[2/"), "1 of 9");
  EXPECT_EQ(build_progress(""), "");
}

TEST(Trial, TheLevelIsThatOfThePlugin) {
  Trial trial;
  EXPECT_EQ(trial.isa(), "");
  trial.process = "torch 2.13.0, amx, 2 threads";
  EXPECT_EQ(trial.isa(), "amx");
}

TEST(Gain, NothingIsPromisedThatTheCpuLacks) {
  EXPECT_THAT(bf16_text(kLevelAmx), HasSubstr("AMX"));
  EXPECT_THAT(bf16_text(kLevelAvx512Bf16), HasSubstr("AVX512-BF16"));
  EXPECT_THAT(bf16_text(kLevelAvx512), HasSubstr("--dtype auto stays float32"));
  EXPECT_THAT(gain_paragraph(kLevelAvx512, Machine{}), AllOf(HasSubstr("no bf16"), Not(HasSubstr("NUMA"))));
  Machine machine;
  machine.nodes.resize(2);
  EXPECT_THAT(gain_paragraph(kLevelAmx, machine), AllOf(HasSubstr("AMX"), HasSubstr("2 NUMA nodes")));
}

}  // namespace
}  // namespace ipexrun::launcher
