#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/run/allocators.h"
#include "launcher/run/library_search.h"
#include "launcher/run/system_facts.h"
#include "launcher/run/torch_probe.h"
#include "tests/unit/run/elf_images.h"
#include "tests/unit/run/temp_folder.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(FindLibraries, TakesAnyVersionTheNewestFirst) {
  const TempFolder folder;
  for (const char* name : {"libx.so.2", "libx.so.10", "libx.so", "libxy.so.1", "libx.so.2-gdb.py", "libx.a"})
    folder.write(name, library_image());
  EXPECT_THAT(find_libraries("x", {folder.path()}),
              ElementsAre(folder.path("libx.so.10"), folder.path("libx.so.2"), folder.path("libx.so")));
}

TEST(FindLibraries, LeavesOutWhatIsNoLibraryOfThisMachine) {
  const TempFolder folder;
  folder.write("libx.so", "INPUT(libx.so.1)");  // a linker script
  ElfImage foreign;
  foreign.machine = EM_S390;
  folder.write("libx.so.1", foreign.bytes());
  EXPECT_THAT(find_libraries("x", {folder.path(), folder.path("missing")}), IsEmpty());
}

TEST(FindLibraries, KeepsTheOrderOfFoldersAndDropsLinksToTheSameFile) {
  const TempFolder folder;
  const std::string first = folder.write("a/libx.so.1", library_image());
  std::filesystem::create_symlink(folder.path("a"), folder.path("alias"));
  const std::string second = folder.write("b/libx.so.7", library_image());
  EXPECT_THAT(find_libraries("x", {folder.path("a"), folder.path("alias"), folder.path("b")}), ElementsAre(first, second));
}

TEST(LibraryFolders, SearchesThePythonAndEnvironmentsBeforeTheSystem) {
  const auto folders = library_folders({{"VIRTUAL_ENV", "/v"}, {"CONDA_PREFIX", "/c"}, {"HOME", "/h"}}, "/p/bin/python");
  ASSERT_GE(folders.size(), 6u);
  EXPECT_THAT(std::vector<std::string>(folders.begin(), folders.begin() + 6),
              ElementsAre("/p/lib", "/p/lib64", "/v/lib", "/c/lib", "/h/.local/lib", "/usr/local/lib"));
}

TEST(LibraryFolders, FindsAnAllocatorWhereItsInstallerPutsIt) {
  const std::string multiarch = kMultiarch;
  const std::map<std::string, std::string> places = {{"pip and conda", "env/lib/libjemalloc.so.2"},
                                                     {"a lib64 below the prefix", "env/lib64/libtcmalloc_minimal.so.4.5.9"},
                                                     {"Debian", "usr/lib/" + multiarch + "/libmimalloc.so.2.0"},
                                                     {"make install", "usr/local/lib/libtcmalloc.so.4"},
                                                     {"make install, 64", "usr/local/lib64/libjemalloc.so"},
                                                     {"other distributions", "usr/lib64/libmimalloc.so.2"},
                                                     {"a module system", "modules/jemalloc/lib/libjemalloc.so.2"}};
  for (const auto& [who, place] : places) {
    const TempFolder folder;
    const std::string file = folder.write(place, library_image());
    const std::string name = std::filesystem::path(place).filename().string();
    const std::string stem = name.substr(3, name.find(".so") - 3);
    const auto folders =
        library_folders({{"LD_LIBRARY_PATH", ":" + folder.path("modules/jemalloc/lib")}}, folder.path("env/bin/python"), folder.path());
    EXPECT_THAT(find_libraries(stem, folders), testing::Contains(file)) << who;
  }
}

TEST(LibraryFolders, OfOpenMpRuntimesIncludeCompilersTheNewestFirst) {
  const TempFolder folder;
  const std::string debian = folder.write("usr/lib/llvm-9/lib/libomp.so.5", library_image());
  const std::string newer = folder.write("usr/lib/llvm-14/lib/libomp.so.5", library_image());
  const std::string intel = folder.write("opt/intel/oneapi/compiler/2025.1/lib/libiomp5.so", library_image());
  const auto folders = omp_library_folders({}, "", folder.path());
  EXPECT_THAT(find_libraries("omp", folders), ElementsAre(newer, debian));
  EXPECT_THAT(find_libraries("iomp5", folders), ElementsAre(intel));
}

TEST(LibraryFolders, IgnoresRelativeAndEmptyPrefixes) {
  for (const std::string& folder : library_folders({{"VIRTUAL_ENV", "v"}, {"CONDA_PREFIX", ""}}, ""))
    EXPECT_EQ(folder.front(), '/') << folder;
}

TEST(ChooseAllocator, SaysWhereItLookedAndWhichPackageBringsIt) {
  const TempFolder folder;
  const auto missing = choose_allocator("jemalloc", {folder.path()});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, kExitUsage);
  EXPECT_THAT(missing.error().line(), HasSubstr("libjemalloc2"));
  EXPECT_THAT(missing.error().line(), HasSubstr(folder.path()));
}

