// Which OpenMP runtime a program will load, and which ones it has loaded: from made-up folders and a made-up /proc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/run/omp_runtime.h"
#include "launcher/run/omp_watch.h"
#include "launcher/run/summary.h"
#include "launcher/run/torch_probe.h"
#include "tests/unit/run/elf_images.h"
#include "tests/unit/run/temp_folder.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string image(const std::vector<std::string>& needed, const std::string& runpath = "", const std::string& rpath = "") {
  return LinkedImage{needed, runpath, rpath}.bytes();
}

TEST(OmpFamily, IsKnownByTheFileName) {
  for (const char* name : {"libgomp.so.1", "/x/libgomp-a34b3233.so.1", "libgomp-e985bcbb.so.1.0.0"})
    EXPECT_EQ(omp_family_of(name), OmpFamily::kGnu) << name;
  EXPECT_EQ(omp_family_of("/opt/libiomp5.so"), OmpFamily::kIntel);
  for (const char* name : {"libomp.so", "libomp.so.5", "libomp-14.so.5"}) EXPECT_EQ(omp_family_of(name), OmpFamily::kLlvm) << name;
  for (const char* name : {"libompi.so", "libomptarget.so.14", "libgomp-plugin", "libompd.so", "", "libgomp.spec"})
    EXPECT_EQ(omp_family_of(name), OmpFamily::kNone) << name;
}

TEST(FollowToOmp, TakesTheCopyBesideTorch) {
  const TempFolder folder;
  const std::string torch = folder.write("torch/lib/libtorch_cpu.so", image({"libc10.so", "libgomp-1234.so.1"}, "$ORIGIN"));
  folder.write("torch/lib/libc10.so", image({}));
  const std::string gomp = folder.write("torch/lib/libgomp-1234.so.1", library_image());
  const OmpFound found = follow_to_omp(torch, {}, {});
  EXPECT_EQ(found.family, OmpFamily::kGnu);
  EXPECT_EQ(found.path, gomp);
  EXPECT_THAT(found.reason, HasSubstr("libtorch_cpu.so"));
}

TEST(FollowToOmp, GoesThroughOtherLibrariesLevelByLevel) {
  const TempFolder folder;
  const std::string torch = folder.write("torch/libtorch_cpu.so", image({"libmkl.so", "libother.so"}, "${ORIGIN}/../mkl:$ORIGIN"));
  folder.write("mkl/libmkl.so", image({"libdeep.so"}, "$ORIGIN"));
  folder.write("mkl/libdeep.so", image({"libgomp.so.1"}, "$ORIGIN"));
  folder.write("mkl/libgomp.so.1", library_image());
  folder.write("torch/libother.so", image({"libiomp5.so"}, "$ORIGIN"));
  const std::string intel = folder.write("torch/libiomp5.so", library_image());
  EXPECT_EQ(follow_to_omp(torch, {}, {}).path, intel);
}

TEST(FollowToOmp, KnowsTheLoadersOrder) {
  const TempFolder folder;
  for (const char* place : {"env", "own", "system"}) folder.write(std::string(place) + "/libgomp.so.1", library_image());
  const std::map<std::string, std::string> env = {{"LD_LIBRARY_PATH", folder.path("env")}};
  const std::vector<std::string> system = {folder.path("system")};
  const std::string plain = folder.write("a.so", image({"libgomp.so.1"}));
  const std::string runpath = folder.write("b.so", image({"libgomp.so.1"}, "$ORIGIN/own"));
  const std::string rpath = folder.write("c.so", image({"libgomp.so.1"}, "", "$ORIGIN/own"));
  EXPECT_EQ(follow_to_omp(plain, {}, system).path, folder.path("system/libgomp.so.1"));
  EXPECT_EQ(follow_to_omp(runpath, {}, system).path, folder.path("own/libgomp.so.1"));
  EXPECT_EQ(follow_to_omp(runpath, env, system).path, folder.path("env/libgomp.so.1"));
  EXPECT_EQ(follow_to_omp(rpath, env, system).path, folder.path("own/libgomp.so.1"));
}

TEST(FollowToOmp, ALinkIsWhatItLeadsTo) {
  const TempFolder folder;
  const std::string torch = folder.write("lib/libtorch_cpu.so", image({"libgomp.so.1"}, "$ORIGIN"));
  folder.write("lib/libomp.so", library_image());
  std::filesystem::create_symlink("libomp.so", folder.path("lib/libgomp.so.1"));  // conda-forge with llvm-openmp
  EXPECT_EQ(follow_to_omp(torch, {}, {}).family, OmpFamily::kLlvm);
}

