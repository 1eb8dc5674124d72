/* The header of the event file, for libc-only C that is loaded into programs. */
#ifndef IPEXRUN_PRELOAD_COMMON_EVENT_HEADER_H_
#define IPEXRUN_PRELOAD_COMMON_EVENT_HEADER_H_

#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "configs/contract/event.h"

/* The header of the event file `path`, mapped shared; NULL when the path is empty, there is none, or it is not ours. */
static inline IpexrunEventHeader* map_event_header(const char* path) {
  const int fd = path[0] == '\0' ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return NULL;
  struct stat file;
  IpexrunEventHeader* header = NULL;
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_size >= (off_t)IPEXRUN_EVENT_HEADER_BYTES) {
    void* memory = mmap(NULL, IPEXRUN_EVENT_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) header = (IpexrunEventHeader*)memory;
  }
  close(fd);
  if (header != NULL && (header->magic != IPEXRUN_EVENT_MAGIC || header->schema != IPEXRUN_EVENT_SCHEMA)) {
    munmap(header, IPEXRUN_EVENT_HEADER_BYTES);
    header = NULL;
  }
  return header;
}

#endif
