#define _GNU_SOURCE
#include "python/hook/stacks.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { LEAST_BYTES = 1 << 20 };

/* Where the stack of this thread ends and begins; asked for once, since for the main thread a file of /proc is read. */
static _Thread_local struct { uintptr_t low, high; } stack;

static void look(void) {
  pthread_attr_t attributes;
  void* low = NULL;
  size_t bytes = 0;
  stack.low = 1, stack.high = UINTPTR_MAX; /* unknown: as large as it usually is */
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  if (pthread_attr_getstack(&attributes, &low, &bytes) == 0 && bytes > 0) {
    stack.low = (uintptr_t)low;
    stack.high = stack.low + bytes;
  }
  pthread_attr_destroy(&attributes);
}

int ipexrun_has_stack(void) {
  const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  if (stack.high == 0) look();
  return here >= stack.low && here < stack.high && here - stack.low >= LEAST_BYTES;
}
