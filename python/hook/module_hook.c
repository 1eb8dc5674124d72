/* _ipexrun_hook: times the top-level calls of torch.nn.Module, hands those of hot modules to who captured them (targets.h), and gives
 * `import ipexrun` its way into the plugin.
 *
 * torch.nn.Module.__call__ stays the very function object that torch made; only its vectorcall entry is exchanged for one that
 * counts the depth. So identity, signature, pickling, tracebacks, Dynamo, fx and jit see nothing new (docs/decisions/0004-python-entry.md).
 * What runs for a nested call is two additions; everything else happens at depth 0 of a thread.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <time.h>

#include "configs/contract/event.h"
#include "preload/hook_abi.h"
#include "python/hook/guards.h"
#include "python/hook/signals.h"
#include "python/hook/snapshots.h"
#include "python/hook/stacks.h"
#include "python/hook/targets.h"
#include "python/hook/tracebacks.h"

/* One per process: vectorcall entries have no place for a module state. Written under the GIL before the hook is installed. */
static struct {
  const IpexrunHookApi* api;
  int bench; /* top-level calls are timed */
  PyObject* capsule;
  PyObject* functions[2]; /* hooked function objects, the second may be NULL */
  vectorcallfunc original;
  PyTypeObject* tensor_types[2]; /* exactly torch.Tensor and torch.nn.Parameter */
  PyTypeObject* tensor_base;     /* torch.Tensor, for subclasses */
  PyObject* tracing_state;
  PyObject* function_mode_count;
  PyObject* training_name;
  PyObject* shape_name;
  /* Capture; NULL: nothing is captured. */
  PyObject* attempt; /* attempt(module, seconds, grad) when `seconds` of its threads' CPU time were spent in calls of it that record
                        gradients, or in those that do not: what answers these from now on, a number of seconds after which to ask again,
                        None (stock, for good) or False (stock, but look at the modules inside) */
  PyObject* world;   /* tuple of callables: while one of them answers with a true value, modules are called for something else than
                        their results, or by somebody who captures himself. A pair of callables: not where the second one answers so, too */
  PyObject* eager;   /* what a handler gives when stock shall answer */
  PyObject* took_name;
  PyObject* broke_off_name;
  PyObject* of_signal; /* whether an exception was raised by a signal handler of the program; NULL: nobody can say */
  uint64_t first_wait_ns;
  int working;            /* how deep all threads are in Python of ours that answers calls */
  int crowded;            /* at the fork that is under way: Python has other threads */
  PyObject* module_locks; /* importlib's, by which it is seen that a thread imports; NULL: not to be looked at */
} hook;

enum { SHORT_CALL_NS = 200000, SHORTS_IN_A_ROW = 8, LEAST_UNCOUNTED = 7, MOST_UNCOUNTED = 23, MOST_LEFT_OUT = 1000 };
enum { FORK_PATIENCE_NS = 1000000000, FORK_LOOK_NS = 2000000 }; /* a fork waits no longer for imports, and looks so often */

/* Of the calling thread; together, so that each function asks for their address once. */
typedef struct Here {
  int depth;
  int inside;  /* a module that counts, or one that must not be captured, is running */
  int working; /* its part of hook.working */
  /* What a signal handler of the program's raised while Python of ours ran: the call that it came into ends with it. */
  struct {
    PyObject *type, *value, *trace;
  } interrupt;
} Here;
static _Thread_local Here of_thread;

/* Our own errors are nobody's business; KeyboardInterrupt, SystemExit and what else a signal handler raises are the program's. */
static void forget_error(void) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (type == NULL) return;
  int programs = !PyErr_GivenExceptionMatches(type, PyExc_Exception);
  if (!programs && hook.of_signal != NULL && trace != NULL) {
    PyErr_NormalizeException(&type, &value, &trace);
    PyException_SetTraceback(value, trace);
    PyObject* answer = PyObject_CallOneArg(hook.of_signal, value);
    programs = answer == Py_True;
    Py_XDECREF(answer);
    if (answer == NULL) PyErr_Clear();
  }
  Here* const here = &of_thread;
  if (programs && here->interrupt.type == NULL) {
    here->interrupt.type = type, here->interrupt.value = value, here->interrupt.trace = trace;
    return;
  }
  Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
}

/* The call's end: `result`, or NULL with the program's interrupt. */
static PyObject* interrupted(Here* here, PyObject* result) {
  PyObject *type = here->interrupt.type, *value = here->interrupt.value, *trace = here->interrupt.trace;
  here->interrupt.type = here->interrupt.value = here->interrupt.trace = NULL;
  Py_XDECREF(result);
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return NULL;
}

