#include "python/hook/snapshots.h"

#include <stddef.h>
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

/* Whether these functions, which a class still has, have the code they had. */
static int have_codes(PyObject* contents) {
  const Py_ssize_t size = PyTuple_GET_SIZE(contents);
  for (Py_ssize_t i = 0; i + 3 <= size; i += 3) {
    if (i + 3 * kMethodsAhead + 1 < size)
      __builtin_prefetch((const char*)PyTuple_GET_ITEM(contents, i + 3 * kMethodsAhead + 1) + offsetof(PyFunctionObject, func_code));
    PyObject* code = PyTuple_GET_ITEM(contents, i + 2);
    if (code != Py_None && PyFunction_GET_CODE(PyTuple_GET_ITEM(contents, i + 1)) != code) return 0;
  }
  return 1;
}

/* Keys and values. Until Python 3.11 to make a tuple may collect garbage, whose finalizers may change the dict. */
static PyObject* entries_of(PyObject* dict) {
  for (;;) {
    const Py_ssize_t size = PyDict_GET_SIZE(dict);
    PyObject* entries = PyTuple_New(2 * size);
    if (entries != NULL && PyDict_GET_SIZE(dict) != size) {
      Py_DECREF(entries);
      continue;
    }
    Py_ssize_t position = 0;
    PyObject *key, *value;
    for (Py_ssize_t i = 0; entries != NULL && PyDict_Next(dict, &position, &key, &value); i += 2) {
      PyTuple_SET_ITEM(entries, i, Py_NewRef(key));
      PyTuple_SET_ITEM(entries, i + 1, Py_NewRef(value));
    }
    return entries;
  }
}

static PyObject* contents_of(PyObject* container) {
  if (PyDict_Check(container)) return entries_of(container);
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

/* Containers lie anywhere, and a model's weights have put them out of the caches since the last call: they are asked for some steps ahead,
   first themselves, then what they point to. */
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

/* A number that nothing of its kind had before and that each change of this one replaces: of dicts PEP 509's, until Python 3.11, of classes
   the tag that the interpreter's own cache of methods goes by, which is 0 from a change on until a method is looked up. 0: none. */
#if PY_VERSION_HEX < 0x030C0000
enum { kHasVersions = 1 };
static uint64_t version_of(PyObject* container) {
  if (PyDict_Check(container)) return ((PyDictObject*)container)->ma_version_tag;
  return PyType_Check(container) ? ((PyTypeObject*)container)->tp_version_tag : 0;
}
#else
enum { kHasVersions = 0 };
static uint64_t version_of(PyObject* container) { return PyType_Check(container) ? ((PyTypeObject*)container)->tp_version_tag : 0; }
#endif

PyObject* ipexrun_unchanged(PyObject* self, PyObject* args) {
  (void)self;
  PyObject *containers, *snapshot, *buffer = NULL;
  if (!PyArg_ParseTuple(args, "O!O!|O!:unchanged", &PyTuple_Type, &containers, &PyTuple_Type, &snapshot, &PyByteArray_Type, &buffer))
    return NULL;
  const Py_ssize_t count = PyTuple_GET_SIZE(containers);
  if (PyTuple_GET_SIZE(snapshot) != count) Py_RETURN_FALSE;
  char* versions = buffer == NULL ? NULL : PyByteArray_AS_STRING(buffer);
  if (versions != NULL && PyByteArray_GET_SIZE(buffer) != count * (Py_ssize_t)sizeof(uint64_t)) {
    return PyErr_Format(PyExc_ValueError, "8 bytes for each of %zd containers are needed, not %zd", count, PyByteArray_GET_SIZE(buffer));
  }
  PyObject** items = ((PyTupleObject*)containers)->ob_item;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (versions == NULL || !kHasVersions) {
      fetch(items, ((PyTupleObject*)snapshot)->ob_item, i, count);
    } else if (i + kFar < count) {
      __builtin_prefetch(items[i + kFar]);
    }
    PyObject* contents = PyTuple_GET_ITEM(snapshot, i);
    uint64_t known = 0;
    if (versions != NULL) {
      memcpy(&known, versions + sizeof known * i, sizeof known);
      if (known != 0 && known == version_of(items[i])) {
        /* A function may get other code without a change of its class. */
        if (!PyType_Check(items[i]) || (PyTuple_CheckExact(contents) && have_codes(contents))) continue;
        Py_RETURN_FALSE;
      }
    }
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

/* An object that is shorter has no such word. */
static int has_word(PyObject* object, Py_ssize_t offset, uint64_t word) {
  uint64_t there;
  if (Py_TYPE(object)->tp_basicsize < offset + (Py_ssize_t)sizeof there) return 0;
  memcpy(&there, (const char*)object + offset, sizeof there);
  return there == word;
}

PyObject* ipexrun_word_in(PyObject* self, PyObject* args) {
  (void)self;
  PyObject* object;
  unsigned long long word;
  if (!PyArg_ParseTuple(args, "OK:word_in", &object, &word)) return NULL;
  for (Py_ssize_t offset = sizeof(PyObject); offset + (Py_ssize_t)sizeof word <= IPEXRUN_WORDS_OF_OBJECTS; offset += sizeof word) {
    if (has_word(object, offset, word)) return PyLong_FromSsize_t(offset);
  }
  return PyLong_FromLong(-1);
}

int ipexrun_hold_words(PyObject* objects, Py_ssize_t offset, const void* words) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(objects); ++i) {
    uint64_t word;
    memcpy(&word, (const char*)words + sizeof word * i, sizeof word);
    if (!has_word(PyTuple_GET_ITEM(objects, i), offset, word)) return 0;
  }
  return 1;
}

PyObject* ipexrun_all_same(PyObject* self, PyObject* facts) {
  (void)self;
  if (!PyTuple_CheckExact(facts)) return PyErr_Format(PyExc_TypeError, "a tuple of facts is needed");
  const Py_ssize_t count = PyTuple_GET_SIZE(facts);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* fact = PyTuple_GET_ITEM(facts, i);
    if (i + kNear < count) __builtin_prefetch(PyTuple_GET_ITEM(facts, i + kNear));
    if (!PyTuple_CheckExact(fact) || PyTuple_GET_SIZE(fact) != 3)
      return PyErr_Format(PyExc_TypeError, "a fact is a function, a key and a value");
    PyObject* found = PyObject_CallOneArg(PyTuple_GET_ITEM(fact, 0), PyTuple_GET_ITEM(fact, 1));
    if (found == NULL) return NULL;
    Py_DECREF(found); /* the value, if it is the one, is held by the fact */
    if (found != PyTuple_GET_ITEM(fact, 2)) Py_RETURN_FALSE;
  }
  Py_RETURN_TRUE;
}
