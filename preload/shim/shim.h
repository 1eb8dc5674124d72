/* What the shim's files share. Every function here may be called on any thread of the program; none keeps a lock over a call. */
#ifndef IPEXRUN_PRELOAD_SHIM_SHIM_H_
#define IPEXRUN_PRELOAD_SHIM_SHIM_H_

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "configs/contract/event.h"

/* ---- entry.c: the real functions, found once; and whether anything is left to do (also read by the stubs) ---- */

extern void* (*shim_real_dlopen)(const char*, int);
extern void* (*shim_real_dlsym)(void*, const char*);
extern int (*shim_real_pthread_create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
extern int shim_settled;

/* Fills the pointers above. Safe at any time after relocation, also before the constructor. */
void shim_find_real_functions(void);

/* ---- exec_filter.c ---- */

/* Finds the real exec and posix_spawn functions; done in the constructor, because a child of vfork must not. */
void shim_find_exec_functions(void);

/* ---- settings.c: the environment, copied before the program can change it ---- */

enum { kShimPathBytes = 4096, kShimPreloadBytes = 8192 };

typedef enum { kLogError, kLogWarn, kLogInfo, kLogDebug } ShimLogLevel;
typedef enum { kInheritAll, kInheritPython, kInheritNone } ShimInherit;

typedef struct ShimSettings {
  bool disabled;                   /* IPEXRUN_DISABLE */
  bool require_shim;               /* IPEXRUN_REQUIRE_SHIM */
  ShimLogLevel log;                /* IPEXRUN_LOG */
  ShimInherit inherit;             /* IPEXRUN_INHERIT */
  char events[kShimPathBytes];     /* IPEXRUN_EVENTS, "" = none */
  char lib_dir[kShimPathBytes];    /* IPEXRUN_LIB_DIR, else the folder of this library, "" = unknown */
  char plugin_dir[kShimPathBytes]; /* IPEXRUN_PLUGIN_DIR, "" = none */
  char preload[kShimPreloadBytes]; /* IPEXRUN_PRELOAD, "" = none */
  char self[kShimPathBytes];       /* path of this library as the loader knows it */
} ShimSettings;

extern ShimSettings shim_settings;

/* Fills shim_settings from `environment`; once, in the constructor. Returns false where the shim must do nothing at all. */
bool shim_read_settings(char** environment);

/* ---- inherit.c: which descendants keep the preload ---- */

/* Applies IPEXRUN_INHERIT to this process's own LD_PRELOAD, in place. Called once, before main. */
void shim_apply_inherit(char** environment);

/* Copies `list` (LD_PRELOAD syntax) to `out`, of at least its size, without our entries: all of them, or only the allocator. */
void shim_filter_preload(const char* list, bool allocator_only, char* out);

/* True for compilers, assemblers, linkers and git, by the name of the program file. */
bool shim_is_build_tool(const char* path);

/* ---- loaded.c: what is mapped, and who is calling ---- */

typedef struct ShimTorch {
  int count;                 /* different libtorch_cpu.so in this namespace: 0, 1 or more */
  char path[kShimPathBytes]; /* of the first, as the loader knows it */
} ShimTorch;

/* Looks for libtorch_cpu.so. Returns false, at little cost, when no object was mapped since the last look that found none. */
bool shim_find_torch(ShimTorch* torch);

/* Finds the loader's own range and the unwinder of libgcc_s, which torch itself needs. Takes the loader's lock. False when there is none.
 */
bool shim_has_unwinder(void);
bool shim_find_unwinder(void* torch_handle);

/* True when the calling thread provably is neither inside the dynamic loader (so no constructor is running on it) nor inside torch or
 * an OpenMP runtime. A stack that cannot be followed to its end counts as inside. */
bool shim_thread_is_outside(const void* return_address);

/* ---- gate.c ---- */

typedef enum { kGateActive, kGateNotYet, kGateRefused } ShimGate;

/* Opens the plugin for the torch at `torch_path` and, when shim_thread_is_outside(return_address), starts it. On
 * kGateRefused `reason` holds one line. Takes the loader's lock. */
ShimGate shim_pass_gate(const ShimTorch* torch, const void* return_address, char* reason, uint32_t reason_bytes);

/* ---- report.c ---- */

/* One line "ipexrun: ..." on stderr when IPEXRUN_LOG allows `level`. */
void shim_log(ShimLogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

/* Raises shim_state in the event file, if there is one and this process is the one to report (event.h). True when it is, or when
 * there is no event file at all. */
bool shim_report(enum IpexrunShimState state, const char* reason);

#endif