/* Of Python of ours, which another thread's fork may strike in the middle (see before_fork()). */
static void begin_work(Here* here) { ++here->working, ++hook.working; }
static void end_work(Here* here) { --here->working, --hook.working; }

static uint64_t clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* What calls are worth is counted so, as the price of a trace is: on a busy machine both would seem longer, and a trace too cheap for them.
 */
static uint64_t thread_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

/* What races are timed by: a thread that computes alone is not to lose one because others of the program had the core or the lock. As
 * call_clock() in graphs/races.py. */
static clockid_t race_clock(void) { return hook.api->works_alone() ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC; }

/* The truth value of a call without arguments; `fallback` when it raises. */
static int truth_of_call(PyObject* callable, int fallback) {
  PyObject* answer = PyObject_CallNoArgs(callable);
  if (answer == NULL) {
    forget_error();
    return fallback;
  }
  const int truth = PyObject_IsTrue(answer);
  Py_DECREF(answer);
  if (truth < 0) forget_error();
  return truth < 0 ? fallback : truth;
}

/* Dimension 0 when `value` is a plain tensor: -1 = not a tensor, 0 = a tensor whose size is not ours to read. A subclass may run
 * user code in `.shape`, and a symbolic size must not be turned into a number (that would add a guard to the user's trace). */
static int64_t rows_of(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type != hook.tensor_types[0] && type != hook.tensor_types[1]) return PyType_IsSubtype(type, hook.tensor_base) ? 0 : -1;
  PyObject* shape = PyObject_GetAttr(value, hook.shape_name);
  if (shape == NULL) {
    PyErr_Clear();
    return 0;
  }
  int64_t rows = 0;
  if (PyTuple_Check(shape) && PyTuple_GET_SIZE(shape) > 0 && PyLong_CheckExact(PyTuple_GET_ITEM(shape, 0))) {
    rows = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, 0));
    if (PyErr_Occurred()) PyErr_Clear();
  }
  Py_DECREF(shape);
  return rows < 0 ? 0 : rows;
}

/* rows_of an argument, or of the first tensor directly inside an exact list, tuple or dict (or a dict subclass such as the
 * transformers' BatchEncoding's data when passed with **). Only exact containers: a subclass's iteration may be user code. */
static int64_t rows_in(PyObject* value) {
  int64_t rows = rows_of(value);
  if (rows >= 0) return rows;
  if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(value);
    for (Py_ssize_t i = 0; i < n && rows < 0; ++i) rows = rows_of(PySequence_Fast_GET_ITEM(value, i));
  } else if (PyDict_CheckExact(value)) {
    Py_ssize_t position = 0;
    PyObject* item = NULL;
    while (rows < 0 && PyDict_Next(value, &position, NULL, &item)) rows = rows_of(item);
  }
  return rows;
}

/* Positional arguments come first, keyword values follow them in the same array. */
static int64_t batch_of(PyObject* const* args, Py_ssize_t count) {
  /* Under torch.jit.trace `.shape` would add nodes to the user's graph; under a TorchFunctionMode it would call the mode. */
  if (truth_of_call(hook.tracing_state, 1) || truth_of_call(hook.function_mode_count, 1)) return 0;
  for (Py_ssize_t i = 1; i < count; ++i) {
    const int64_t rows = rows_in(args[i]);
    if (rows >= 0) return rows;
  }
  return 0;
}

static uint32_t training_flag(PyObject* module) {
  if (!hook.api->grad_enabled()) return 0;
  /* Generic lookup: a module's own __getattr__ must not run because of us. */
  PyObject* training = PyObject_GenericGetAttr(module, hook.training_name);
  if (training == NULL) {
    PyErr_Clear();
    return 0;
  }
  const uint32_t flag = training == Py_True ? IPEXRUN_CALL_TRAINING : 0u;
  Py_DECREF(training);
  return flag;
}

static int world_is_quiet(void) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(hook.world); ++i) {
    PyObject* asked = PyTuple_GET_ITEM(hook.world, i);
    PyObject* excuse = NULL;
    if (PyTuple_CheckExact(asked) && PyTuple_GET_SIZE(asked) == 2) {
      excuse = PyTuple_GET_ITEM(asked, 1);
      asked = PyTuple_GET_ITEM(asked, 0);
    }
    if (truth_of_call(asked, 1) && (excuse == NULL || !truth_of_call(excuse, 0))) return 0;
  }
  return 1;
}

