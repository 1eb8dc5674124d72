/* How the shim speaks: one line on stderr, and its state in the header of the event file. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "preload/common/event_header.h"
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
  IpexrunEventHeader* header = map_event_header(shim_settings.events);
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
