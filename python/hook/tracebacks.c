#include "python/hook/tracebacks.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

/* Where the line's code comes from: UTF-8 that lives as long as the code; NULL = unknown. */
static const char* file_of(const PyTracebackObject* line) {
  PyCodeObject* code = PyFrame_GetCode(line->tb_frame);
  PyObject* name = PyObject_GetAttrString((PyObject*)code, "co_filename");
  const char* text = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
  if (text == NULL) PyErr_Clear();
  Py_XDECREF(name); /* the code holds it, the frame the code */
  Py_DECREF(code);
  return text;
}

/* The end of the package's folder in the path of one of its files, which may lie in a folder of it. */
static const char* end_of_package(const char* path) {
  const char *end = NULL, *next = path;
  while ((next = strstr(next, "/ipexrun/")) != NULL) end = next += strlen("/ipexrun");
  return end != NULL ? end : strrchr(path, '/');
}

void ipexrun_leave_out_own_lines(void) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (traceback == NULL || !PyTraceBack_Check(traceback)) return PyErr_Restore(type, value, traceback);
  const char* own = file_of((PyTracebackObject*)traceback);
  const char* end = own != NULL ? end_of_package(own) : NULL;
  PyTracebackObject* line = (PyTracebackObject*)traceback;
  while (end != NULL && line != NULL) {
    const char* file = file_of(line);
    if (file == NULL || (strncmp(file, own, (size_t)(end - own) + 1) != 0 && strstr(file, "/torch/_dynamo/") == NULL)) break;
    line = line->tb_next;
  }
  if (line != NULL && (PyObject*)line != traceback) {
    Py_INCREF(line);
    Py_SETREF(traceback, (PyObject*)line);
  }
  PyErr_Restore(type, value, traceback);
}