/* Asks what becomes of a module in which enough time was spent. */
static void ask(Target* target, PyObject* module, int grad) {
  const uint64_t spent_ns = target->spent_ns;
  target->state = TARGET_STOCK;     /* while the answer is being found */
  if (hook.attempt == NULL) return; /* a forked child's, since this call began */
  Here* const here = &of_thread;
  begin_work(here);
  PyObject* answer = PyObject_CallFunction(hook.attempt, "OdO", module, (double)spent_ns * 1e-9, grad ? Py_True : Py_False);
  end_work(here);
  target = target_of(module, grad, hook.first_wait_ns); /* Python ran: the table may have changed */
  if (answer == NULL) forget_error();
  if (target == NULL || answer == NULL || answer == Py_None) {
    Py_XDECREF(answer);
    return;
  }
  if (PyFloat_CheckExact(answer)) {
    const double wait = PyFloat_AS_DOUBLE(answer);
    target->wait_ns = wait < 1e9 ? (uint64_t)(wait * 1e9) : UINT64_MAX;
    target->state = TARGET_COUNTING;
  } else if (answer == Py_False) {
    target->state = TARGET_TRANSPARENT;
  } else {
    target->state = TARGET_HANDLED;
    Py_INCREF(answer);
    target->handler = answer;
  }
  Py_DECREF(answer);
}

static PyObject* inside_original(PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Here* const here = &of_thread;
  ++here->inside;
  PyObject* result = hook.original(function, args, nargsf, kwnames);
  --here->inside;
  return result;
}

/* Tells the handler how long stock took, what it gave, and whether candidates of operators were measured meanwhile; its answer may end its
 * work: False (stock, for good), True (stock, but look inside), or a float (after so many seconds more in it attempt() is asked again).
 * An integer: the handler has seen enough for so many calls, which stock answers. */
static void tell(PyObject* handler, PyObject* module, int grad, uint64_t took_ns, PyObject* result, int explored) {
  Here* const here = &of_thread;
  PyObject* ns = PyLong_FromUnsignedLongLong(took_ns);
  begin_work(here);
  PyObject* answer =
      ns == NULL ? NULL : PyObject_CallMethodObjArgs(handler, hook.took_name, ns, result, explored ? Py_True : Py_False, NULL);
  end_work(here);
  Py_XDECREF(ns);
  if (answer == NULL) forget_error();
  Target* target = answer == Py_None ? NULL : target_of(module, grad, hook.first_wait_ns);
  if (target != NULL && target->handler == handler && answer != NULL && PyLong_CheckExact(answer)) {
    const long calls = PyLong_AsLong(answer);
    if (PyErr_Occurred()) PyErr_Clear();
    target->left = calls > 0 && calls <= MOST_LEFT_OUT ? (uint32_t)calls : 0;
    target = NULL;
  }
  const double wait = answer != NULL && PyFloat_CheckExact(answer) ? PyFloat_AS_DOUBLE(answer) : -1;
  Py_XDECREF(answer);
  if (target == NULL || target->handler != handler) return;
  target->state = answer == Py_True ? TARGET_TRANSPARENT : TARGET_STOCK;
  if (wait >= 0 && wait < 1e9) {
    target->wait_ns = target->spent_ns + (uint64_t)(wait * 1e9);
    target->state = TARGET_COUNTING;
  }
  target->handler = NULL;
  Py_DECREF(handler);
}

/* Tells the handler that the call ends with the exception that is on its way, so that it waits no longer for what that takes and gives. */
static void tell_broken_off(PyObject* handler) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* answer = PyObject_CallMethodObjArgs(handler, hook.broke_off_name, NULL);
  if (answer == NULL) forget_error();
  Py_XDECREF(answer);
  PyErr_Restore(type, value, trace);
}

