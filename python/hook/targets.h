/* Modules that may become captured ones (docs/capture.md): how long their calls took so far, and who answers them.
 *
 * A fixed table under the interpreter lock: entries of modules that are gone are used again, and modules that find no room are left
 * alone. Python objects are held as weak references only, so that a module dies when the program drops it. */
#ifndef IPEXRUN_PYTHON_HOOK_TARGETS_H_
#define IPEXRUN_PYTHON_HOOK_TARGETS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

typedef enum {
  TARGET_COUNTING,    /* stock answers, its time is counted */
  TARGET_HANDLED,     /* `handler` answers, or says that stock shall */
  TARGET_STOCK,       /* stock answers, for good */
  TARGET_TRANSPARENT, /* likewise, but the modules inside it count by themselves */
} TargetState;

typedef struct {
  PyObject* module; /* borrowed: only compared */
  int grad;         /* calls that record gradients have an entry of their own */
  PyObject* weak;   /* dead once the module is gone; NULL = a free entry */
  PyObject* handler;
  uint64_t spent_ns; /* of CPU time of the calling threads */
  uint64_t wait_ns;  /* asks again once so much was spent */
  uint32_t left;    /* calls that go uncounted, since calls are short: reading the clock and what else is on costs as much as a small one */
  uint32_t skipped; /* calls before the next counted one that it stands for */
  uint32_t shorts;  /* counted calls in a row that were short */
  TargetState state;
} Target;

/* The entry of the module's calls that record gradients, or of those that do not; made where it has none; NULL when there is no room or it
 * takes no weak references. Never raises. */
Target* target_of(PyObject* module, int grad, uint64_t wait_ns);

/* Lets go of all handlers. May run code of the program's. */
void forget_targets(void);

/* What a weak reference stands for, as a reference of the caller's; NULL when that is gone. */
PyObject* object_of(PyObject* weak);

#endif
