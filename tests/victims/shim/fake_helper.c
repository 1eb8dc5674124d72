/* A library that is no part of torch, opened by torch's constructor; its own constructor opens, looks up and starts a thread. The return
 * addresses lie outside torch, and yet torch is not ready. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

static void* idle(void* argument) { return argument; }

__attribute__((constructor)) static void begin(void) {
  dlopen("libm.so.6", RTLD_NOW);
  dlsym(RTLD_DEFAULT, "free");
  pthread_t thread;
  if (pthread_create(&thread, NULL, idle, NULL) == 0) pthread_join(thread, NULL);
}