TEST(FollowToOmp, SaysWhenThereIsNone) {
  const TempFolder folder;
  const std::string loop = folder.write("a/liba.so", image({"libb.so", "libgone.so"}, "$ORIGIN"));
  folder.write("a/libb.so", image({"liba.so"}, "$ORIGIN"));
  EXPECT_EQ(follow_to_omp(loop, {}, {}).path, "");
  EXPECT_EQ(follow_to_omp(folder.write("text", "no library"), {}, {}).path, "");
  EXPECT_EQ(follow_to_omp(folder.write("cut", image({"libgomp.so.1"}).substr(0, 200)), {}, {}).path, "");
}

std::string torch_in(const TempFolder& folder, const std::string& packages) {
  return folder.write(packages + "/torch/lib/libtorch_cpu.so", image({"libgomp.so.1"}, "$ORIGIN"));
}

TEST(FindLibtorchCpu, LooksWhereThatPythonLooks) {
  const TempFolder folder;
  folder.write("base/bin/python3.11", "");
  std::filesystem::create_directories(folder.path("venv/bin"));
  std::filesystem::create_symlink(folder.path("base/bin/python3.11"), folder.path("venv/bin/python"));
  const std::string python = folder.path("venv/bin/python");
  folder.write("venv/pyvenv.cfg", "include-system-site-packages = false\n");
  const std::string system = torch_in(folder, "base/lib/python3.11/site-packages");
  torch_in(folder, "venv/lib/python3.9/site-packages");  // of another Python
  EXPECT_EQ(find_libtorch_cpu(python, {}), "");
  folder.write("venv/pyvenv.cfg", "include-system-site-packages = true\n");
  EXPECT_EQ(find_libtorch_cpu(python, {}), system);
  const std::string of_user = torch_in(folder, "home/.local/lib/python3.11/site-packages");
  EXPECT_EQ(find_libtorch_cpu(python, {{"HOME", folder.path("home")}}), of_user);
  EXPECT_EQ(find_libtorch_cpu(python, {{"HOME", folder.path("home")}, {"PYTHONNOUSERSITE", "1"}}), system);
  const std::string own = torch_in(folder, "venv/lib/python3.11/site-packages");
  EXPECT_EQ(find_libtorch_cpu(python, {{"HOME", folder.path("home")}}), own);
  const std::string python39 = folder.path("other/bin/python3.9");
  folder.write("other/bin/python3.9", "");
  folder.write("other/lib/python3.9/site-packages/b.pth", "# none\nimport os; os.environ\n\n../../../elsewhere \r\n");
  EXPECT_EQ(find_libtorch_cpu(python39, {}), "");
  const std::string named = torch_in(folder, "other/elsewhere");
  EXPECT_TRUE(std::filesystem::equivalent(find_libtorch_cpu(python39, {}), named));
  folder.write("other/lib/python3.9/site-packages/a.pth", folder.path("far"));
  const std::string far = torch_in(folder, "far");
  EXPECT_EQ(find_libtorch_cpu(python39, {}), far);
  const std::string first = torch_in(folder, "mine");
  EXPECT_EQ(find_libtorch_cpu(python, {{"PYTHONPATH", folder.path("none") + ":" + folder.path("mine")}}), first);
}

TEST(FindProgramOmp, ScriptsLeadToTheirPythonAndLdPreloadComesFirst) {
  const TempFolder folder;
  const std::string python = folder.write("env/bin/python3.11", "", true);
  torch_in(folder, "env/lib/python3.11/site-packages");
  const std::string gomp = folder.write("env/lib/python3.11/site-packages/torch/lib/libgomp.so.1", library_image());
  const std::string script = folder.write("env/bin/torchrun", "#!" + python + "\nimport torch\n");
  const std::string by_env = folder.write("serve", "#!/usr/bin/env python3.11\n");
  EXPECT_EQ(find_program_omp(python, {}).path, gomp);
  EXPECT_EQ(find_program_omp(script, {}).path, gomp);
  EXPECT_EQ(find_program_omp(by_env, {{"PATH", folder.path("env/bin")}}).path, gomp);
  const OmpFound preloaded = find_program_omp(python, {{"LD_PRELOAD", "/x/liba.so:/x/libiomp5.so"}});
  EXPECT_EQ(preloaded.family, OmpFamily::kIntel);
  EXPECT_EQ(find_program_omp(folder.write("run.sh", "#!/bin/sh\n"), {}).path, "");
}

