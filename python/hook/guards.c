#include "python/hook/guards.h"

#include <stddef.h>
#include <structmember.h>

typedef struct {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* of_signal;
} Guard;

static struct {
  PyObject* exception; /* NULL: none */
  unsigned long thread;
} lost;

/* The exception on its way, with its traceback; the caller owns it. */
static PyObject* taken_exception(void) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value != NULL && traceback != NULL) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

/* Takes over `exception`. */
static void raise_again(PyObject* exception) {
  PyErr_Restore(Py_NewRef((PyObject*)Py_TYPE(exception)), exception, PyException_GetTraceback(exception));
}

static void keep(PyObject* exception) {
  if (lost.exception != NULL) return;
  lost.exception = Py_NewRef(exception);
  lost.thread = PyThread_get_thread_ident();
}

static PyObject* guard_call(PyObject* self, PyObject* const* arguments, size_t count, PyObject* names) {
  const Guard* guard = (const Guard*)self;
  PyObject* result = PyObject_Vectorcall(guard->function, arguments, count, names);
  if (result != NULL) return result;
  PyObject* failed = taken_exception();
  if (failed == NULL) return NULL;
  PyObject* programs = PyObject_CallOneArg(guard->of_signal, failed);
  if (programs == NULL) programs = taken_exception(); /* another signal came, while that was asked */
  if (programs != NULL && programs != Py_None) keep(programs);
  Py_XDECREF(programs);
  raise_again(failed);
  return NULL;
}

static int guard_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(((Guard*)self)->function);
  Py_VISIT(((Guard*)self)->of_signal);
  return 0;
}

static int guard_clear(PyObject* self) {
  Py_CLEAR(((Guard*)self)->function);
  Py_CLEAR(((Guard*)self)->of_signal);
  return 0;
}

static void guard_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  guard_clear(self);
  Py_TYPE(self)->tp_free(self);
}

static PyMemberDef members[] = {
    {"__wrapped__", T_OBJECT_EX, offsetof(Guard, function), READONLY, "The function that it calls."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject guard_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "_ipexrun_hook.Guard",
    .tp_basicsize = sizeof(Guard),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Guard, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = guard_traverse,
    .tp_clear = guard_clear,
    .tp_dealloc = guard_dealloc,
    .tp_free = PyObject_GC_Del,
    .tp_members = members,
};

PyObject* ipexrun_guard(PyObject* self, PyObject* arguments) {
  (void)self;
  PyObject *function, *of_signal;
  if (!PyArg_ParseTuple(arguments, "OO:guard", &function, &of_signal)) return NULL;
  if (PyType_Ready(&guard_type) < 0) return NULL;
  Guard* guard = PyObject_GC_New(Guard, &guard_type);
  if (guard == NULL) return NULL;
  guard->vectorcall = guard_call;
  guard->function = Py_NewRef(function);
  guard->of_signal = Py_NewRef(of_signal);
  PyObject_GC_Track((PyObject*)guard);
  return (PyObject*)guard;
}

PyObject* ipexrun_raise_lost(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  if (lost.exception == NULL || lost.thread != PyThread_get_thread_ident()) Py_RETURN_NONE;
  PyObject* exception = lost.exception;
  lost.exception = NULL;
  raise_again(exception);
  return NULL;
}
