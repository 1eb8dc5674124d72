#include "python/hook/snapshots.h"

#include <stdint.h>
#include <string.h>

/* What TorchDynamo reads of a class without a guard of its own; data, properties and static methods it looks at again. */
static int is_method(PyObject* value) { return PyFunction_Check(value) || Py_IS_TYPE(value, &PyClassMethod_Type); }

static PyObject* code_of(PyObject* method) { return PyFunction_Check(method) ? PyFunction_GET_CODE(method) : Py_None; }

/* Names, functions and their code; the code, for autoreload puts new code into old functions. */
static PyObject* methods_of(PyTypeObject* type) {
  PyObject* methods = PyList_New(0);
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (methods != NULL && type->tp_dict != NULL && PyDict_Next(type->tp_dict, &position, &key, &value)) {
    if (!is_method(value)) continue;
    if (PyList_Append(methods, key) < 0 || PyList_Append(methods, value) < 0 || PyList_Append(methods, code_of(value)) < 0) {
      Py_CLEAR(methods);
    }
  }
  if (methods == NULL) return NULL;
  PyObject* contents = PyList_AsTuple(methods);
  Py_DECREF(methods);
  return contents;
}

enum { kMethodsAhead = 6 };

static int has_methods(PyTypeObject* type, PyObject* contents) {
  const Py_ssize_t size = PyTuple_GET_SIZE(contents);
  Py_ssize_t position = 0, i = 0;
  PyObject *key, *value;
  while (type->tp_dict != NULL && PyDict_Next(type->tp_dict, &position, &key, &value)) {
    if (i + 3 * kMethodsAhead + 1 < size) __builtin_prefetch(PyTuple_GET_ITEM(contents, i + 3 * kMethodsAhead + 1));
    if (!is_method(value)) continue;
    if (i + 3 > size || PyTuple_GET_ITEM(contents, i) != key || PyTuple_GET_ITEM(contents, i + 1) != value ||
        PyTuple_GET_ITEM(contents, i + 2) != code_of(value)) {
      return 0;
    }
    i += 3;
  }
  return i == size;
}

static PyObject* contents_of(PyObject* container) {
  if (PyDict_Check(container)) {
    PyObject* contents = PyTuple_New(2 * PyDict_GET_SIZE(container));
    Py_ssize_t position = 0;
    PyObject *key, *value;
    for (Py_ssize_t i = 0; contents != NULL && PyDict_Next(container, &position, &key, &value); i += 2) {
      PyTuple_SET_ITEM(contents, i, Py_NewRef(key));
      PyTuple_SET_ITEM(contents, i + 1, Py_NewRef(value));
    }
    return contents;
  }
  if (PyList_Check(container)) return PyList_AsTuple(container);
  if (PyType_Check(container)) return methods_of((PyTypeObject*)container);
  return PyTuple_Pack(1, (PyObject*)Py_TYPE(container));
}

static int holds(PyObject* container, PyObject* contents) {
  const Py_ssize_t size = PyTuple_GET_SIZE(contents);
  if (PyDict_Check(container)) {
    if (2 * PyDict_GET_SIZE(container) != size) return 0;
    Py_ssize_t position = 0;
    PyObject *key, *value;
    for (Py_ssize_t i = 0; PyDict_Next(container, &position, &key, &value); i += 2) {
      if (PyTuple_GET_ITEM(contents, i) != key || PyTuple_GET_ITEM(contents, i + 1) != value) return 0;
    }
    return 1;
  }
  if (PyList_Check(container)) {
    if (PyList_GET_SIZE(container) != size) return 0;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (PyList_GET_ITEM(container, i) != PyTuple_GET_ITEM(contents, i)) return 0;
    }
    return 1;
  }
  if (PyType_Check(container)) return has_methods((PyTypeObject*)container, contents);
  return size == 1 && (PyObject*)Py_TYPE(container) == PyTuple_GET_ITEM(contents, 0);
}

PyObject* ipexrun_snapshot(PyObject* self, PyObject* containers) {
  (void)self;
  if (!PyTuple_CheckExact(containers)) return PyErr_Format(PyExc_TypeError, "a tuple of containers is needed");
  const Py_ssize_t count = PyTuple_GET_SIZE(containers);
  PyObject* snapshot = PyTuple_New(count);
  for (Py_ssize_t i = 0; snapshot != NULL && i < count; ++i) {
    PyObject* contents = contents_of(PyTuple_GET_ITEM(containers, i));
    if (contents == NULL) {
      Py_CLEAR(snapshot);
    } else {
      PyTuple_SET_ITEM(snapshot, i, contents);
    }
  }
  return snapshot;
}

