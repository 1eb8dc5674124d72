/* Functions of Python's among TorchDynamo's guards. */
#ifndef IPEXRUN_PYTHON_HOOK_GUARDS_H_
#define IPEXRUN_PYTHON_HOOK_GUARDS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* guard(function, of_signal): a callable that gives what `function` gives. TorchDynamo takes whatever a guard raises for its failure, also
 * what a signal handler of the program's raised there (ctrl-C, an alarm): what of_signal(exception) gives, unless that is None, is kept for
 * raise_lost(). Under the interpreter lock; one exception a process, of the thread that it was raised in. */
PyObject* ipexrun_guard(PyObject* self, PyObject* arguments);

/* raise_lost(): raises what a guard of this thread has kept. */
PyObject* ipexrun_raise_lost(PyObject* self, PyObject* unused);

#endif
