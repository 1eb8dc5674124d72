/* The shim's ways in: the constructor, the wrapped main, and the three stubs of stubs_*.S. Each only decides whether now is a moment to
 * look; loaded.c says where the thread stands and gate.c does the rest. See preload/README.md for the whole rule. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <unistd.h>

#include "preload/shim/shim.h"

#define EXPORT __attribute__((visibility("default")))

extern char** environ;

void* (*shim_real_dlopen)(const char*, int);
void* (*shim_real_dlsym)(void*, const char*);
int (*shim_real_pthread_create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
int shim_settled;

static bool ready; /* the constructor has run and the shim has something to do */

/* "2.36" -> true. By hand: under AddressSanitizer atoi is the sanitizer's, which is not ready when it calls us. */
static bool libdl_is_in_libc(void) { /* since 2.34 */
  const char* version = gnu_get_libc_version();
  if (version[0] != '2' || version[1] != '.') return version[0] > '2';
  int minor = 0;
  for (const char* digit = version + 2; *digit >= '0' && *digit <= '9'; ++digit) minor = 10 * minor + (*digit - '0');
  return minor >= 34;
}

/* Before 2.34 a program may have no libpthread and yet ask whether pthread_create is there (a weak reference): ours is. */
static int no_threads(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  (void)thread, (void)attributes, (void)run, (void)argument;
  return EAGAIN;
}

/* May run before our constructor: a preloaded allocator, or a sanitizer, calls dlsym while it starts. So nothing here may fail and make
 * the loader allocate an error text: the version of dlsym is asked for by the name that this glibc has. */
void shim_find_real_functions(void) {
  if (shim_real_dlsym == NULL) {
    shim_real_dlsym = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", libdl_is_in_libc() ? "GLIBC_2.34" : "GLIBC_2.2.5");
  }
  if (shim_real_dlopen == NULL) shim_real_dlopen = (void* (*)(const char*, int))shim_real_dlsym(RTLD_NEXT, "dlopen");
  if (shim_real_pthread_create == NULL || shim_real_pthread_create == no_threads) {
    void* found = shim_real_dlsym(RTLD_NEXT, "pthread_create");
    shim_real_pthread_create = found != NULL ? (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))found : no_threads;
  }
}

static void settle(enum IpexrunShimState state, const char* reason) {
  const bool speaks = shim_report(state, reason);
  __atomic_store_n(&shim_settled, 1, __ATOMIC_RELEASE);
  if (state != IPEXRUN_SHIM_REFUSED) return;
  if (shim_settings.require_shim) {
    shim_log(kLogError, "%s; --require-shim: the program is stopped before it runs without the plugin", reason);
    _exit(1);
  }
  /* Workers of an instance meet the same torch; one line is enough. */
  shim_log(speaks ? kLogWarn : kLogInfo, "%s; stock PyTorch runs", reason);
}

enum { kMaxLooks = 10000 };

/* One look, by one thread at a time: a second thread, and the plugin's own calls while it starts, pass by. Nobody waits here. */
static void look(const void* return_address) {
  static int busy;
  static bool torch_reported;
  static int looks_in_vain;
  if (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE) != 0) return;
  const int saved_errno = errno;
  static ShimTorch torch; /* static: the caller's stack may be small */
  static char reason[512];
  if (__atomic_load_n(&shim_settled, __ATOMIC_ACQUIRE) == 0 && shim_find_torch(&torch)) {
    if (!torch_reported) {
      torch_reported = true;
      shim_report(IPEXRUN_SHIM_TORCH_SEEN, NULL);
      shim_log(kLogDebug, "found %s", torch.path);
    }
    reason[0] = '\0';
    switch (shim_pass_gate(&torch, return_address, reason, sizeof reason)) {
      case kGateActive:
        settle(IPEXRUN_SHIM_ACTIVE, NULL);
        break;
      case kGateRefused:
        settle(IPEXRUN_SHIM_REFUSED, reason);
        break;
      case kGateNotYet:
        /* A look costs microseconds; a program that asks for symbols all day must not pay for them all day. */
        if (++looks_in_vain == kMaxLooks) settle(IPEXRUN_SHIM_REFUSED, "found no safe moment to start beside torch");
        break;
    }
  }
  errno = saved_errno;
  __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}

/* ---- the stubs' halves in C ---- */

/* The only thread that ever called dlopen; 0 = none yet, kManyThreads = more than one. */
static uintptr_t loading_thread;
static const uintptr_t kManyThreads = ~(uintptr_t)0;

void shim_at_dlopen(const void* return_address) {
  shim_find_real_functions();
  const uintptr_t self = (uintptr_t)pthread_self();
  uintptr_t known = 0;
  if (!__atomic_compare_exchange_n(&loading_thread, &known, self, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) && known != self) {
    __atomic_store_n(&loading_thread, kManyThreads, __ATOMIC_RELAXED);
  }
  if (ready) look(return_address);
}

/* A program that loads a library once asks it for a symbol next: the moment right after torch's constructors. dlsym, like dlopen, takes the
 * loader's lock itself, so that we take it first adds no wait that was not there. */
void shim_at_dlsym(const void* return_address) {
  shim_find_real_functions();
  if (ready) look(return_address);
}

/* pthread_create does not take the loader's lock, so to take it here could make a program wait that did not: a constructor on another
 * thread may wait for the thread that this one is about to start. Safe when no other thread ever called dlopen. */
void shim_at_pthread_create(const void* return_address) {
  shim_find_real_functions();
  const uintptr_t known = __atomic_load_n(&loading_thread, __ATOMIC_RELAXED);
  if (ready && (known == 0 || known == (uintptr_t)pthread_self())) look(return_address);
}

/* ---- start of the process ---- */

static int (*program_main)(int, char**, char**);

/* Programs that link torch: every constructor has run, main has not. */
static int shim_main(int argc, char** argv, char** envp) {
  if (__atomic_load_n(&shim_settled, __ATOMIC_ACQUIRE) == 0) look(__builtin_return_address(0));
  return program_main(argc, argv, envp);
}

typedef int (*StartMain)(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void), void*);

/* Programs linked before glibc 2.34 pass their own init and fini, newer ones pass NULL; both go through unchanged, and the default version
 * of the real function takes both. */
EXPORT int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(void), void (*fini)(void),
                             void (*rtld_fini)(void), void* stack_end) {
  shim_find_real_functions();
  StartMain start = (StartMain)shim_real_dlsym(RTLD_NEXT, "__libc_start_main");
  if (ready) {
    program_main = main;
    main = shim_main;
  }
  return start(main, argc, argv, init, fini, rtld_fini, stack_end);
}

__attribute__((constructor)) static void begin(void) {
  shim_find_real_functions();
  shim_find_exec_functions();
  if (!shim_read_settings(environ)) {
    /* A libpthread that comes later (before 2.34) must still be found by the stub. */
    if (shim_real_pthread_create != no_threads) __atomic_store_n(&shim_settled, 1, __ATOMIC_RELEASE);
    return;
  }
  shim_apply_inherit(environ);
  shim_report(IPEXRUN_SHIM_LOADED, NULL);
  ready = true;
}
