#include "launcher/run/progress.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>

#include "configs/base/log.h"
#include "configs/contract/env.h"

namespace ipexrun::launcher {
namespace {

constexpr int kUsualColumns = 80;

int columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

/// A terminal that was stopped (ctrl-S) would hold the launcher up, so the line is left out.
bool write_now(int fd, const std::string& text) {
  pollfd entry{fd, POLLOUT, 0};
  return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLOUT) != 0 &&
         ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

std::string age_text(std::chrono::seconds age) {
  const auto all = age.count();
  if (all < 60) return fmt::format("{} s", all);
  if (all < 3600) return fmt::format("{} min {:02} s", all / 60, all % 60);
  return fmt::format("{} h {:02} min", all / 3600, all / 60 % 60);
}

std::string progress_text(const ProgressFacts& facts, int columns) {
  std::string out = fmt::format("ipexrun: {} of {} running", facts.running, facts.instances);
  if (facts.restarting > 0) out += fmt::format(", {} to be restarted", facts.restarting);
  out += ", " + age_text(facts.age);
  if (!facts.news.empty()) out += ", " + facts.news;
  // The last column stays free: a terminal that has written there may go on in the next line.
  const auto room = static_cast<std::size_t>(std::max(columns - 1, 0));
  if (out.size() > room) out.resize(room);
  return out;
}

void ProgressLine::show(const ProgressFacts& facts) {
  if (fd_ < 0) return;
  if (::tcgetpgrp(fd_) != foreground_) {  // another job has the terminal now, and what was drawn with it
    drawn_.clear();
    return;
  }
  const int columns = columns_of(fd_);
  const std::string text = progress_text(facts, columns);
  if (text.empty() || text == drawn_) return;
  if (drawn_.size() >= static_cast<std::size_t>(columns)) hide();
  if (write_now(fd_, "\r\x1b[K" + text)) drawn_ = text;
}

void ProgressLine::hide() {
  if (drawn_.empty()) return;
  // A terminal that became narrower since has wrapped the line: as many rows above are cleared too.
  const std::size_t columns = static_cast<std::size_t>(std::max(columns_of(fd_), 1));
  std::string clean = "\r\x1b[K";
  for (std::size_t rows = (drawn_.size() - 1) / columns; rows > 0; --rows) clean += "\x1b[A\x1b[K";
  if (::tcgetpgrp(fd_) == foreground_) write_now(fd_, clean);
  drawn_.clear();
}

int progress_terminal() {
  const std::string terminal = env::get_named("TERM").value_or("");
  const bool usable = ::isatty(STDERR_FILENO) != 0 && !terminal.empty() && terminal != "dumb" && log::level() >= log::Level::kWarn;
  return usable ? STDERR_FILENO : -1;
}

}  // namespace ipexrun::launcher
