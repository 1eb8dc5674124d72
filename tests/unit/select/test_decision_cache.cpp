// Risk: a damaged, foreign or stale file changes what a program does, processes damage each other's lines, or a failing disk is felt.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "preload/select/decision_cache.h"

namespace ipexrun::preload {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kNow = 1'763'700'000;

class DecisionCacheTest : public ::testing::Test {
 protected:
  DecisionCacheTest() {
    std::string name = (fs::temp_directory_path() / "ipexrun-cache-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~DecisionCacheTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  [[nodiscard]] CachePlace place() const { return {folder_.string(), "# test", ""}; }

  static Decision decision(int m, const std::string& choice = "own_bf16", std::int64_t at = kNow) {
    SiteKey key{"addmm", "f32,f32,f32", "ct", "m=" + std::to_string(m) + ",n=768,k=768", 2, "amx", "2.13"};
    return {key, choice, 1000, 400, 6, choice == "stock" ? "slower" : "faster", "auto", at};
  }

  static std::string choice_of(const DecisionCache& cache, int m, const std::string& dtype = "auto") {
    Decision found;
    bool pinned = false;
    return cache.find(decision(m).site.text(), dtype, &found, &pinned) ? found.choice : "none";
  }

  [[nodiscard]] std::string choice_after_restart(int m, std::int64_t now = kNow + 60) const {
    DecisionCache next(place());
    next.load(now);
    return choice_of(next, m);
  }

  static void append(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::app) << text; }
  static std::string content(const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  }

  fs::path folder_;
};

TEST_F(DecisionCacheTest, the_next_process_knows_what_this_one_decided) {
  DecisionCache cache(place());
  cache.load(kNow);
  EXPECT_EQ(choice_of(cache, 8), "none");
  cache.remember(decision(8));
  cache.remember(decision(16, "stock"));
  EXPECT_EQ(choice_after_restart(8), "own_bf16");
  EXPECT_EQ(choice_after_restart(16), "stock");
  EXPECT_EQ(choice_after_restart(32), "none");
}

TEST_F(DecisionCacheTest, decisions_hold_for_their_dtype_only) {
  DecisionCache cache(place());
  cache.remember(decision(8));
  DecisionCache next(place());
  next.load(kNow);
  EXPECT_EQ(choice_of(next, 8, "float32"), "none");
  EXPECT_EQ(choice_of(next, 8, "auto"), "own_bf16");
}

TEST_F(DecisionCacheTest, the_last_line_of_a_site_counts) {
  DecisionCache cache(place());
  cache.remember(decision(8));
  cache.remember(decision(8, "stock"));
  EXPECT_EQ(choice_after_restart(8), "stock");
}

TEST_F(DecisionCacheTest, a_loss_against_stock_is_measured_again_after_a_day) {
  DecisionCache cache(place());
  cache.remember(decision(8, "stock"));
  cache.remember(decision(16));
  const std::int64_t tomorrow = kNow + kStockTrustSeconds + 1;
  EXPECT_EQ(choice_after_restart(8, tomorrow), "none");
  EXPECT_EQ(choice_after_restart(16, tomorrow), "own_bf16");
  EXPECT_EQ(choice_after_restart(16, kNow + kChoiceTrustSeconds + 1), "none");
}

TEST_F(DecisionCacheTest, a_clock_that_went_back_trusts_nothing) {
  DecisionCache cache(place());
  cache.remember(decision(8));
  EXPECT_EQ(choice_after_restart(8, kNow - 3600), "none");
}

TEST_F(DecisionCacheTest, an_old_line_takes_back_what_came_before) {
  DecisionCache cache(place());
  cache.remember(decision(8));
  cache.remember(decision(8, "stock", kNow - 2 * kStockTrustSeconds));
  EXPECT_EQ(choice_after_restart(8), "none");
}

TEST_F(DecisionCacheTest, damaged_lines_are_skipped_and_the_others_count) {
  DecisionCache cache(place());
  cache.remember(decision(8));
  append(cache.path(), "half a li\n\n\xff\xfe\t\t\t\n" + std::string(100, '\0') + "\n");
  cache.remember(decision(16));
  append(cache.path(), decision_line(decision(32)));  // no line feed: still being written
  EXPECT_EQ(choice_after_restart(8), "own_bf16");
  EXPECT_EQ(choice_after_restart(16), "own_bf16");
  EXPECT_EQ(choice_after_restart(32), "none");
}

TEST_F(DecisionCacheTest, any_cut_of_the_file_is_harmless) {
  DecisionCache cache(place());
  cache.remember(decision(8));
  cache.remember(decision(16, "stock"));
  const std::string whole = content(cache.path());
  for (std::size_t cut = 0; cut < whole.size(); cut += 7) {
    std::ofstream(cache.path(), std::ios::trunc) << whole.substr(0, cut);
    const std::string eight = choice_after_restart(8);
    EXPECT_TRUE(eight == "none" || eight == "own_bf16") << cut;
  }
}

TEST_F(DecisionCacheTest, a_foreign_file_is_neither_used_nor_changed) {
  DecisionCache cache(place());
  const std::string foreign = "# another program\n" + decision_line(decision(8)) + "\n";
  std::ofstream(cache.path()) << foreign;
  cache.load(kNow);
  EXPECT_EQ(choice_of(cache, 8), "none");
  cache.remember(decision(16));
  EXPECT_EQ(choice_of(cache, 16), "own_bf16");
  EXPECT_EQ(content(cache.path()), foreign);
}

TEST_F(DecisionCacheTest, an_empty_file_is_begun_anew) {
  DecisionCache cache(place());
  std::ofstream(cache.path()).close();
  testing::internal::CaptureStderr();
  cache.load(kNow);
  cache.remember(decision(8));
  cache.remember(decision(16));
  EXPECT_EQ(choice_after_restart(8), "own_bf16");
  EXPECT_EQ(choice_after_restart(16), "own_bf16");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(DecisionCacheTest, what_a_killed_process_of_this_number_left_is_in_nobodys_way) {
  DecisionCache cache(place());
  const std::string left = cache.path() + '.' + std::to_string(::getpid());
  std::ofstream(left) << "# te";
  cache.remember(decision(8));
  EXPECT_FALSE(fs::exists(cache.path())) << "another process of this number may be writing it, in another container";
  const timeval long_ago[2] = {{kNow, 0}, {kNow, 0}};
  ASSERT_EQ(::utimes(left.c_str(), long_ago), 0);
  DecisionCache next(place());
  next.remember(decision(8));
  EXPECT_EQ(choice_after_restart(8), "own_bf16");
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(DecisionCacheTest, a_program_whose_files_may_not_grow_is_not_ended) {
  DecisionCache(place()).remember(decision(8));
  for (const rlim_t most : {rlim_t{0}, static_cast<rlim_t>(fs::file_size(DecisionCache(place()).path())) + 10}) {
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit limit{most, most};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      DecisionCache cache(place());
      cache.load(kNow);
      cache.remember(decision(16));
      cache.remember(decision(32));
      ::_exit(choice_of(cache, 32) == "own_bf16" ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "SIGXFSZ is " << SIGXFSZ;
  }
  EXPECT_EQ(choice_after_restart(8), "own_bf16");
  EXPECT_EQ(choice_after_restart(16), "none");
}

TEST_F(DecisionCacheTest, a_link_or_a_pipe_in_its_place_is_left_alone) {
  DecisionCache cache(place());
  const fs::path target = folder_ / "precious";
  std::ofstream(target) << "keep me";
  fs::create_symlink(target, cache.path());
  cache.load(kNow);
  cache.remember(decision(8));
  EXPECT_EQ(content(target), "keep me");
  fs::remove(cache.path());
  ASSERT_EQ(::mkfifo(cache.path().c_str(), 0600), 0);
  DecisionCache other(place());
  other.load(kNow);  // must not wait for a writer
  EXPECT_EQ(choice_of(other, 8), "none");
}

TEST_F(DecisionCacheTest, pinned_decisions_win_and_are_never_replaced) {
  DecisionCache cache(place());
  cache.remember(decision(8));
  const std::string pins = (folder_ / "pins").string();
  std::ofstream(pins) << decision_line(decision(8, "stock", 0)) << "\nnonsense\n";
  DecisionCache next(place());
  next.load_pinned(pins, "amx", "2.13");
  next.load(kNow);
  Decision found;
  bool pinned = false;
  ASSERT_TRUE(next.find(decision(8).site.text(), "auto", &found, &pinned));
  EXPECT_TRUE(pinned);
  EXPECT_EQ(found.choice, "stock");
  next.remember(decision(8));
  EXPECT_EQ(choice_of(next, 8), "stock");
}

TEST_F(DecisionCacheTest, pinned_decisions_of_another_machine_are_told_once) {
  const std::string pins = (folder_ / "pins").string();
  std::ofstream(pins) << decision_line(decision(8)) << '\n' << decision_line(decision(16)) << '\n';
  const auto said = [&pins](const char* isa, const char* torch) {
    testing::internal::CaptureStderr();
    DecisionCache(CachePlace{}).load_pinned(pins, isa, torch);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said("amx", "2.13"), "");
  EXPECT_EQ(said("avx2", "2.13"),
            "ipexrun: the config's decisions are not used: they are for torch 2.13 and amx, this is torch 2.13 and avx2\n");
  Decision here = decision(32);
  here.site.torch = "2.14";
  std::ofstream(pins, std::ios::app) << decision_line(here) << '\n';
  EXPECT_EQ(said("amx", "2.14"),
            "ipexrun: 2 of the config's 3 decisions are not used: they are for torch 2.13 and amx, this is torch 2.14 and amx\n");
}

TEST_F(DecisionCacheTest, without_a_folder_it_remembers_for_this_process_only) {
  DecisionCache cache(CachePlace{});
  cache.load(kNow);
  cache.remember(decision(8));
  EXPECT_EQ(choice_of(cache, 8), "own_bf16");
}

TEST_F(DecisionCacheTest, a_folder_that_went_away_costs_nothing_but_the_memory) {
  DecisionCache cache(place());
  fs::remove_all(folder_);
  cache.remember(decision(8));
  cache.remember(decision(16));
  EXPECT_EQ(choice_of(cache, 16), "own_bf16");
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(DecisionCacheTest, a_file_that_is_too_long_is_rewritten_with_the_last_of_each) {
  DecisionCache cache(place());
  cache.remember(decision(1));
  std::string lines;
  for (std::size_t i = 0; i < kMostCacheLines + 10; ++i) lines += decision_line(decision(static_cast<int>(i % 5) * 2 + 2)) + "\n";
  append(cache.path(), lines);
  EXPECT_EQ(choice_after_restart(2), "own_bf16");
  EXPECT_LT(fs::file_size(cache.path()), 2000u);
  EXPECT_EQ(choice_after_restart(10), "own_bf16");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(DecisionCacheTest, many_sites_leave_those_decided_last) {
  DecisionCache cache(place());
  cache.remember(decision(1));
  const int sites = static_cast<int>(kMostCacheLines) + 10;
  std::string lines;
  for (int i = 0; i < sites; ++i) lines += decision_line(decision(2 + i, "own_bf16", kNow - sites + i)) + "\n";
  append(cache.path(), lines);
  EXPECT_EQ(choice_after_restart(2 + sites - 1), "own_bf16");
  const std::string left = content(cache.path());
  EXPECT_EQ(std::count(left.begin(), left.end(), '\n'), static_cast<std::ptrdiff_t>(kMostKept) + 1);
  EXPECT_EQ(choice_after_restart(2 + sites - 1), "own_bf16");
  EXPECT_EQ(choice_after_restart(2), "none");
  EXPECT_EQ(content(cache.path()), left) << "it is not rewritten at each start";
}

TEST_F(DecisionCacheTest, a_file_that_many_processes_made_huge_is_ours_all_the_same) {
  DecisionCache cache(place());
  cache.remember(decision(1));
  std::string lines;
  while (lines.size() <= kMostCacheBytes) lines += decision_line(decision(2)) + "\n";
  append(cache.path(), lines);
  cache.remember(decision(4));
  DecisionCache next(place());
  testing::internal::CaptureStderr();
  next.load(kNow);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(choice_of(next, 2), "own_bf16");
  EXPECT_EQ(choice_of(next, 4), "own_bf16");
  EXPECT_LT(fs::file_size(next.path()), 2000u);
  next.remember(decision(8));
  EXPECT_EQ(choice_after_restart(8), "own_bf16");
}

TEST_F(DecisionCacheTest, processes_and_threads_append_whole_lines) {
  constexpr int kProcesses = 4;
  constexpr int kLines = 50;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    if (child == 0) {
      DecisionCache cache(place());
      for (int i = 0; i < kLines; ++i) cache.remember(decision(1000 * p + i));
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  {
    DecisionCache cache(place());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&cache, t] {
        for (int i = 0; i < kLines; ++i) cache.remember(decision(100'000 + 1000 * t + i));
      });
    for (std::thread& thread : threads) thread.join();
  }
  DecisionCache next(place());
  next.load(kNow);
  for (int p = 0; p < kProcesses; ++p)
    for (int i = 0; i < kLines; ++i) {
      EXPECT_EQ(choice_of(next, 1000 * p + i), "own_bf16");
      EXPECT_EQ(choice_of(next, 100'000 + 1000 * p + i), "own_bf16");
    }
}

TEST_F(DecisionCacheTest, a_forked_child_writes_nothing) {
  DecisionCache cache(place());
  cache.remember(decision(8));
  cache.stop_writing();
  cache.remember(decision(16));
  EXPECT_EQ(choice_after_restart(16), "none");
}

class CachePlaceTest : public DecisionCacheTest {
 protected:
  void SetUp() override { TearDown(); }  // test runs switch the cache off
  void TearDown() override {
    for (const char* name : {"IPEXRUN_CACHE", "XDG_CACHE_HOME"}) ::unsetenv(name);
  }
};

TEST_F(CachePlaceTest, the_folder_is_made_private) {
  const std::string folder = (folder_ / "xdg").string();
  fs::create_directory(folder);
  ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  EXPECT_EQ(cache_place().folder, folder + "/ipexrun");
  struct stat info {};
  ASSERT_EQ(::stat((folder + "/ipexrun").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(CachePlaceTest, those_above_it_are_made_too) {
  ::setenv("IPEXRUN_CACHE", (folder_ / "not/there/yet").c_str(), 1);
  EXPECT_EQ(cache_place().folder, (folder_ / "not/there/yet").string());
  EXPECT_TRUE(fs::is_directory(folder_ / "not/there/yet"));
}

TEST_F(CachePlaceTest, a_relative_one_is_that_of_now) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  ::setenv("IPEXRUN_CACHE", "mine", 1);
  EXPECT_EQ(cache_place().folder, (fs::current_path() / "mine").string());
  fs::current_path(before);
  EXPECT_TRUE(fs::is_directory(folder_ / "mine"));
}

TEST_F(CachePlaceTest, a_folder_that_others_may_write_to_is_refused) {
  fs::permissions(folder_, fs::perms::all);
  ::setenv("IPEXRUN_CACHE", folder_.c_str(), 1);
  EXPECT_EQ(cache_place().folder, "");
  EXPECT_NE(cache_place().problem.find("others may write"), std::string::npos);
}

TEST_F(CachePlaceTest, off_means_none_and_says_nothing) {
  ::setenv("IPEXRUN_CACHE", "off", 1);
  EXPECT_EQ(cache_place().folder, "");
  EXPECT_EQ(cache_place().problem, "");
}

TEST_F(CachePlaceTest, a_folder_that_cannot_be_made_is_no_failure) {
  ::setenv("IPEXRUN_CACHE", "/proc/ipexrun", 1);
  EXPECT_EQ(cache_place().folder, "");
  EXPECT_NE(cache_place().problem, "");
}

}  // namespace
}  // namespace ipexrun::preload
