/* Stands for libtorch_cpu.so: the symbol the gate asks for, and a constructor that does what torch's own does in the middle of its work -
 * it opens a library whose constructor opens another one, asks for symbols and starts a thread. Built several times:
 *   FAKE_TORCH_VERSION  what aoti_torch_abi_version returns (not defined: there is no such symbol) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* 0: the constructor has not begun, 1: it runs, 2: it is done. */
static volatile int state;

EXPORT int fake_torch_state(void) { return state; }

/* Set while fake_torch_run runs: the program is inside torch. */
static volatile int inside;

EXPORT int fake_torch_inside(void) { return inside; }

EXPORT void fake_torch_run(void (*callback)(void)) {
  ++inside;
  callback();
  --inside;
}

#ifdef FAKE_TORCH_VERSION
EXPORT uint64_t aoti_torch_abi_version(void) { return FAKE_TORCH_VERSION; }
#endif

static void* idle(void* argument) { return argument; }

static void* load_things(void* argument) {
  dlopen("libm.so.6", RTLD_NOW);
  dlsym(RTLD_DEFAULT, "malloc");
  return argument;
}

__attribute__((constructor)) static void begin(void) {
  state = 1;
  load_things(NULL);
  dlopen("libfake_helper.so", RTLD_NOW); /* by this library's own RUNPATH of $ORIGIN */
  pthread_t thread;
  if (pthread_create(&thread, NULL, idle, NULL) == 0) pthread_join(thread, NULL);
  const char* slow_ms = getenv("FAKE_TORCH_SLOW_MS");
  if (slow_ms != NULL) usleep((useconds_t)atoi(slow_ms) * 1000);
  load_things(NULL);
  state = 2;
}
