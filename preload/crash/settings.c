/* The environment, read once, before the program can change it. The names come from env_vars.def, as in the shim. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/auxv.h>

#include "preload/common/env_words.h"
#include "preload/common/event_header.h"
#include "preload/crash/crash.h"

CrashSettings crash_settings = {.instance = -1};

static const char* value_of(char** environment, int variable) {
  const size_t length = strlen(kEnvNames[variable]);
  for (char** entry = environment; entry != NULL && *entry != NULL; ++entry)
    if (strncmp(*entry, kEnvNames[variable], length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  return "";
}

void crash_read_settings(char** environment) {
  CrashSettings* s = &crash_settings;
  if (getauxval(AT_SECURE) != 0 || env_flag(value_of(environment, kDisable))) return;
  s->on = env_flag(value_of(environment, kCrashReport));
  if (!s->on) return;
  const char* lib_dir = value_of(environment, kLibDir);
  if (strlen(lib_dir) < sizeof s->lib_dir) strcpy(s->lib_dir, lib_dir);
  const char* digit = value_of(environment, kInstance);
  for (; *digit >= '0' && *digit <= '9' && s->instance < 1000000; ++digit)
    s->instance = 10 * (s->instance < 0 ? 0 : s->instance) + (*digit - '0');
  s->header = map_event_header(value_of(environment, kEvents)); /* it stays mapped: a crash is no time to open files */
}
