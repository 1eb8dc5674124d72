/* A signal stack for every thread: a handler cannot run on a stack that is full. sigaltstack(2) holds for one thread, so threads are met
 * where they begin, in pthread_create. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "preload/crash/crash.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

enum { kStackBytes = 64 * 1024 };

typedef int (*CreateThread)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

static pthread_key_t stack_key;
static bool have_key;

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* What the kernel pushes (11 KB with AMX) comes on top of what the handler needs. */
static size_t stack_bytes(void) {
  const size_t page = page_bytes();
  return (kStackBytes + getauxval(AT_MINSIGSTKSZ) + page - 1) / page * page;
}

/* At the end of a thread. A stack that the program put in place of ours is not touched. */
static void give_back(void* stack) {
  stack_t now;
  if (sigaltstack(NULL, &now) == 0 && now.ss_sp == stack) {
    const stack_t none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, NULL);
  }
  munmap((char*)stack - page_bytes(), stack_bytes() + page_bytes());
}

void crash_prepare_thread(void) {
  const int saved_errno = errno;
  stack_t now;
  if (sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_DISABLE) != 0) {
    /* A page that faults lies below it: an overflow of this stack, too, must be a crash and not a wrong value elsewhere. */
    char* memory = mmap(NULL, stack_bytes() + page_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) {
      const stack_t own = {.ss_sp = memory + page_bytes(), .ss_size = stack_bytes()};
      if (mprotect(own.ss_sp, own.ss_size, PROT_READ | PROT_WRITE) != 0 || sigaltstack(&own, NULL) != 0) {
        munmap(memory, stack_bytes() + page_bytes());
      } else {
        if (!have_key) have_key = pthread_key_create(&stack_key, give_back) == 0; /* the first call is the constructor's */
        if (have_key) pthread_setspecific(stack_key, own.ss_sp);
      }
    }
  }
  errno = saved_errno;
}

typedef struct Start {
  void* (*run)(void*);
  void* argument;
} Start;

/* The last call is a jump: no frame of ours stays on the thread's stack. */
static void* begin_thread(void* start) {
  const Start copy = *(Start*)start;
  free(start);
  crash_prepare_thread();
  return copy.run(copy.argument);
}

__attribute__((visibility("default"))) int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                                                          void* argument) {
  static CreateThread real;
  CreateThread create = __atomic_load_n(&real, __ATOMIC_RELAXED);
  if (create == NULL) {
    create = (CreateThread)dlsym(RTLD_NEXT, "pthread_create");
    if (create == NULL) return EAGAIN; /* before glibc 2.34, in a program without libpthread */
    __atomic_store_n(&real, create, __ATOMIC_RELAXED);
  }
  Start* start = crash_settings.on ? malloc(sizeof *start) : NULL;
  if (start == NULL) return create(thread, attributes, run, argument);
  *start = (Start){run, argument};
  const int failure = create(thread, attributes, begin_thread, start);
  if (failure != 0) free(start);
  return failure;
}
