/* The environment, read once, before the program can change it. The names come from env_vars.def, as in the shim. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

#include "preload/common/env_words.h"
#include "preload/common/event_header.h"
#include "preload/crash/crash.h"

CrashSettings crash_settings = {.instance = -1};

/* The path of this library as /proc/self/maps shows it: without symbolic links. */
static void find_self(char path[PATH_MAX]) {
  Dl_info self;
  if (dladdr((const void*)&crash_read_settings, &self) == 0 || self.dli_fname == NULL || realpath(self.dli_fname, path) == NULL)
    path[0] = '\0';
}

void crash_read_settings(char** environment) {
  CrashSettings* s = &crash_settings;
  const char* values[kEnvVarCount];
  if (!env_values(environment, values) || env_flag(values[kDisable])) return;
  s->on = env_flag(values[kCrashReport]);
  if (!s->on) return;
  char self[PATH_MAX];
  find_self(self);
  env_lib_dir(s->lib_dir, sizeof s->lib_dir, values, self);
  const char* digit = values[kInstance];
  for (; *digit >= '0' && *digit <= '9' && s->instance < 1000000; ++digit)
    s->instance = 10 * (s->instance < 0 ? 0 : s->instance) + (*digit - '0');
  s->header = map_event_header(values[kEvents]); /* it stays mapped: a crash is no time to open files */
}
