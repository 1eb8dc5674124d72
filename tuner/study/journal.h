// The study's memory: one file, one record a line, only ever appended to, each append on disk before it counts.
//
// A line is {"r": RECORD, "sum": "crc32 of RECORD's text"}. What a kill or a full disk left unfinished at the end is not read; the next
// append begins a new line. Several workers share the file: they read and append under a lock of it. Records (see history.cpp):
//   study, objectives, start, left, run, end, dropped, round, stop, verdict.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "launcher/run/posix.h"

namespace ipexrun::tuner {

using Record = nlohmann::ordered_json;

class Journal {
 public:
  /// Opens or makes `path`, its name on disk as well; `read_only` for reports. An error also where the file system has no locks.
  static Result<Journal> open(const std::string& path, bool read_only = false);

  /// What was appended since the last call, by this process or another one.
  Result<std::vector<Record>> read_new();

  /// Appends the records together and waits until they are on disk. Call it locked. Without room nothing is left of them.
  Status append(const std::vector<Record>& records);

  /// For its life no other worker appends. Not nestable.
  class Lock {
   public:
    explicit Lock(Journal& journal);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    int fd_;
  };

  /// Lines that could not be read so far.
  [[nodiscard]] int bad_lines() const { return bad_lines_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  launcher::Fd fd_;
  std::string path_;
  std::int64_t read_to_ = 0;
  int bad_lines_ = 0;
};

/// One line of the file, without its end.
std::string journal_line(const Record& record);
/// nullopt: torn or damaged.
std::optional<Record> parse_journal_line(const std::string& line);

}  // namespace ipexrun::tuner
