#include "launcher/bench/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace ipexrun::launcher::bench {
namespace {

constexpr const char* kOption = "--bench-output";

struct Format {
  const char* ending;
  std::string (*render)(const Report&);
};

constexpr Format kFormats[] = {{".json", report_json}, {".csv", report_csv}, {".md", report_markdown}, {".html", report_html}};

const Format* format_of(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  for (const Format& format : kFormats) {
    if (ending == format.ending) return &format;
  }
  return nullptr;
}

Error cannot_write(const std::string& option, const std::string& path, int code) {
  return {kExitFailure, "cannot write " + option + " '" + path + "': " + std::generic_category().message(code),
          "name a file in a folder that exists and is writable"};
}

/// A new file beside `path`, empty, with the permissions that the umask gives. -1 and errno on failure.
int open_temporary(const std::string& path, std::string* name) {
  *name = path + ".tmp." + std::to_string(::getpid());
  return ::open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
}

}  // namespace

Status write_whole(const std::string& option, const std::string& path, const std::string& text) {
  std::string temporary;
  const int fd = open_temporary(path, &temporary);
  if (fd < 0) return cannot_write(option, path, errno);
  int problem = 0;
  for (std::size_t done = 0; done < text.size() && problem == 0;) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      problem = errno;
    }
  }
  if (::close(fd) != 0 && problem == 0) problem = errno;
  if (problem == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) problem = errno;
  if (problem == 0) return ok_status();
  ::unlink(temporary.c_str());
  return cannot_write(option, path, problem);
}

Status check_writable(const std::string& option, const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return cannot_write(option, path, EISDIR);
  std::string temporary;
  const int fd = open_temporary(path, &temporary);  // the only sure answer: permissions, quota, read-only mounts
  if (fd < 0) return cannot_write(option, path, errno);
  ::close(fd);
  ::unlink(temporary.c_str());
  return ok_status();
}

void print_prefixed(const std::string& text) {
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out += "ipexrun: " + text.substr(begin, end - begin) + '\n';
    begin = end + 1;
  }
  std::fputs(out.c_str(), stderr);
}

Status check_outputs(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (format_of(path) == nullptr) {
      return Error{kExitUsage, "--bench-output '" + path + "' has no known ending", "use FILE.json, FILE.csv, FILE.md or FILE.html"};
    }
    if (Status writable = check_writable(kOption, path); !writable) return writable;
  }
  return ok_status();
}

Status write_outputs(const Report& report, const std::vector<std::string>& paths) {
  Status first = ok_status();
  for (const std::string& path : paths) {
    Status written = write_whole(kOption, path, format_of(path)->render(report));
    if (!written && first) first = std::move(written);
  }
  return first;
}

}  // namespace ipexrun::launcher::bench
