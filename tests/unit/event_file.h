// An event file for tests of what the launcher reads in it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>

#include "configs/contract/event_ring.h"

namespace ipexrun {

/// An event file made by hand: what the child, the shim and the plugin would have left.
class EventFile {
 public:
  explicit EventFile(const std::string& path) : path_(path) {
    EXPECT_TRUE(create_event_file(path).ok());
    const int fd = ::open(path.c_str(), O_RDWR);
    map_ = static_cast<char*>(::mmap(nullptr, IPEXRUN_EVENT_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
  }
  ~EventFile() { ::munmap(map_, IPEXRUN_EVENT_FILE_BYTES); }
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  IpexrunEventHeader& header() { return *reinterpret_cast<IpexrunEventHeader*>(map_); }

  void add(std::uint32_t kind, const std::string& text, std::initializer_list<std::int64_t> values = {}) {
    IpexrunEvent event{};
    event.kind = kind;
    std::copy(values.begin(), values.end(), event.value);
    text.copy(event.text, sizeof event.text - 1);
    event.sequence = header().next + 1;
    std::memcpy(map_ + IPEXRUN_EVENT_HEADER_BYTES + header().next * sizeof event, &event, sizeof event);
    header().next = header().next + 1;
  }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  char* map_;
};

}  // namespace ipexrun
