/* What the plugin hands to the Python extension `_ipexrun_hook` (python/hook/module_hook.c): a table of plain C functions in a
 * PyCapsule of the name below. The extension is built per Python version, the plugin per torch version; this table is all they share. */
#ifndef IPEXRUN_PRELOAD_HOOK_ABI_H_
#define IPEXRUN_PRELOAD_HOOK_ABI_H_

#include <stddef.h>
#include <stdint.h>

#define IPEXRUN_HOOK_ABI 12u
#define IPEXRUN_HOOK_CAPSULE "ipexrun.hook_api"

/* One finished top-level module call. */
typedef struct IpexrunHookCall {
  uint64_t start_ns; /* CLOCK_MONOTONIC */
  uint64_t duration_ns;
  uint32_t flags; /* IPEXRUN_CALL_* of configs/contract/event.h */
  int64_t batch;  /* dimension 0 of the first tensor argument, 0 = none or unknown */
  const char* class_name;
} IpexrunHookCall;

/* All functions may be called from any thread of the process and never throw; none calls into Python. */
typedef struct IpexrunHookApi {
  uint32_t abi;                              /* IPEXRUN_HOOK_ABI */
  uint32_t size;                             /* sizeof(IpexrunHookApi) */
  int bench;                                 /* 1: time top-level module calls */
  int capture;                               /* 1: hot modules are captured */
  double capture_wait_s;                     /* spent in a module before it is looked at */
  void (*call)(const IpexrunHookCall* call); /* writes the event */
  uint64_t (*exploration_count)(void);       /* grows whenever selection measures a candidate */
  uint64_t (*exploration_ns)(void);          /* of the clock on the wall, spent on that beside answers, all threads */
  int (*enabled)(void);                      /* the calling thread's switch of the op tier */
  int (*grad_enabled)(void);                 /* whether the calling thread records gradients */
  void (*set_enabled)(int on);               /* likewise */
  int (*force)(const char* candidate);       /* "" ends it; 0 = no candidate of that name */
  int (*force_here)(const char* candidate);  /* likewise, in the calling thread alone */
  int (*optimizing)(void);                   /* 0: observe mode, stock kernels */
  /* JSON: totals and sites so far. Writes at most `bytes` with a NUL, returns the length it needs without one. */
  size_t (*report)(char* out, size_t bytes);
  void (*higher_order_ops_pass)(void);  /* torch's Python operators skip the key of drift checks from now on */
  void (*end_drift_check)(void);        /* the calling thread goes on in a captured form */
  int (*in_drift_check)(void);          /* whether one is open in the calling thread */
  void (*in_compiled_code)(int inside); /* the calling thread is in, or back from, code that the program itself had TorchDynamo compile */
  void (*tell_depth)(
      int (*depth)(void)); /* how many calls of modules the calling thread is in; callable for as long as the process lives */
  /* Whether the numbers of each of these tensors (addresses of at::TensorImpl, all alive) still lie where they did; 0 where one cannot say.
   */
  int (*same_places)(const uint64_t* tensors, const uint64_t* places, size_t count);
  int (*works_alone)(void);    /* operators of the calling thread are computed by it alone */
  void (*left_modules)(void);  /* the calling thread is back from its outermost call of a module, whose result it holds */
  void (*keep_warnings)(void); /* what operators of the calling thread warn of is kept, */
  /* and no longer: `take` is told of each message, in their order. Returns how many there were. */
  size_t (*kept_warnings)(void (*take)(const char* message, void* to), void* to);
} IpexrunHookApi;

#endif
