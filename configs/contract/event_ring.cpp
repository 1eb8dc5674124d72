#include "configs/contract/event_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ipexrun {
namespace {

/// Field 22 of /proc/PID/stat, 0 when the process is gone. The command name may hold spaces: count from the last ')'.
std::uint64_t start_time_of(std::int32_t pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (n <= 0) return 0;
  text[n] = '\0';
  const char* at = std::strrchr(text, ')');
  if (at == nullptr) return 0;
  for (int field = 2; field < 22 && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at + 1, nullptr, 10);
}

bool valid(const IpexrunEventHeader& header) {
  return header.magic == IPEXRUN_EVENT_MAGIC && header.schema == IPEXRUN_EVENT_SCHEMA && header.record_bytes == sizeof(IpexrunEvent) &&
         header.capacity == IPEXRUN_EVENT_CAPACITY;
}

template <typename T>
std::atomic_ref<T> atomic(volatile T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word));
}

void copy_text(char* to, std::size_t room, std::string_view from) {
  const std::size_t n = std::min(room - 1, from.size());
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

Error file_error(const std::string& doing, const std::string& path) {
  return Error{kExitFailure, doing + " event file '" + path + "': " + std::strerror(errno), "set TMPDIR to a writable folder"};
}

}  // namespace

bool EventWriter::open(const std::string& path) noexcept {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat info {};
  void* map = MAP_FAILED;
  if (::fstat(fd, &info) == 0 && static_cast<std::uint64_t>(info.st_size) >= IPEXRUN_EVENT_FILE_BYTES) {
    map = ::mmap(nullptr, IPEXRUN_EVENT_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  ::close(fd);
  if (map == MAP_FAILED) return false;
  auto* header = static_cast<IpexrunEventHeader*>(map);
  const std::int32_t self = ::getpid();
  bool mine = valid(*header);
  if (mine) {
    auto owner = atomic(header->owner_pid);
    std::int32_t seen = owner.load();
    for (;;) {
      if (seen == self) break;
      const bool free = seen == 0 || start_time_of(seen) != header->owner_start;
      if (!free) {
        mine = false;
        break;
      }
      if (owner.compare_exchange_strong(seen, self)) {
        header->owner_start = start_time_of(self);
        break;
      }
    }
  }
  if (!mine) {
    ::munmap(map, IPEXRUN_EVENT_FILE_BYTES);
    return false;
  }
  header_ = header;
  records_ = reinterpret_cast<IpexrunEvent*>(static_cast<char*>(map) + IPEXRUN_EVENT_HEADER_BYTES);
  pid_ = self;
  return true;
}

bool EventWriter::active() const noexcept { return header_ != nullptr && ::getpid() == pid_; }

void EventWriter::write(const IpexrunEvent& event, std::string_view text) noexcept {
  if (!active()) return;
  const std::uint64_t number = atomic(header_->next).fetch_add(1, std::memory_order_relaxed);
  IpexrunEvent& slot = records_[number % IPEXRUN_EVENT_CAPACITY];
  atomic(slot.sequence).exchange(0, std::memory_order_acq_rel);  // no store below may move before it
  slot.kind = event.kind;
  slot.flags = event.flags;
  slot.start_ns = event.start_ns;
  slot.duration_ns = event.duration_ns;
  slot.thread = event.thread;
  slot.reserved = 0;
  std::copy(std::begin(event.value), std::end(event.value), std::begin(slot.value));
  copy_text(slot.text, sizeof slot.text, text);
  atomic(slot.sequence).store(number + 1, std::memory_order_release);
}

void EventWriter::set_shim_state(IpexrunShimState state, std::string_view reason) noexcept {
  if (!active()) return;
  if (!reason.empty()) copy_text(header_->shim_reason, sizeof header_->shim_reason, reason);
  auto word = atomic(header_->shim_state);
  std::uint32_t seen = word.load();
  while (seen < static_cast<std::uint32_t>(state) && !word.compare_exchange_weak(seen, state)) {
  }
}

Status create_event_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return file_error("cannot create", path);
  IpexrunEventHeader header{};
  header.magic = IPEXRUN_EVENT_MAGIC;
  header.schema = IPEXRUN_EVENT_SCHEMA;
  header.capacity = IPEXRUN_EVENT_CAPACITY;
  header.record_bytes = sizeof(IpexrunEvent);
  const bool written = ::ftruncate(fd, static_cast<off_t>(IPEXRUN_EVENT_FILE_BYTES)) == 0 &&
                       ::pwrite(fd, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
  const Error failure = written ? Error{} : file_error("cannot write", path);
  ::close(fd);
  if (!written) return failure;
  return ok_status();
}

Result<EventSnapshot> read_events(const std::string& path, std::uint64_t from) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_error("cannot open", path);
  EventSnapshot out;
  if (::pread(fd, &out.header, sizeof out.header, 0) != static_cast<ssize_t>(sizeof out.header) || !valid(out.header)) {
    ::close(fd);
    return Error{kExitFailure, "not an event file of this version: '" + path + "'", ""};
  }
  const std::uint64_t end = out.header.next;
  const std::uint64_t oldest = end > IPEXRUN_EVENT_CAPACITY ? end - IPEXRUN_EVENT_CAPACITY : 0;
  if (from < oldest) out.lost += oldest - from;
  for (std::uint64_t number = std::max(from, oldest); number < end; ++number) {
    IpexrunEvent event{};
    const auto offset = static_cast<off_t>(IPEXRUN_EVENT_HEADER_BYTES + (number % IPEXRUN_EVENT_CAPACITY) * sizeof(IpexrunEvent));
    if (::pread(fd, &event, sizeof event, offset) != static_cast<ssize_t>(sizeof event) || event.sequence != number + 1) {
      ++out.lost;
      continue;
    }
    event.text[sizeof event.text - 1] = '\0';
    out.events.push_back(event);
  }
  ::close(fd);
  return out;
}

}  // namespace ipexrun
