/* Stands for the plugin: appends one line a start to the file FAKE_LOG, with what it saw of torch at that moment, and returns what
 * FAKE_PLUGIN_ANSWERS says ("2,2,0": not yet twice, then active; default 0). Runs on real torch too: the fake's symbols are weak. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/plugin_abi.h"

__attribute__((weak)) int fake_torch_state(void);
__attribute__((weak)) int fake_torch_inside(void);

static void* idle(void* argument) { return argument; }

__attribute__((visibility("default"))) int ipexrun_plugin_start(const IpexrunStart* start) {
  static int starts;
  ++starts;
  /* A real plugin opens libraries and asks for symbols: the shim must not come back to itself. */
  dlopen("libm.so.6", RTLD_NOW);
  dlsym(RTLD_DEFAULT, "malloc");
  pthread_t thread;
  if (pthread_create(&thread, NULL, idle, NULL) == 0) pthread_join(thread, NULL);

  int answer = 0;
  const char* answers = getenv("FAKE_PLUGIN_ANSWERS");
  for (int i = 1; answers != NULL && i < starts && strchr(answers, ',') != NULL; ++i) answers = strchr(answers, ',') + 1;
  if (answers != NULL) answer = atoi(answers);
  if (answer != 0) snprintf(start->reason, start->reason_bytes, "the fake plugin answers %d", answer);

  const char* path = getenv("FAKE_LOG");
  if (path == NULL) return answer;
  char line[512];
  const int length =
      snprintf(line, sizeof line, "start abi=%u size=%d version=%llx state=%d inside=%d pid=%d main_thread=%d answer=%d\n", start->abi,
               start->size == sizeof *start, (unsigned long long)start->torch_version, fake_torch_state ? fake_torch_state() : -1,
               fake_torch_inside ? fake_torch_inside() : -1, getpid(), getpid() == (pid_t)syscall(SYS_gettid), answer);
  const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (fd < 0 || write(fd, line, (size_t)length) != length) abort();
  close(fd);
  return answer;
}
