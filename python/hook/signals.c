#include "python/hook/signals.h"

#include <signal.h>

/* signal.signal(number, handler), which installs the C library's part anew; that stays as the program made it. 0, or -1 with an exception.
 */
static int set_handler(PyObject* module, int number, PyObject* handler) {
  struct sigaction as_it_was;
  const int known = sigaction(number, NULL, &as_it_was) == 0;
  PyObject* before = PyObject_CallMethod(module, "signal", "iO", number, handler);
  if (before == NULL) return -1;
  Py_DECREF(before);
  if (known) sigaction(number, &as_it_was, NULL);
  return 0;
}

/* New reference; NULL without an exception: none that is written in Python. */
static PyObject* handler_of(PyObject* module, int number) {
  PyObject* handler = PyObject_CallMethod(module, "getsignal", "i", number);
  if (handler == NULL) PyErr_Clear();                                   /* no number that Python knows */
  if (handler != NULL && !PyCallable_Check(handler)) Py_CLEAR(handler); /* also SIG_DFL and SIG_IGN, which are whole numbers */
  return handler;
}

/* All of them, whatever comes: signal() first calls handlers that are due, and what such a one raises is told once all stand. */
static int restore(PyObject* module, PyObject* instead, PyObject* handlers) {
  Py_ssize_t at = 0;
  PyObject *key, *handler, *type = NULL, *value = NULL, *traceback = NULL;
  while (PyDict_Next(handlers, &at, &key, &handler)) {
    const int number = (int)PyLong_AsLong(key);
    PyObject* now = handler_of(module, number);
    for (int tries = 0; now == instead && tries < 2 && set_handler(module, number, handler) != 0; tries++) {
      if (type == NULL)
        PyErr_Fetch(&type, &value, &traceback);
      else
        PyErr_Clear();
    }
    Py_XDECREF(now);
  }
  PyErr_Restore(type, value, traceback);
  return type == NULL ? 0 : -1;
}

PyObject* ipexrun_hold_signals(PyObject* self, PyObject* instead) {
  (void)self;
  PyObject* module = PyImport_ImportModule("_signal");
  PyObject* handlers = module == NULL ? NULL : PyDict_New();
  for (int number = 1; handlers != NULL && number < NSIG; number++) {
    PyObject* handler = handler_of(module, number);
    if (handler == NULL) continue;
    PyObject* key = PyLong_FromLong(number);
    int failed = key == NULL || set_handler(module, number, instead) != 0;
    if (!failed && PyDict_SetItem(handlers, key, handler) != 0) failed = 1;
    Py_XDECREF(key);
    Py_DECREF(handler);
    if (!failed) continue;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (restore(module, instead, handlers) != 0) PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    Py_CLEAR(handlers);
  }
  Py_XDECREF(module);
  return handlers;
}

PyObject* ipexrun_let_signals(PyObject* self, PyObject* arguments) {
  (void)self;
  PyObject *instead, *handlers;
  if (!PyArg_ParseTuple(arguments, "OO!:let_signals", &instead, &PyDict_Type, &handlers)) return NULL;
  PyObject* module = PyImport_ImportModule("_signal");
  if (module == NULL) return NULL;
  const int failed = restore(module, instead, handlers);
  Py_DECREF(module);
  if (failed) return NULL;
  Py_RETURN_NONE;
}