/* The handler's answer, or stock's when the handler asks for that. */
static PyObject* handled_call(PyObject* handler, int grad, PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Py_INCREF(handler);
  Here* const here = &of_thread;
  ++here->inside;
  begin_work(here);
  PyObject* result = PyObject_Vectorcall(handler, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
  end_work(here);
  --here->inside;
  if (result == NULL) ipexrun_leave_out_own_lines();
  if (result == hook.eager) {
    Py_DECREF(result);
    const uint64_t explored = hook.api->exploration_count();
    const clockid_t clock = race_clock();
    const uint64_t start = clock_ns(clock);
    result = inside_original(function, args, nargsf, kwnames);
    /* A call in which candidates of operators were measured is longer than those to come. */
    if (result != NULL) tell(handler, args[0], grad, clock_ns(clock) - start, result, hook.api->exploration_count() != explored);
  }
  if (result == NULL) tell_broken_off(handler);
  Py_DECREF(handler);
  return result;
}

/* Adds a counted call and those that it stands for, each as long as a short one at most. After some short calls in a row few are counted;
 * how many are not is drawn anew each time, so that a program whose calls differ in turn is counted right on average. */
static void count(Target* target, uint64_t spent_ns) {
  static uint32_t drawn = 1; /* under the interpreter lock */
  target->spent_ns += spent_ns + target->skipped * (spent_ns < SHORT_CALL_NS ? spent_ns : SHORT_CALL_NS);
  target->shorts = spent_ns < SHORT_CALL_NS ? target->shorts + 1 : 0;
  target->left = 0;
  if (target->shorts >= SHORTS_IN_A_ROW) {
    drawn = drawn * 1664525u + 1013904223u;
    target->left = LEAST_UNCOUNTED + (drawn >> 16) % (MOST_UNCOUNTED - LEAST_UNCOUNTED + 1);
  }
  target->skipped = target->left;
}

/* A debugger, or a measurement of coverage, follows this thread line by line (sys.settrace): captured calls have no lines. */
static int is_followed(void) { return PyThreadState_Get()->c_tracefunc != NULL; }

/* A call that no module which counts is running around. */
static PyObject* countable_call(PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* module = args[0];
  Target* target = NULL;
  const int grad = hook.api->grad_enabled();
  if (hook.api->enabled() && !is_followed() && ipexrun_has_stack()) target = target_of(module, grad, hook.first_wait_ns);
  if (target != NULL && (target->state == TARGET_COUNTING || target->state == TARGET_HANDLED) && target->left > 0) {
    --target->left;
    return inside_original(function, args, nargsf, kwnames);
  }
  if (target != NULL && (target->state == TARGET_COUNTING || target->state == TARGET_HANDLED) && !world_is_quiet()) target = NULL;
  if (target != NULL && target->state == TARGET_COUNTING && target->spent_ns >= target->wait_ns) {
    ask(target, module, grad);
    target = target_of(module, grad, hook.first_wait_ns);
  }
  if (target == NULL || target->state == TARGET_STOCK) return inside_original(function, args, nargsf, kwnames);
  if (target->state == TARGET_TRANSPARENT) return hook.original(function, args, nargsf, kwnames);
  if (target->state == TARGET_HANDLED) return handled_call(target->handler, grad, function, args, nargsf, kwnames);
  const uint64_t start = thread_ns();
  PyObject* result = inside_original(function, args, nargsf, kwnames);
  const uint64_t spent_ns = thread_ns() - start;
  if (result != NULL && (target = target_of(module, grad, hook.first_wait_ns)) != NULL) count(target, spent_ns);
  return result;
}

static PyObject* counted_call(PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (hook.attempt != NULL && of_thread.inside == 0 && PyVectorcall_NARGS(nargsf) > 0)
    return countable_call(function, args, nargsf, kwnames);
  return hook.original(function, args, nargsf, kwnames);
}

static PyObject* top_level_call(PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  const Py_ssize_t positional = PyVectorcall_NARGS(nargsf);
  IpexrunHookCall call = {0};
  const Py_ssize_t count = positional + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
  if (positional > 0) {
    call.flags = training_flag(args[0]);
    call.batch = batch_of(args, count);
  }
  PyTypeObject* type = positional > 0 ? Py_TYPE(args[0]) : NULL;
  Py_XINCREF(type); /* the call may drop the last module of its class */
  const uint64_t explored = hook.api->exploration_count();
  call.start_ns = now_ns();
  PyObject* result = counted_call(function, args, nargsf, kwnames);
  call.duration_ns = now_ns() - call.start_ns;
  if (hook.api->exploration_count() != explored) call.flags |= IPEXRUN_CALL_EXPLORING;
  if (result == NULL) call.flags |= IPEXRUN_CALL_FAILED;
  call.class_name = type == NULL ? "" : type->tp_name;
  hook.api->call(&call);
  if (type != NULL) {
    /* Dropping a class can run code; the call's own exception must survive it. */
    PyObject *error, *value, *trace;
    PyErr_Fetch(&error, &value, &trace);
    Py_DECREF(type);
    PyErr_Restore(error, value, trace);
  }
  return result;
}

static PyObject* hooked_vectorcall(PyObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Here* const here = &of_thread;
  const int top = here->depth++ == 0 && hook.bench;
  PyObject* result = top ? top_level_call(function, args, nargsf, kwnames) : counted_call(function, args, nargsf, kwnames);
  if (--here->depth == 0) hook.api->left_modules();
  return here->interrupt.type == NULL ? result : interrupted(here, result);
}

static void set_vectorcall(PyObject* function, vectorcallfunc entry) {
#if PY_VERSION_HEX >= 0x030C0000
  PyFunction_SetVectorcall((PyFunctionObject*)function, entry);
#else
  ((PyFunctionObject*)function)->vectorcall = entry;
#endif
}

static int depth_here(void) { return hook.functions[0] != NULL ? of_thread.depth : -1; }

static PyObject* connect_plugin(PyObject* self, PyObject* capsule) {
  (void)self;
  const IpexrunHookApi* api = PyCapsule_GetPointer(capsule, IPEXRUN_HOOK_CAPSULE);
  if (api == NULL) return NULL;
  if (api->abi != IPEXRUN_HOOK_ABI || api->size < sizeof(IpexrunHookApi)) {
    return PyErr_Format(PyExc_ImportError, "plugin with hook interface %u, this extension has %u", api->abi, IPEXRUN_HOOK_ABI);
  }
  hook.api = api;
  api->tell_depth(depth_here);
  Py_INCREF(capsule);
  Py_XSETREF(hook.capsule, capsule);
  Py_RETURN_NONE;
}

static PyObject* install(PyObject* self, PyObject* args, PyObject* kwargs) {
  (void)self;
  static char* names[] = {"module",     "tensor",    "parameter", "tracing_state", "function_mode_count", "bench", "attempt", "world",
                          "first_wait", "of_signal", NULL};
  PyTypeObject *module, *tensor, *parameter;
  PyObject *tracing_state, *function_mode_count, *attempt = NULL, *world = NULL, *of_signal = NULL;
  int bench = 1;
  double first_wait = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!OO|$pOO!dO:install", names, &PyType_Type, &module, &PyType_Type, &tensor,
                                   &PyType_Type, &parameter, &tracing_state, &function_mode_count, &bench, &attempt, &PyTuple_Type, &world,
                                   &first_wait, &of_signal)) {
    return NULL;
  }
  if ((attempt == NULL) != (world == NULL)) return PyErr_Format(PyExc_TypeError, "capture needs both attempt and world");
  if (hook.api == NULL) return PyErr_Format(PyExc_RuntimeError, "not connected to a plugin");
  if (hook.functions[0] != NULL) return PyErr_Format(PyExc_RuntimeError, "already installed");
  PyObject* functions[2] = {PyDict_GetItemString(module->tp_dict, "__call__"), NULL};
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
  /* 3.11 alone enters a Python function that a Python frame calls by name (`super().__call__(x)`) without looking at its
   * vectorcall. Module.__call__ goes on to _call_impl through *args, which does look. */
  functions[1] = PyDict_GetItemString(module->tp_dict, "_call_impl");
