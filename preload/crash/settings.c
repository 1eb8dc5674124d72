/* The environment, read once, before the program can change it. The names come from env_vars.def, as in the shim. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/crash/crash.h"

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

CrashSettings crash_settings = {.instance = -1};

static const char* value_of(char** environment, int variable) {
  const size_t length = strlen(kEnvNames[variable]);
  for (char** entry = environment; entry != NULL && *entry != NULL; ++entry)
    if (strncmp(*entry, kEnvNames[variable], length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  return "";
}

static bool flag_of(const char* text) {
  return strcasecmp(text, "1") == 0 || strcasecmp(text, "true") == 0 || strcasecmp(text, "on") == 0 || strcasecmp(text, "yes") == 0;
}

/* The header of the event file; NULL when there is none or it is not ours. It stays mapped: a crash is no time to open files. */
static IpexrunEventHeader* map_header(const char* path) {
  const int fd = path[0] == '\0' ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return NULL;
  struct stat file;
  IpexrunEventHeader* header = NULL;
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_size >= (off_t)IPEXRUN_EVENT_HEADER_BYTES) {
    void* memory = mmap(NULL, IPEXRUN_EVENT_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) header = memory;
  }
  close(fd);
  if (header != NULL && (header->magic != IPEXRUN_EVENT_MAGIC || header->schema != IPEXRUN_EVENT_SCHEMA)) {
    munmap(header, IPEXRUN_EVENT_HEADER_BYTES);
    header = NULL;
  }
  return header;
}

void crash_read_settings(char** environment) {
  CrashSettings* s = &crash_settings;
  if (getauxval(AT_SECURE) != 0 || flag_of(value_of(environment, kDisable))) return;
  s->on = flag_of(value_of(environment, kCrashReport));
  if (!s->on) return;
  const char* lib_dir = value_of(environment, kLibDir);
  if (strlen(lib_dir) < sizeof s->lib_dir) strcpy(s->lib_dir, lib_dir);
  const char* digit = value_of(environment, kInstance);
  for (; *digit >= '0' && *digit <= '9' && s->instance < 1000000; ++digit)
    s->instance = 10 * (s->instance < 0 ? 0 : s->instance) + (*digit - '0');
  s->header = map_header(value_of(environment, kEvents));
}
