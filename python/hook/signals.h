/* Signal handlers of the program's, in Python, which wait while nothing of the program's may run. */
#ifndef IPEXRUN_PYTHON_HOOK_SIGNALS_H_
#define IPEXRUN_PYTHON_HOOK_SIGNALS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* hold_signals(instead): {number: handler} of all handlers in Python, in whose place `instead` is called from now on. Masks and flags of
 * the kernel (siginterrupt) stay as they are. On the main thread alone (ValueError elsewhere, and nothing is changed). What a handler
 * raises that was due comes out of it, and nothing is changed. */
PyObject* ipexrun_hold_signals(PyObject* self, PyObject* instead);

/* let_signals(instead, handlers): these again, where `instead` still stands. */
PyObject* ipexrun_let_signals(PyObject* self, PyObject* arguments);

#endif