#endif
  for (int i = 0; i < 2; ++i) {
    if (i > 0 && functions[i] == NULL) continue;
    if (functions[i] == NULL || !PyFunction_Check(functions[i])) {
      return PyErr_Format(PyExc_TypeError, "torch.nn.Module's call is no Python function: somebody else replaced it");
    }
    if (((PyFunctionObject*)functions[i])->vectorcall != ((PyFunctionObject*)functions[0])->vectorcall) {
      return PyErr_Format(PyExc_TypeError, "torch.nn.Module's call is hooked by somebody else");
    }
  }
  hook.original = ((PyFunctionObject*)functions[0])->vectorcall;
  hook.tensor_types[0] = tensor;
  hook.tensor_types[1] = parameter;
  hook.tensor_base = tensor;
  hook.tracing_state = tracing_state;
  hook.function_mode_count = function_mode_count;
  hook.training_name = PyUnicode_InternFromString("training");
  hook.shape_name = PyUnicode_InternFromString("shape");
  hook.took_name = PyUnicode_InternFromString("took");
  hook.broke_off_name = PyUnicode_InternFromString("broke_off");
  if (hook.training_name == NULL || hook.shape_name == NULL || hook.took_name == NULL || hook.broke_off_name == NULL) return NULL;
  hook.bench = bench;
  Py_XINCREF(attempt), Py_XINCREF(world), Py_XINCREF(of_signal);
  hook.of_signal = of_signal;
  hook.attempt = attempt;
  hook.world = world;
  hook.first_wait_ns = (uint64_t)(first_wait * 1e9);
  /* Kept until the process ends: a call may be under way on another thread when the hook is taken out. */
  Py_INCREF(tensor), Py_INCREF(parameter), Py_INCREF(tracing_state), Py_INCREF(function_mode_count);
  for (int i = 0; i < 2; ++i) {
    if (functions[i] == NULL) continue;
    Py_INCREF(functions[i]);
    hook.functions[i] = functions[i];
    set_vectorcall(functions[i], hooked_vectorcall);
  }
  Py_RETURN_NONE;
}

