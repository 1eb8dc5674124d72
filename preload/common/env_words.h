/* The variables of env_vars.def for libc-only C that is loaded into programs: the shim and the crash library. They read the environment by
 * themselves, before the program can change it; only their settings.c include this. */
#ifndef IPEXRUN_PRELOAD_COMMON_ENV_WORDS_H_
#define IPEXRUN_PRELOAD_COMMON_ENV_WORDS_H_

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>

enum {
#define IPEXRUN_ENV_VAR(id, name, type, fallback, set_by, read_by, inherited, help) id,
#include "configs/contract/env_vars.def"
#undef IPEXRUN_ENV_VAR
  kEnvVarCount
};

static const char* const kEnvNames[] = {
#define IPEXRUN_ENV_VAR(id, name, type, fallback, set_by, read_by, inherited, help) name,
#include "configs/contract/env_vars.def"
#undef IPEXRUN_ENV_VAR
};

/* The value of each variable, "" = unset. Of several entries with one name the first counts, as for getenv(3), by which the plugin reads
 * them. False in a set-user-ID program: it loads only libraries of trusted folders; if ours is in one, its variables still must not
 * steer it. */
static inline bool env_values(char** environment, const char* values[kEnvVarCount]) {
  static const char prefix[] = "IPEXRUN_"; /* of all that is asked for here */
  for (int i = 0; i < kEnvVarCount; ++i) values[i] = NULL;
  for (char** entry = environment; entry != NULL && *entry != NULL; ++entry) {
    if (strncmp(*entry, prefix, sizeof prefix - 1) != 0) continue;
    for (int i = 0; i < kEnvVarCount; ++i) {
      const size_t length = strlen(kEnvNames[i]);
      if (values[i] == NULL && strncmp(*entry, kEnvNames[i], length) == 0 && (*entry)[length] == '=') values[i] = *entry + length + 1;
    }
  }
  for (int i = 0; i < kEnvVarCount; ++i)
    if (values[i] == NULL) values[i] = "";
  return getauxval(AT_SECURE) == 0;
}

/* As env::get_flag() in configs/contract/env.cpp. */
static inline bool env_flag(const char* text) {
  return strcasecmp(text, "1") == 0 || strcasecmp(text, "true") == 0 || strcasecmp(text, "on") == 0 || strcasecmp(text, "yes") == 0;
}

/* A value that does not fit is no value: a cut path would name another file. */
static inline void env_copy(char* to, size_t size, const char* text) {
  const size_t length = strlen(text);
  if (length < size) memcpy(to, text, length + 1);
}

/* The folder that IPEXRUN_LIB_DIR names, else that of the library `self`; "" = unknown. */
static inline void env_lib_dir(char* to, size_t size, const char* const values[kEnvVarCount], const char* self) {
  to[0] = '\0';
  env_copy(to, size, values[kLibDir]);
  if (to[0] != '\0') return;
  env_copy(to, size, self);
  char* slash = strrchr(to, '/');
  *(slash == NULL ? to : slash) = '\0';
}

#endif
