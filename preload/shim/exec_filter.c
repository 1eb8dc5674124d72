/* Compilers, linkers and git get no preloaded allocator: their lives are short, and a build that dies of a foreign malloc is blamed on us.
 * The decision falls where such a program is started, because after its exec the allocator is already in it. Everything else passes
 * through untouched; the shim itself stays in the list. execl, execle, execlp and fexecve are not covered (docs/limits-shim.md).
 *
 * These run in the child of vfork and in signal handlers: no allocation, no lock, only the stack. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>
#include <string.h>
#include <unistd.h>

#include "preload/shim/shim.h"

#define EXPORT __attribute__((visibility("default")))

extern char** environ;

typedef int (*Execve)(const char*, char* const[], char* const[]);
typedef int (*Execv)(const char*, char* const[]);
typedef int (*Spawn)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const[], char* const[]);

static Execve real_execve, real_execvpe;
static Execv real_execv, real_execvp;
static Spawn real_posix_spawn, real_posix_spawnp;

void shim_find_exec_functions(void) {
  if (real_posix_spawnp != NULL) return;
  shim_find_real_functions();
  real_execve = (Execve)shim_real_dlsym(RTLD_NEXT, "execve");
  real_execvpe = (Execve)shim_real_dlsym(RTLD_NEXT, "execvpe");
  real_execv = (Execv)shim_real_dlsym(RTLD_NEXT, "execv");
  real_execvp = (Execv)shim_real_dlsym(RTLD_NEXT, "execvp");
  real_posix_spawn = (Spawn)shim_real_dlsym(RTLD_NEXT, "posix_spawn");
  real_posix_spawnp = (Spawn)shim_real_dlsym(RTLD_NEXT, "posix_spawnp");
}

static const char kName[] = "LD_PRELOAD=";

static bool is_preload(const char* entry) { return strncmp(entry, kName, sizeof kName - 1) == 0; }

/* How many pointers a filtered copy of `environment` needs, its NULL included; 0 when `path` gets the environment as it is. */
static size_t copy_needed(const char* path, char* const environment[]) {
  enum { kMaxEntries = 8192 };
  if (shim_settings.preload[0] == '\0' || path == NULL || environment == NULL || !shim_is_build_tool(path)) return 0;
  size_t entries = 0;
  bool needed = false;
  for (; environment[entries] != NULL; ++entries) {
    if (entries == kMaxEntries) return 0;
    if (!is_preload(environment[entries])) continue;
    if (strlen(environment[entries]) >= kShimPreloadBytes) return 0;
    needed = true;
  }
  return needed ? entries + 1 : 0;
}

/* Copies the pointers; the first LD_PRELOAD is replaced by `text`, an empty one and further ones (which nobody reads) are left out. */
static void fill_copy(char* const environment[], char** copy, char* text) {
  bool done = false;
  for (; *environment != NULL; ++environment) {
    if (!is_preload(*environment)) {
      *copy++ = *environment;
    } else if (!done) {
      done = true;
      memcpy(text, kName, sizeof kName - 1);
      shim_filter_preload(*environment + sizeof kName - 1, true, text + sizeof kName - 1);
      if (text[sizeof kName - 1] != '\0') *copy++ = text;
    }
  }
  *copy = NULL;
}

EXPORT int execve(const char* path, char* const argv[], char* const envp[]) {
  shim_find_exec_functions();
  const size_t entries = copy_needed(path, envp);
  if (entries == 0) return real_execve(path, argv, envp);
  char* copy[entries];
  char text[kShimPreloadBytes];
  fill_copy(envp, copy, text);
  return real_execve(path, argv, copy);
}

EXPORT int execvpe(const char* file, char* const argv[], char* const envp[]) {
  shim_find_exec_functions();
  const size_t entries = copy_needed(file, envp);
  if (entries == 0) return real_execvpe(file, argv, envp);
  char* copy[entries];
  char text[kShimPreloadBytes];
  fill_copy(envp, copy, text);
  return real_execvpe(file, argv, copy);
}

EXPORT int execv(const char* path, char* const argv[]) {
  shim_find_exec_functions();
  return copy_needed(path, environ) == 0 ? real_execv(path, argv) : execve(path, argv, environ);
}

EXPORT int execvp(const char* file, char* const argv[]) {
  shim_find_exec_functions();
  return copy_needed(file, environ) == 0 ? real_execvp(file, argv) : execvpe(file, argv, environ);
}

static int spawn(Spawn real, pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                 char* const argv[], char* const envp[]) {
  const size_t entries = copy_needed(path, envp);
  if (entries == 0) return real(pid, path, actions, attributes, argv, envp);
  char* copy[entries];
  char text[kShimPreloadBytes];
  fill_copy(envp, copy, text);
  return real(pid, path, actions, attributes, argv, copy);
}

EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                       char* const argv[], char* const envp[]) {
  shim_find_exec_functions();
  return spawn(real_posix_spawn, pid, path, actions, attributes, argv, envp);
}

EXPORT int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                        char* const argv[], char* const envp[]) {
  shim_find_exec_functions();
  return spawn(real_posix_spawnp, pid, file, actions, attributes, argv, envp);
}
