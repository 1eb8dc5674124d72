/* The shim's view of the environment. It is the one place besides configs/contract/env.cpp that reads variables: it must be libc-only C
 * and must run before the program can change them. The names come from env_vars.def, so they cannot drift. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>

#include "preload/common/env_words.h"
#include "preload/shim/shim.h"

ShimSettings shim_settings = {.log = kLogWarn, .inherit = kInheritAll};

/* A value that does not fit is no value: a cut path would name another file. */
static void copy(char* to, size_t size, const char* text) {
  const size_t length = strlen(text);
  if (length < size) memcpy(to, text, length + 1);
}

static void take(int variable, const char* value) {
  ShimSettings* s = &shim_settings;
  switch (variable) {
    case kDisable:
      s->disabled = env_flag(value);
      break;
    case kRequireShim:
      s->require_shim = env_flag(value);
      break;
    case kLog: {
      static const char* const levels[] = {"error", "warn", "info", "debug"};
      for (int i = 0; i < 4; ++i) {
        if (strcasecmp(value, levels[i]) == 0) s->log = (ShimLogLevel)i;
      }
      break;
    }
    case kInherit:
      s->inherit = strcmp(value, "none") == 0 ? kInheritNone : strcmp(value, "python") == 0 ? kInheritPython : kInheritAll;
      break;
    case kEvents:
      copy(s->events, sizeof s->events, value);
      break;
    case kLibDir:
      copy(s->lib_dir, sizeof s->lib_dir, value);
      break;
    case kPreload:
      copy(s->preload, sizeof s->preload, value);
      break;
    default:
      break;
  }
}

bool shim_read_settings(char** environment) {
  /* A set-user-ID program loads only libraries of trusted folders; if ours is in one, its variables still must not steer it. */
  if (getauxval(AT_SECURE) != 0) return false;
  static const char prefix[] = "IPEXRUN_";
  for (char** entry = environment; entry != NULL && *entry != NULL; ++entry) {
    if (strncmp(*entry, prefix, sizeof prefix - 1) != 0) continue;
    for (int i = 0; i < kEnvVarCount; ++i) {
      const size_t length = strlen(kEnvNames[i]);
      if (strncmp(*entry, kEnvNames[i], length) == 0 && (*entry)[length] == '=') take(i, *entry + length + 1);
    }
  }
  if (shim_settings.disabled) {
    shim_settings.preload[0] = '\0'; /* nothing is ours: exec_filter.c leaves every environment alone */
    return false;
  }

  Dl_info self;
  if (dladdr((const void*)&shim_read_settings, &self) != 0 && self.dli_fname != NULL) {
    copy(shim_settings.self, sizeof shim_settings.self, self.dli_fname);
  }
  if (shim_settings.lib_dir[0] == '\0') {
    const char* slash = strrchr(shim_settings.self, '/');
    if (slash != NULL) {
      memcpy(shim_settings.lib_dir, shim_settings.self, (size_t)(slash - shim_settings.self));
      shim_settings.lib_dir[slash - shim_settings.self] = '\0';
    }
  }
  return true;
}
