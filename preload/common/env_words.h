/* The names of env_vars.def for libc-only C that is loaded into programs: the shim and the crash library. They read the environment by
 * themselves, before the program can change it; only their settings.c include this. */
#ifndef IPEXRUN_PRELOAD_COMMON_ENV_WORDS_H_
#define IPEXRUN_PRELOAD_COMMON_ENV_WORDS_H_

#include <stdbool.h>
#include <strings.h>

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

/* As env::get_flag() in configs/contract/env.cpp. */
static inline bool env_flag(const char* text) {
  return strcasecmp(text, "1") == 0 || strcasecmp(text, "true") == 0 || strcasecmp(text, "on") == 0 || strcasecmp(text, "yes") == 0;
}

#endif
