/* The shim's view of the environment. It is the one place besides configs/contract/env.cpp that reads variables: it must be libc-only C
 * and must run before the program can change them. The names come from env_vars.def, so they cannot drift. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <strings.h>

#include "preload/common/env_words.h"
#include "preload/shim/shim.h"

ShimSettings shim_settings = {.log = kLogWarn, .inherit = kInheritAll};

static ShimLogLevel level_of(const char* word) {
  static const char* const levels[] = {"error", "warn", "info", "debug"};
  for (int i = 0; i < 4; ++i)
    if (strcasecmp(word, levels[i]) == 0) return (ShimLogLevel)i;
  return kLogWarn;
}

bool shim_read_settings(char** environment) {
  ShimSettings* s = &shim_settings;
  const char* values[kEnvVarCount];
  if (!env_values(environment, values)) return false;
  s->disabled = env_flag(values[kDisable]);
  s->require_shim = env_flag(values[kRequireShim]);
  s->log = level_of(values[kLog]);
  s->inherit = strcmp(values[kInherit], "none") == 0     ? kInheritNone
               : strcmp(values[kInherit], "python") == 0 ? kInheritPython
                                                         : kInheritAll;
  if (s->disabled) return false; /* nothing is ours: exec_filter.c leaves every environment alone */
  env_copy(s->events, sizeof s->events, values[kEvents]);
  env_copy(s->plugin_dir, sizeof s->plugin_dir, values[kPluginDir]);
  env_copy(s->preload, sizeof s->preload, values[kPreload]);

  Dl_info self;
  if (dladdr((const void*)&shim_read_settings, &self) != 0 && self.dli_fname != NULL) env_copy(s->self, sizeof s->self, self.dli_fname);
  env_lib_dir(s->lib_dir, sizeof s->lib_dir, values, s->self);
  return true;
}
