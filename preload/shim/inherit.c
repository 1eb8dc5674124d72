/* Which descendants keep the preload: LD_PRELOAD of this process's own environment, edited in place before main, so that every way to
 * start a child (environ, a copy of it made by Python, an explicit envp) sees the same. Only entries named by IPEXRUN_PRELOAD go. */
#define _GNU_SOURCE
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "preload/shim/shim.h"

static bool is_separator(char c) { return c == ':' || c == ' '; /* ld.so(8): both separate entries */ }

static bool list_has(const char* list, const char* entry, size_t length) {
  while (*list != '\0') {
    const size_t n = strcspn(list, ": ");
    if (n == length && memcmp(list, entry, n) == 0) return true;
    list += n;
    while (is_separator(*list)) ++list;
  }
  return false;
}

void shim_filter_preload(const char* list, bool allocator_only, char* out) {
  char* end = out;
  while (*list != '\0') {
    const size_t length = strcspn(list, ": ");
    const bool ours = length != 0 && list_has(shim_settings.preload, list, length);
    const bool shim = length == strlen(shim_settings.self) && memcmp(list, shim_settings.self, length) == 0;
    if (length != 0 && !(ours && !(allocator_only && shim))) {
      if (end != out) *end++ = ':';
      memmove(end, list, length);
      end += length;
    }
    list += length;
    while (is_separator(*list)) ++list;
  }
  *end = '\0';
}

static const char* program_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

/* True when `name` is `stem`, or `stem` followed by a version or target suffix: python3.11, gcc-12, clang++-16. */
static bool is_named(const char* name, const char* stem) {
  const size_t length = strlen(stem);
  return strncmp(name, stem, length) == 0 && strspn(name + length, "0123456789.-") == strlen(name + length);
}

static bool is_one_of(const char* name, const char* const* stems) {
  for (; *stems != NULL; ++stems) {
    if (is_named(name, *stems)) return true;
  }
  return false;
}

static bool is_interpreter(const char* name) { return strncmp(name, "python", 6) == 0 || strncmp(name, "pypy", 4) == 0; }

/* A program that embeds Python starts Python's workers. Only one that links libpython is seen: this runs before main. */
static int is_libpython(struct dl_phdr_info* info, size_t size, void* unused) {
  (void)size;
  (void)unused;
  return info->dlpi_name != NULL && strncmp(program_name(info->dlpi_name), "libpython", 9) == 0;
}

/* Programs that exist to start another one: they must hand the preload on to a Python below them. */
static bool is_wrapper(const char* name) {
  static const char* const wrappers[] = {"sh",      "bash",
                                         "dash",    "zsh",
                                         "ksh",     "fish",
                                         "busybox", "env",
                                         "nice",    "ionice",
                                         "time",    "timeout",
                                         "stdbuf",  "setsid",
                                         "nohup",   "xargs",
                                         "taskset", "numactl",
                                         "sudo",    "mpirun",
                                         "mpiexec", "orterun",
                                         "prterun", "prted",
                                         "orted",   "hydra_pmi_proxy",
                                         "srun",    NULL};
  return is_one_of(name, wrappers);
}

bool shim_is_build_tool(const char* path) {
  static const char* const tools[] = {"gcc",         "g++",    "cc",      "c++",  "cpp",  "cc1",    "cc1plus", "collect2", "lto1",
                                      "lto-wrapper", "clang",  "clang++", "icx",  "icpx", "nvcc",   "as",      "ld",       "ld.bfd",
                                      "ld.gold",     "ld.lld", "lld",     "mold", "ar",   "ranlib", "git",     NULL};
  const char* name = program_name(path);
  /* Cross compilers carry their target in front: x86_64-linux-gnu-g++-12. */
  static const char triple[] = "-linux-gnu-";
  const char* target = strstr(name, triple);
  return is_one_of(target == NULL ? name : target + sizeof triple - 1, tools);
}

void shim_apply_inherit(char** environment) {
  if (shim_settings.inherit == kInheritAll || shim_settings.preload[0] == '\0') return;
  if (shim_settings.inherit == kInheritPython) {
    char path[kShimPathBytes];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = '\0';
    const char* program = program_name(path);
    if (is_interpreter(program) || is_wrapper(program) || dl_iterate_phdr(is_libpython, NULL) != 0) return;
  }
  static const char name[] = "LD_PRELOAD=";
  for (char** entry = environment; *entry != NULL; ++entry) {
    if (strncmp(*entry, name, sizeof name - 1) != 0) continue;
    char* value = *entry + sizeof name - 1;
    shim_filter_preload(value, false, value); /* in place: the result is never longer */
    if (*value != '\0') continue;
    for (char** move = entry; *move != NULL; ++move) move[0] = move[1];
    --entry;
  }
}