/* Containers lie anywhere, and a model's weights have put them out of the caches since the last call: they are asked for some steps ahead, first
   themselves, then what they point to. */
enum { kFar = 12, kNear = 6 };

static void fetch(PyObject* const* containers, PyObject* const* snapshot, Py_ssize_t i, Py_ssize_t count) {
  if (i + kFar < count) {
    __builtin_prefetch(containers[i + kFar]);
    __builtin_prefetch(snapshot[i + kFar]);
  }
  if (i + kNear >= count) return;
  PyObject* near = containers[i + kNear];
  if (PyDict_Check(near)) {
    const char* keys = (const char*)((PyDictObject*)near)->ma_keys;
    for (int line = 0; line < 3; ++line) __builtin_prefetch(keys + 64 * line);
  } else if (PyList_Check(near)) {
    __builtin_prefetch(((PyListObject*)near)->ob_item);
  }
}

/* A number that no dict had before and that each change of this one replaces (PEP 509, until Python 3.11); 0: none. */
#if PY_VERSION_HEX < 0x030C0000
enum { kHasVersions = 1 };
static uint64_t version_of(PyObject* container) { return PyDict_Check(container) ? ((PyDictObject*)container)->ma_version_tag : 0; }
#else
enum { kHasVersions = 0 };
static uint64_t version_of(PyObject* container) { return container == NULL; }
#endif

PyObject* ipexrun_unchanged(PyObject* self, PyObject* args) {
  (void)self;
  PyObject *containers, *snapshot, *buffer = NULL;
  if (!PyArg_ParseTuple(args, "O!O!|O!:unchanged", &PyTuple_Type, &containers, &PyTuple_Type, &snapshot, &PyByteArray_Type, &buffer)) return NULL;
  const Py_ssize_t count = PyTuple_GET_SIZE(containers);
  if (PyTuple_GET_SIZE(snapshot) != count) Py_RETURN_FALSE;
  char* versions = buffer == NULL ? NULL : PyByteArray_AS_STRING(buffer);
  if (versions != NULL && PyByteArray_GET_SIZE(buffer) != count * (Py_ssize_t)sizeof(uint64_t)) {
    return PyErr_Format(PyExc_ValueError, "8 bytes for each of %zd containers are needed, not %zd", count, PyByteArray_GET_SIZE(buffer));
  }
  if (!kHasVersions) versions = NULL;
  PyObject** items = ((PyTupleObject*)containers)->ob_item;
  for (Py_ssize_t i = 0; i < count; ++i) {
    uint64_t known = 0;
    if (versions != NULL) {
      if (i + kFar < count) __builtin_prefetch(items[i + kFar]);
      memcpy(&known, versions + sizeof known * i, sizeof known);
      if (known != 0 && known == version_of(items[i])) continue;
    } else {
      fetch(items, ((PyTupleObject*)snapshot)->ob_item, i, count);
    }
    PyObject* contents = PyTuple_GET_ITEM(snapshot, i);
    if (!PyTuple_CheckExact(contents) || !holds(items[i], contents)) Py_RETURN_FALSE;
    if (versions == NULL) continue;
    known = version_of(items[i]);
    memcpy(versions + sizeof known * i, &known, sizeof known);
  }
  Py_RETURN_TRUE;
}

PyObject* ipexrun_fetch(PyObject* self, PyObject* lines) {
  (void)self;
  Py_buffer buffer;
  if (PyObject_GetBuffer(lines, &buffer, PyBUF_SIMPLE) < 0) return NULL;
  const char* addresses = buffer.buf;
  for (Py_ssize_t i = 0; i + (Py_ssize_t)sizeof(uint64_t) <= buffer.len; i += sizeof(uint64_t)) {
    uint64_t address;
    memcpy(&address, addresses + i, sizeof address);
    __builtin_prefetch((const void*)(uintptr_t)address);
  }
  PyBuffer_Release(&buffer);
  Py_RETURN_NONE;
}