static PyObject* uninstall(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  for (int i = 0; i < 2; ++i) {
    if (hook.functions[i] == NULL) continue;
    set_vectorcall(hook.functions[i], hook.original);
    Py_CLEAR(hook.functions[i]);
  }
  Py_RETURN_NONE;
}

static PyObject* installed(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return PyBool_FromLong(hook.functions[0] != NULL);
}

static int need_api(void) {
  if (hook.api == NULL) PyErr_SetString(PyExc_RuntimeError, "not connected to a plugin");
  return hook.api != NULL;
}

static PyObject* enabled(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return need_api() ? PyBool_FromLong(hook.api->enabled()) : NULL;
}

static PyObject* higher_order_ops_pass(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  if (!need_api()) return NULL;
  hook.api->higher_order_ops_pass();
  Py_RETURN_NONE;
}

static PyObject* end_drift_check(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  if (!need_api()) return NULL;
  hook.api->end_drift_check();
  Py_RETURN_NONE;
}

/* torch._dynamo.eval_frame.set_eval_frame as its module calls it. compile_wrapper() begins with it, and notes the thread's dispatch keys
 * next, which it restores around what was compiled: that of a drift check is not to be among them. `self` is torch's own. */
static PyObject* set_eval_frame(PyObject* self, PyObject* callback) {
  if (callback == Py_None && hook.api->in_drift_check()) {
    PyFrameObject* frame = PyEval_GetFrame();
    PyCodeObject* code = frame == NULL ? NULL : PyFrame_GetCode(frame);
    if (code != NULL && PyUnicode_CompareWithASCIIString(code->co_name, "compile_wrapper") == 0) hook.api->end_drift_check();
    Py_XDECREF(code);
  }
  return PyObject_CallOneArg(self, callback);
}

/* Likewise _maybe_set_eval_frame: what is set by it is what answers from here on. None: code as it was written; False: what was compiled,
 * and nothing more. */
static PyObject* maybe_set_eval_frame(PyObject* self, PyObject* callback) {
  hook.api->in_compiled_code(callback != Py_None);
  return PyObject_CallOneArg(self, callback);
}

static PyObject* around_eval_frame(PyObject* self, PyObject* args) {
  (void)self;
  static PyMethodDef set = {"set_eval_frame", set_eval_frame, METH_O, NULL};
  static PyMethodDef maybe = {"_maybe_set_eval_frame", maybe_set_eval_frame, METH_O, NULL};
  PyObject *of_set = NULL, *of_maybe = NULL;
  if (!PyArg_ParseTuple(args, "OO", &of_set, &of_maybe) || !need_api()) return NULL;
  return Py_BuildValue("NN", PyCFunction_New(&set, of_set), PyCFunction_New(&maybe, of_maybe));
}

static PyObject* keep_warnings(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  if (!need_api()) return NULL;
  hook.api->keep_warnings();
  Py_RETURN_NONE;
}

/* `to`: where a list is made once there is a message; NULL in it after an error. */
static void take_warning(const char* message, void* to) {
  PyObject** list = to;
  if (PyErr_Occurred()) return;
  if (*list == NULL) *list = PyList_New(0);
  PyObject* text = *list == NULL ? NULL : PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
  if (text == NULL || PyList_Append(*list, text) < 0) Py_CLEAR(*list);
  Py_XDECREF(text);
}

static PyObject* kept_warnings(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  if (!need_api()) return NULL;
  PyObject* list = NULL;
  hook.api->kept_warnings(take_warning, &list);
  if (list != NULL || PyErr_Occurred()) return list;
  Py_RETURN_NONE;
}

static PyObject* optimizing(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return need_api() ? PyBool_FromLong(hook.api->optimizing()) : NULL;
}

static PyObject* explorations(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return need_api() ? PyLong_FromUnsignedLongLong(hook.api->exploration_count()) : NULL;
}

static PyObject* exploration_ns(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return need_api() ? PyLong_FromUnsignedLongLong(hook.api->exploration_ns()) : NULL;
}

static PyObject* set_enabled(PyObject* self, PyObject* on) {
  (void)self;
  const int truth = PyObject_IsTrue(on);
  if (truth < 0 || !need_api()) return NULL;
  hook.api->set_enabled(truth);
  Py_RETURN_NONE;
}