TEST(ChooseAllocator, RefusesAnUnknownNameAndKeepsTheDefault) {
  EXPECT_EQ(choose_allocator("hoard", {}).error().code, kExitUsage);
  EXPECT_EQ(choose_allocator("default", {})->path, "");
  EXPECT_EQ(choose_allocator("auto", {})->name, "default");
}

TEST(ChooseOmpRuntime, IntelMustBeThere) {
  const TempFolder folder;
  EXPECT_EQ(choose_omp_runtime("auto", {})->path, "");
  EXPECT_THAT(choose_omp_runtime("intel", {folder.path()}).error().line(), HasSubstr("intel-openmp"));
  EXPECT_THAT(choose_omp_runtime("llvm", {folder.path()}).error().line(), HasSubstr("libomp5"));
  EXPECT_EQ(choose_omp_runtime("gnu", {}).error().code, kExitUsage);
}

/// What cannot be preloaded is refused before anything is tried: no child is started here.
TEST(GivenByPath, WhatCannotBePreloadedIsRefusedInOneLine) {
  const TempFolder folder;
  ElfImage foreign;
  foreign.machine = EM_S390;
  ElfImage small;
  small.elf_class = ELFCLASS32;
  const std::string open_to_all = folder.write("open/libjemalloc.so.2", library_image());
  std::filesystem::permissions(open_to_all, std::filesystem::perms(0777));
  const std::map<std::string, std::string> cases = {{folder.path("missing/libjemalloc.so.2"), ""},
                                                    {folder.write("with a blank/libjemalloc.so.2", library_image()), "blank"},
                                                    {folder.write("foreign/libjemalloc.so.2", foreign.bytes()), ""},
                                                    {folder.write("small/libjemalloc.so.2", small.bytes()), ""},
                                                    {folder.write("text/libjemalloc.so.2", "INPUT(x)"), ""},
                                                    {open_to_all, "writ"}};
  for (const auto& [path, word] : cases) {
    const auto allocator = choose_allocator(path, {});
    ASSERT_FALSE(allocator.ok()) << path;
    EXPECT_EQ(allocator.error().code, kExitUsage);
    EXPECT_THAT(allocator.error().line(), testing::AllOf(HasSubstr(path), HasSubstr(word), testing::Not(HasSubstr("\n"))));
  }
  EXPECT_THAT(choose_omp_runtime(folder.write("libother.so", library_image()), {}).error().line(), HasSubstr("no OpenMP runtime"));
  EXPECT_EQ(choose_omp_runtime(folder.path("gone/libomp.so"), {}).error().code, kExitUsage);
}

TEST(Plugins, AreKnownByTheirFileNames) {
  const TempFolder folder;
  for (const char* name : {"libipexrun_plugin_torch2_9.so", "libipexrun_plugin_torch2_13.so", "libipexrun_plugin_torchX.so", "other.so"}) {
    folder.write(std::string("plugins/") + name, "");
  }
  EXPECT_THAT(plugin_versions(folder.path("plugins")), ElementsAre("2.9", "2.13"));
  EXPECT_THAT(plugin_versions(folder.path("missing")), IsEmpty());
  EXPECT_EQ(plugin_file("2.13"), "libipexrun_plugin_torch2_13.so");
}

TEST(MinorVersion, CutsPatchAndLocalSuffix) {
  EXPECT_EQ(minor_version("2.13.0+cpu"), "2.13");
  EXPECT_EQ(minor_version("2.14a0+git1234"), "2.14");
  EXPECT_EQ(minor_version("2"), "");
  EXPECT_EQ(minor_version(""), "");
  EXPECT_EQ(minor_version("x.1"), "");
}

TEST(SystemFacts, AreReadBelowTheSysroot) {
  const TempFolder folder;
  folder.write("etc/os-release", "NAME=\"X\"\nPRETTY_NAME=\"Some Linux 1\"\n");
  folder.write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n");
  folder.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  folder.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  folder.write("proc/self/status", "Name:\tx\nSeccomp:\t2\n");
  folder.write(".dockerenv", "");
  const SystemFacts facts = read_system_facts(folder.path());
  EXPECT_EQ(facts.os, "Some Linux 1");
  EXPECT_EQ(facts.memory_total, "16.0 GiB");
  EXPECT_EQ(facts.memory_free, "8.0 GiB");
  EXPECT_EQ(facts.huge_pages, "madvise");
  EXPECT_EQ(facts.governor, "powersave");
  EXPECT_EQ(facts.seccomp, "filter");
  EXPECT_EQ(facts.container, "docker");
}

TEST(SystemFacts, WhatIsMissingIsEmpty) {
  const TempFolder folder;
  const SystemFacts facts = read_system_facts(folder.path());
  EXPECT_EQ(facts.os + facts.memory_total + facts.huge_pages + facts.governor + facts.seccomp + facts.container, "");
}

}  // namespace
}  // namespace ipexrun::launcher
