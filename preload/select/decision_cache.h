// Decisions that outlive a process, so that the second start is warm. Of a decision only the timing order is taken over: accuracy is
// checked again in every process, and a choice that has become slow is noticed by selection's own sampling.
//
// A text file a kind of machine (CPU model) and version of ipexrun: a head line, then one decision_line() a decision, the last one of a
// site counts. Processes only append, each line with one write(2), so they share the file without locks; a torn or damaged line is
// skipped. A file that is too long is rewritten with the latest decisions, by one process at a time, under a new name that replaces the old
// one.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "configs/contract/decision.h"

namespace ipexrun::preload {

inline constexpr std::size_t kMostCacheBytes = 4u << 20;             ///< of a longer file the end is read, and it is rewritten
inline constexpr std::size_t kMostCacheLines = 8192;                 ///< more are rewritten, the last of each site only
inline constexpr std::size_t kMostKept = 3072;                       ///< sites that are left then: those decided last
inline constexpr std::int64_t kStockTrustSeconds = 24 * 3600;        ///< "stock was faster" may have been a busy machine: measured again
inline constexpr std::int64_t kChoiceTrustSeconds = 90 * 24 * 3600;  ///< any decision

/// Where the cache lies and what it is for. Filled from the environment by cache_place(), by tests as they like.
struct CachePlace {
  std::string folder;   ///< "" = nothing is remembered
  std::string head;     ///< the first line: what the file's decisions hold for
  std::string problem;  ///< why `folder` is empty though a cache was wanted, "" otherwise
};

/// The folder that IPEXRUN_CACHE, XDG_CACHE_HOME or HOME name, made with mode 0700 where it is missing, and so are those above it; refused
/// when another user owns it or may write to it. A relative one is that of now, wherever the program goes later.
CachePlace cache_place();

/// Thread-safe; the lock is held for memory only, never while a file is read or written.
class DecisionCache {
 public:
  explicit DecisionCache(CachePlace place);

  /// Reads the file; a second call does nothing. Missing, foreign or damaged files are no failure: one line at level info or warn.
  void load(std::int64_t now_seconds);

  /// Adds the decisions of `path` (IPEXRUN_DECISIONS) as pinned ones; they win over remembered ones and never expire. One line at level
  /// warn where some are for another level of instructions or another torch than this process's (as in SiteKey): no call asks for them.
  void load_pinned(const std::string& path, std::string_view isa, std::string_view torch);

  /// The decision for a site under this --dtype that is young enough; false when there is none. `pinned`: no timing may change it.
  bool find(const std::string& site, const std::string& dtype, Decision* out, bool* pinned) const;

  /// Whether there is a decision for an op whose name begins like this.
  [[nodiscard]] bool knows(const std::string& op) const;

  /// How many there are.
  [[nodiscard]] std::size_t count() const;

  /// Keeps `decision` and appends it to the file. A write that fails (disk full, read-only) ends writing for this process.
  void remember(const Decision& decision);

  /// In a forked child: nothing is written any more.
  void stop_writing() noexcept;
  /// Around fork(): the child must find the lock free.
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  struct Entry {
    Decision decision;
    bool pinned = false;
  };
  /// Lines without the head. `cut`: the file is longer than what is read of it.
  bool read_file(std::string* text, bool* cut);
  bool make_file();
  void rewrite();

  CachePlace place_;
  std::string path_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;  ///< by dtype and site
  bool loaded_ = false;
  std::atomic<bool> writable_{true};
};

}  // namespace ipexrun::preload