static PyObject* force(PyObject* self, PyObject* name) {
  (void)self;
  const char* text = PyUnicode_AsUTF8(name);
  if (text == NULL || !need_api()) return NULL;
  return PyBool_FromLong(hook.api->force(text));
}

static PyObject* force_here(PyObject* self, PyObject* name) {
  (void)self;
  const char* text = PyUnicode_AsUTF8(name);
  if (text == NULL || !need_api()) return NULL;
  return PyBool_FromLong(hook.api->force_here(text));
}

static PyObject* same_tensors(PyObject* self, PyObject* args) {
  (void)self;
  PyObject* objects;
  Py_ssize_t offset;
  Py_buffer tensors = {0}, places = {0};
  if (!need_api() || !PyArg_ParseTuple(args, "O!ny*y*:same_tensors", &PyTuple_Type, &objects, &offset, &tensors, &places)) return NULL;
  PyObject* answer = NULL;
  const Py_ssize_t count = PyTuple_GET_SIZE(objects);
  const Py_ssize_t bytes = count * (Py_ssize_t)sizeof(uint64_t);
  if (offset < 0 || offset + (Py_ssize_t)sizeof(void*) > IPEXRUN_WORDS_OF_OBJECTS || tensors.len != bytes || places.len != bytes) {
    PyErr_Format(PyExc_ValueError, "an offset below %d and 8 bytes for each of %zd objects are needed, not %zd, %zd and %zd",
                 IPEXRUN_WORDS_OF_OBJECTS, count, offset, tensors.len, places.len);
  } else {
    const int same = ipexrun_hold_words(objects, offset, tensors.buf) && hook.api->same_places(tensors.buf, places.buf, (size_t)count);
    answer = PyBool_FromLong(same);
  }
  PyBuffer_Release(&tensors);
  PyBuffer_Release(&places);
  return answer;
}

/* Whether a thread that imports is another one than this. Runs no Python. */
static int another_imports(void) {
  Py_ssize_t position = 0;
  PyObject *name, *weak;
  int found = 0;
  while (!found && PyDict_Next(hook.module_locks, &position, &name, &weak)) {
    PyObject* lock = PyWeakref_CheckRef(weak) ? object_of(weak) : NULL;
    PyObject* owner = lock == NULL ? NULL : PyObject_GetAttrString(lock, "owner");
    if (owner != NULL && PyLong_Check(owner)) found = PyLong_AsUnsignedLongMask(owner) != PyThread_get_thread_ident();
    Py_XDECREF(owner);
    Py_XDECREF(lock);
    PyErr_Clear();
  }
  return found;
}

static int others_work(void) { return hook.working != of_thread.working; }

static PyObject* mind_imports(PyObject* self, PyObject* locks) {
  (void)self;
  if (!PyDict_CheckExact(locks)) return PyErr_Format(PyExc_TypeError, "importlib's dict of locks is needed");
  Py_INCREF(locks);
  Py_XSETREF(hook.module_locks, locks);
  Py_RETURN_NONE;
}

/* What another thread imports because of us, a child would wait for, for ever, as soon as it imports the same: a fork waits a moment for
 * it. It is not written in Python, where a signal handler could raise: nobody would learn of that. */
static PyObject* before_fork(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  const uint64_t until = now_ns() + FORK_PATIENCE_NS;
  while (hook.module_locks != NULL && others_work() && another_imports() && now_ns() < until) {
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&(struct timespec){.tv_nsec = FORK_LOOK_NS}, NULL);
    Py_END_ALLOW_THREADS;
  }
  hook.crowded = PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())) != NULL;
  Py_RETURN_NONE;
}

/* A child has none of the other threads. One of them may have held what a trace asks for and the program does not: an import, TorchDynamo's
 * lock, that of torch's random numbers. Its modules are stock's then. Whether that is so. */
static PyObject* after_fork_in_child(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  hook.working = of_thread.working;
  if (hook.crowded) hook.attempt = NULL; /* never freed: this very call may come out of it */
  return PyBool_FromLong(hook.crowded);
}

/* The program has ended. Handlers hold functions of the program's, and these its globals, which Python could not clear any more: files that
 * are open would lose what was written last, and finalizers would not run. */
static PyObject* at_exit(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  hook.attempt = NULL;                           /* never freed, see above */
  if (others_work()) return Py_NewRef(Py_False); /* a daemon's thread, which runs on while Python ends */
  forget_targets();
  Py_RETURN_TRUE;
}

