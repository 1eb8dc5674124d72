/* What is mapped, and where the calling thread stands.
 *
 * torch is usable when its constructors have run. The loader keeps its (recursive) lock while it runs constructors, so another thread
 * that asks for a handle waits; the thread that runs them does not. That thread is recognised by its own stack: as long as one of its
 * frames lies in the dynamic loader, it is inside dlopen, dlclose or the start of the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>

#include "preload/shim/shim.h"

enum { kMaxFrames = 4096, kMaxRanges = 48 };

static const char* base_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

static bool starts_with(const char* text, const char* prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

/* ---- finding torch ---- */

typedef struct Look {
  unsigned long long adds; /* objects mapped since the process began, from the loader */
  unsigned long long known_adds;
  ShimTorch* torch;
} Look;

static int look_at_object(struct dl_phdr_info* info, size_t size, void* data) {
  Look* look = data;
  if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds) {
    look->adds = info->dlpi_adds;
    if (look->adds == look->known_adds) return 1;
  }
  const char* path = info->dlpi_name;
  if (path == NULL || !starts_with(base_name(path), "libtorch_cpu.so")) return 0;
  ShimTorch* torch = look->torch;
  if (torch->count == 0) {
    const size_t length = strlen(path);
    if (length >= sizeof torch->path) return 0;
    memcpy(torch->path, path, length + 1);
  }
  ++torch->count;
  return 0;
}

bool shim_find_torch(ShimTorch* torch) {
  static unsigned long long adds_without_torch;
  Look look = {.adds = 0, .known_adds = __atomic_load_n(&adds_without_torch, __ATOMIC_RELAXED), .torch = torch};
  torch->count = 0;
  torch->path[0] = '\0';
  dl_iterate_phdr(look_at_object, &look);
  if (torch->count == 0) __atomic_store_n(&adds_without_torch, look.adds, __ATOMIC_RELAXED);
  return torch->count != 0;
}

/* ---- where the thread stands ---- */

struct _Unwind_Context;
typedef int (*UnwindTrace)(struct _Unwind_Context*, void*);
static int (*unwind_backtrace)(UnwindTrace, void*);
static uintptr_t (*unwind_get_ip)(struct _Unwind_Context*);

static uintptr_t loader_base;

bool shim_has_unwinder(void) { return unwind_backtrace != NULL; }

bool shim_find_unwinder(void* torch_handle) {
  if (unwind_backtrace != NULL) return true;
  /* AT_BASE is no help: it is 0 in a program that was started as an argument of the loader. */
  const struct r_debug* debug = shim_real_dlsym(RTLD_DEFAULT, "_r_debug");
  if (debug == NULL || debug->r_ldbase == 0) return false;
  loader_base = debug->r_ldbase;
  /* libgcc_s is not linked: it would come with every program. torch needs it, so it is there when it is wanted. */
  unwind_get_ip = (uintptr_t(*)(struct _Unwind_Context*))shim_real_dlsym(torch_handle, "_Unwind_GetIP");
  unwind_backtrace = (int (*)(UnwindTrace, void*))shim_real_dlsym(torch_handle, "_Unwind_Backtrace");
  if (unwind_get_ip == NULL) unwind_backtrace = NULL;
  return unwind_backtrace != NULL;
}

typedef enum { kForbidden = 1, kForbiddenAsCaller = 2, kStackBottom = 4 } RangeKind;

typedef struct Range {
  uintptr_t begin, end;
  unsigned kind;
} Range;

typedef struct Ranges {
  int count;
  bool overflow;
  uintptr_t entry; /* of the executable: _start */
  Range range[kMaxRanges];
} Ranges;

/* The loader: never start under it. torch and OpenMP runtimes: a thread of theirs may hold a lock or stand in a parallel region.
 * libtorch_python only as the direct caller: its frames lie under everything that a Python program calls during `import torch`. */
static unsigned kind_of(const char* path, uintptr_t base) {
  const char* name = base_name(path);
  if (base == loader_base) return kForbidden;
  if (starts_with(name, "libtorch_python.so")) return kForbiddenAsCaller;
  static const char* const forbidden[] = {"libtorch_cpu.so", "libtorch.so", "libtorch_", "libc10", "libgomp", "libiomp5", "libomp.so"};
  for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; ++i) {
    if (starts_with(name, forbidden[i])) return kForbidden;
  }
  return starts_with(name, "libc.so.6") || starts_with(name, "libpthread.so.0") ? kStackBottom : 0;
}

static int collect_ranges(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  Ranges* ranges = data;
  const unsigned kind = info->dlpi_name == NULL ? 0 : kind_of(info->dlpi_name, info->dlpi_addr);
  if (kind == 0) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_X) == 0) continue;
    if (ranges->count == kMaxRanges) {
      ranges->overflow = true;
      return 1;
    }
    const uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
    ranges->range[ranges->count++] = (Range){begin, begin + segment->p_memsz, kind};
  }
  return 0;
}

static unsigned kind_at(const Ranges* ranges, uintptr_t address) {
  unsigned kind = 0;
  for (int i = 0; i < ranges->count; ++i) {
    if (address >= ranges->range[i].begin && address < ranges->range[i].end) kind |= ranges->range[i].kind;
  }
  return kind;
}

typedef struct Walk {
  const Ranges* ranges;
  int frames;
  bool forbidden;
  uintptr_t last;
} Walk;

static int visit_frame(struct _Unwind_Context* context, void* data) {
  Walk* walk = data;
  const uintptr_t address = unwind_get_ip(context);
  if (address == 0) return 0;
  walk->last = address;
  walk->forbidden = (kind_at(walk->ranges, address - 1) & kForbidden) != 0;
  const int stop = 1; /* any value but 0 ends the walk */
  return walk->forbidden || ++walk->frames >= kMaxFrames ? stop : 0;
}

bool shim_thread_is_outside(const void* return_address) {
  if (unwind_backtrace == NULL) return false;
  Ranges ranges = {.entry = getauxval(AT_ENTRY)};
  dl_iterate_phdr(collect_ranges, &ranges);
  if (ranges.overflow || (kind_at(&ranges, (uintptr_t)return_address) & (kForbidden | kForbiddenAsCaller)) != 0) return false;
  Walk walk = {.ranges = &ranges};
  unwind_backtrace(visit_frame, &walk);
  if (walk.forbidden || walk.frames >= kMaxFrames) return false;
  /* A walk that met code without unwind tables ends early and proves nothing. A whole one ends in _start or in libc's clone. */
  enum { kStartBytes = 256 };
  const bool in_start = walk.last >= ranges.entry && walk.last < ranges.entry + kStartBytes;
  return in_start || (kind_at(&ranges, walk.last) & kStackBottom) != 0;
}
