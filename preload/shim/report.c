/* How the shim speaks: one line on stderr, and its state in the header of the event file. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/shim/shim.h"

void shim_log(ShimLogLevel level, const char* format, ...) {
  if (level > shim_settings.log) return;
  static const char prefix[] = "ipexrun: ";
  char line[1024];
  memcpy(line, prefix, sizeof prefix - 1);
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line + sizeof prefix - 1, sizeof line - sizeof prefix, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  size_t total = sizeof prefix - 1 + (size_t)length;
  if (total > sizeof line - 2) total = sizeof line - 2;
  line[total++] = '\n';
  /* One write: lines of several processes must not mix. A closed stderr is the program's choice. */
  if (write(STDERR_FILENO, line, total) < 0) return;
}

/* The header of the event file, mapped shared; NULL when there is none or it is not ours. */
static IpexrunEventHeader* map_header(void) {
  const int fd = open(shim_settings.events, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return NULL;
  struct stat file;
  IpexrunEventHeader* header = NULL;
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_size >= (off_t)IPEXRUN_EVENT_HEADER_BYTES) {
    void* memory = mmap(NULL, IPEXRUN_EVENT_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) header = memory;
  }
  close(fd);
  if (header != NULL && (header->magic != IPEXRUN_EVENT_MAGIC || header->schema != IPEXRUN_EVENT_SCHEMA)) {
    munmap(header, IPEXRUN_EVENT_HEADER_BYTES);
    header = NULL;
  }
  return header;
}

static bool raise_state(IpexrunEventHeader* header, uint32_t state) {
  uint32_t seen = __atomic_load_n(&header->shim_state, __ATOMIC_ACQUIRE);
  while (seen < state) {
    if (__atomic_compare_exchange_n(&header->shim_state, &seen, state, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return true;
  }
  return false;
}

bool shim_report(enum IpexrunShimState state, const char* reason) {
  /* The pid, not a flag: a forked child inherits the memory, but not the right to speak for its parent. */
  static pid_t reporter;
  if (shim_settings.events[0] == '\0') return true;
  IpexrunEventHeader* header = map_header();
  if (header == NULL) return true;
  const pid_t self = getpid();
  const bool is_root = header->root_pid == self;
  bool speaks = is_root || reporter == self;
  if (state == IPEXRUN_SHIM_TORCH_SEEN) {
    /* The first process that raises it has met torch first. */
    if (raise_state(header, state)) speaks = true;
    if (speaks) reporter = self;
  } else if (speaks) {
    if (reason != NULL && __atomic_load_n(&header->shim_state, __ATOMIC_ACQUIRE) < (uint32_t)state) {
      strncpy(header->shim_reason, reason, sizeof header->shim_reason - 1);
      header->shim_reason[sizeof header->shim_reason - 1] = '\0';
    }
    raise_state(header, state);
  }
  munmap(header, IPEXRUN_EVENT_HEADER_BYTES);
  return speaks;
}