static PyObject* report(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  if (!need_api()) return NULL;
  /* The answer may grow between the two calls of the table. */
  for (size_t bytes = 4096;;) {
    char* text = PyMem_Malloc(bytes);
    if (text == NULL) return PyErr_NoMemory();
    const size_t length = hook.api->report(text, bytes);
    if (length < bytes) {
      PyObject* out = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
      PyMem_Free(text);
      return out;
    }
    PyMem_Free(text);
    bytes = length + 4096;
  }
}

static PyMethodDef methods[] = {
    {"connect", connect_plugin, METH_O, "connect(capsule): take over the plugin's function table."},
    {"install", (PyCFunction)(void (*)(void))install, METH_VARARGS | METH_KEYWORDS,
     "Start timing top-level module calls, and capturing hot modules."},
    {"uninstall", uninstall, METH_NOARGS, "Stop timing."},
    {"installed", installed, METH_NOARGS, "Whether module calls are timed."},
    {"enabled", enabled, METH_NOARGS, "Whether replaced kernels may run."},
    {"higher_order_ops_pass", higher_order_ops_pass, METH_NOARGS, "Says that torch's Python operators skip the key of drift checks."},
    {"end_drift_check", end_drift_check, METH_NOARGS, "Ends or postpones the check of a whole pass that this thread is in."},
    {"around_eval_frame", around_eval_frame, METH_VARARGS,
     "around_eval_frame(set_eval_frame, _maybe_set_eval_frame): these two, which keep drift checks out of compiled code."},
    {"keep_warnings", keep_warnings, METH_NOARGS, "What operators of this thread warn of is kept, until kept_warnings()."},
    {"kept_warnings", kept_warnings, METH_NOARGS, "kept_warnings(): a list of the messages since keep_warnings(); None: there was none."},
    {"optimizing", optimizing, METH_NOARGS, "Whether the plugin registered kernels (False in observe mode)."},
    {"explorations", explorations, METH_NOARGS,
     "How often candidates of operators were measured so far: such a step is longer than others."},
    {"exploration_ns", exploration_ns, METH_NOARGS,
     "What that took so far beyond the answers, in time on the wall: taken off a step's time."},
    {"set_enabled", set_enabled, METH_O, "Switch replaced kernels on or off."},
    {"force_here", force_here, METH_O, "force(), for calls of this thread alone."},
    {"force", force, METH_O, "Use this candidate wherever it supports the call; '' ends it. False = unknown name."},
    {"guard", ipexrun_guard, METH_VARARGS, "guard(function, of_signal): that function, which keeps what raise_lost() raises."},
    {"hold_signals", ipexrun_hold_signals, METH_O,
     "hold_signals(instead): {number: handler} of those in Python, in whose place it is called."},
    {"let_signals", ipexrun_let_signals, METH_VARARGS, "let_signals(instead, handlers): these again."},
    {"raise_lost", ipexrun_raise_lost, METH_NOARGS, "Raises what a signal handler raised in one of this thread's guards."},
    {"snapshot", ipexrun_snapshot, METH_O, "snapshot(containers): what is in each of them now."},
    {"fetch", ipexrun_fetch, METH_O, "fetch(lines): asks for lines of memory, by their addresses."},
    {"unchanged", ipexrun_unchanged, METH_VARARGS,
     "unchanged(containers, snapshot[, versions]): whether the same objects are still there."},
    {"all_same", ipexrun_all_same, METH_O, "all_same(facts): whether for each (function, key, value) function(key) is that value."},
    {"word_in", ipexrun_word_in, METH_VARARGS, "word_in(object, word): where among its first bytes this number of 64 bits lies, or -1."},
    {"same_tensors", same_tensors, METH_VARARGS,
     "same_tensors(objects, offset, tensors, places): whether each of these tensors still is torch's object of that address, which lies "
     "`offset` bytes "
     "in it, and its numbers lie where they did."},
    {"mind_imports", mind_imports, METH_O, "mind_imports(locks): importlib's locks of modules, for before_fork()."},
    {"before_fork", before_fork, METH_NOARGS, "Waits a moment for what other threads import because of us."},
    {"after_fork_in_child", after_fork_in_child, METH_NOARGS, "Leaves modules to stock where Python had other threads; whether it had."},
    {"at_exit", at_exit, METH_NOARGS, "Leaves modules to stock, and lets go of what answered them; whether no thread is in it any more."},
    {"report", report, METH_NOARGS, "What the plugin did so far, as JSON."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_ipexrun_hook", .m_doc = "ipexrun's module-call hook.",
                                        .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__ipexrun_hook(void) {
  PyObject* module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
  hook.eager = PyObject_CallNoArgs((PyObject*)&PyBaseObject_Type);
  if (hook.eager == NULL || PyModule_AddObjectRef(module, "EAGER", hook.eager) < 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
