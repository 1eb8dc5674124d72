#include "tuner/study/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cstdio>

namespace ipexrun::tuner {
namespace {

std::string checksum(const std::string& text) {
  std::array<char, 16> out{};
  std::snprintf(out.data(), out.size(), "%08lx", ::crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
  return out.data();
}

std::string dumped(const Record& record) { return record.dump(-1, ' ', false, Record::error_handler_t::replace); }

/// What is on disk in a file is lost all the same if the file's name is not. Some file systems know no such thing: then that is all.
void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const launcher::Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.open()) ::fsync(fd.get());
}

/// Program output in a record need not be valid UTF-8: what is written is what will be read.
Record cleaned(const Record& record) { return Record::parse(dumped(record)); }

}  // namespace

std::string journal_line(const Record& record) {
  const Record clean = cleaned(record);
  return dumped(Record{{"r", clean}, {"sum", checksum(dumped(clean))}});
}

std::optional<Record> parse_journal_line(const std::string& line) {
  const Record whole = Record::parse(line, nullptr, false);
  if (!whole.is_object() || !whole.contains("r") || !whole["r"].is_object() || !whole.contains("sum") || !whole["sum"].is_string())
    return std::nullopt;
  if (whole["sum"].get<std::string>() != checksum(dumped(whole["r"]))) return std::nullopt;
  return whole["r"];
}

Result<Journal> Journal::open(const std::string& path, bool read_only) {
  Journal out;
  out.path_ = path;
  out.fd_ = launcher::Fd(::open(path.c_str(), (read_only ? O_RDONLY : O_RDWR | O_CREAT | O_APPEND) | O_CLOEXEC, 0666));
  if (!out.fd_.open())
    return Error{kExitFailure, "cannot open the journal '" + path + "': " + launcher::errno_text(errno),
                 read_only ? "the folder of a study has a file journal.jsonl" : ""};
  if (read_only) return out;
  if (::flock(out.fd_.get(), LOCK_SH | LOCK_NB) == 0) {
    ::flock(out.fd_.get(), LOCK_UN);
  } else if (errno != EWOULDBLOCK) {
    return Error{kExitFailure, "the journal '" + path + "' cannot be locked: " + launcher::errno_text(errno),
                 "--output-dir names a folder on a file system with locks"};
  }
  sync_folder_of(path);
  return out;
}

Result<std::vector<Record>> Journal::read_new() {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return Error{kExitFailure, "cannot read '" + path_ + "': " + launcher::errno_text(errno), ""};
  if (info.st_size < read_to_)
    return Error{kExitFailure, "'" + path_ + "' became shorter than what was read of it",
                 "a journal is only appended to; is another program at it?"};
  std::string text(static_cast<std::size_t>(info.st_size - read_to_), '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t n = ::pread(fd_.get(), text.data() + got, text.size() - got, read_to_ + static_cast<off_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  text.resize(got);
  std::vector<Record> out;
  std::size_t at = 0;
  for (std::size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string line = text.substr(at, end - at);
    if (line.empty()) continue;
    if (auto record = parse_journal_line(line)) {
      out.push_back(std::move(*record));
    } else {
      ++bad_lines_;
    }
  }
  read_to_ += static_cast<std::int64_t>(at);
  return out;
}

Status Journal::append(const std::vector<Record>& records) {
  struct stat info {};
  const auto failed = [&](int code) -> Status {
    return Error{kExitFailure, "cannot write the journal '" + path_ + "': " + launcher::errno_text(code),
                 "what it holds is safe; make room and run the same command again"};
  };
  if (::fstat(fd_.get(), &info) != 0) return failed(errno);
  std::string text;
  char last = '\n';
  if (info.st_size > 0 && ::pread(fd_.get(), &last, 1, info.st_size - 1) == 1 && last != '\n') text = "\n";  // a torn line stays one line
  for (const Record& one : records) text += journal_line(one) + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd_.get(), text.data() + done, text.size() - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      const int code = errno;
      (void)!::ftruncate(fd_.get(), info.st_size);
      return failed(code);
    }
  }
  if (::fdatasync(fd_.get()) != 0 && errno != EINVAL && errno != ENOSYS) {
    const int code = errno;
    (void)!::ftruncate(fd_.get(), info.st_size);
    return failed(code);
  }
  return ok_status();
}

Journal::Lock::Lock(Journal& journal) : fd_(journal.fd_.get()) {
  while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

Journal::Lock::~Lock() { ::flock(fd_, LOCK_UN); }

}  // namespace ipexrun::tuner