constexpr const char* kMaps =
    "55d0-55d1 r--p 00000000 00:2f 12 /usr/bin/python3.11\n"
    "7f00-7f01 rw-p 00000000 00:00 0 \n"
    "7f10-7f11 r--p 00000000 00:2f 13 /v/torch/lib/libgomp.so.1\n"
    "7f11-7f12 r-xp 00001000 00:2f 13 /v/torch/lib/libgomp.so.1\n"
    "7f20-7f21 r-xp 00001000 00:2f 14 /v/my packages/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0\n"
    "7ffe-7fff rw-p 00000000 00:00 0 [stack]\n";

TEST(OmpWatch, ReadsTheRuntimesOfAMapsFile) {
  EXPECT_THAT(omp_runtimes_in(kMaps),
              ElementsAre("/v/torch/lib/libgomp.so.1", "/v/my packages/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0"));
  EXPECT_THAT(omp_runtimes_in(""), IsEmpty());
}

TEST(OmpWatch, APreloadedRuntimeServesOthers) {
  const std::vector<std::string> gnu = {"/a/libgomp.so.1", "/b/libgomp-1.so.1"};
  EXPECT_THAT(omp_rivals(gnu, "/x/libshim.so"), ElementsAre("/a/libgomp.so.1", "/b/libgomp-1.so.1"));
  EXPECT_THAT(omp_rivals(gnu, "/x/libshim.so:/a/libgomp.so.1"), ElementsAre("/a/libgomp.so.1"));
  std::vector<std::string> mixed = gnu;
  mixed.emplace_back("/c/libiomp5.so");
  EXPECT_THAT(omp_rivals(mixed, "/c/libiomp5.so:/x/libshim.so"), ElementsAre("/c/libiomp5.so"));
  EXPECT_THAT(omp_rivals(mixed, "/a/libgomp.so.1"), ElementsAre("/a/libgomp.so.1", "/c/libiomp5.so"));
}

TEST(OmpWatch, LooksEverMoreRarely) {
  OmpWatch watch("/nowhere");
  auto now = watch.next();
  EXPECT_TRUE(watch.due(now));
  const auto start = now;
  int looks = 0;
  for (; now - start < std::chrono::minutes(10); now = watch.next()) {
    watch.looked(now);
    EXPECT_GT(watch.next(), now);
    EXPECT_LE(watch.next() - now, std::chrono::minutes(1));
    ++looks;
  }
  EXPECT_GE(looks, 15);
  EXPECT_LE(looks, 20);
}

TEST(OmpWatch, LooksIntoDescendantsAndKeepsTheProcessWithTheMost) {
  const TempFolder proc;
  proc.write("10/maps", "7f10-7f11 r--p 0 00:2f 13 /bin/sh\n");
  proc.write("10/task/10/children", "11 12 ");
  proc.write("11/maps", kMaps);
  proc.write("12/maps", "7f10-7f11 r--p 0 00:2f 13 /c/libiomp5.so\n");
  proc.write("12/task/12/children", "");
  proc.write("12/task/13/children", "14 ");  // a process that is gone by now
  std::vector<std::string> found;
  OmpWatch(proc.path()).look(10, found);
  EXPECT_EQ(found.size(), 2u);
  OmpWatch(proc.path()).look(12, found);
  EXPECT_EQ(found.size(), 2u) << "a smaller set replaces no larger one";
  OmpWatch(proc.path()).look(99, found);
  EXPECT_EQ(found.size(), 2u);
}

TEST(OmpWatch, TheSummaryHasOneLineForAllInstancesThatSawTheSame) {
  LaunchPlan plan;
  RunOutcome outcome;
  for (int index = 0; index < 3; ++index) {
    plan.instances.emplace_back();
    plan.instances.back().index = index;
    outcome.instances.emplace_back();
    outcome.instances.back().index = index;
    outcome.instances.back().omp_runtimes = {"/a/libgomp.so.1", "/b/libgomp-1.so.1"};
  }
  outcome.instances[1].omp_runtimes.pop_back();
  EXPECT_THAT(
      summary_text(Options{}, plan, outcome),
      testing::StartsWith("ipexrun: instance 0, 2: more than one OpenMP runtime in a process: /a/libgomp.so.1, /b/libgomp-1.so.1; "));
  plan.instances[0].threads = 1;
  EXPECT_THAT(summary_text(Options{}, plan, outcome), testing::StartsWith("ipexrun: instance 2: more"))
      << "with one thread nothing is lost";
  for (InstancePlan& instance : plan.instances) instance.env["LD_PRELOAD"] = "/a/libgomp.so.1";
  EXPECT_EQ(summary_text(Options{}, plan, outcome), "");
}

}  // namespace
}  // namespace ipexrun::launcher
