#include "python/hook/targets.h"

enum { SLOTS = 1024, PROBES = 16 };

static Target table[SLOTS];

PyObject* object_of(PyObject* weak) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* object = NULL;
  return PyWeakref_GetRef(weak, &object) == 1 ? object : NULL;
#else
  PyObject* object = PyWeakref_GetObject(weak);
  return object == Py_None ? NULL : Py_NewRef(object);
#endif
}

static int is_alive(PyObject* weak) {
  PyObject* object = object_of(weak);
  Py_XDECREF(object);
  return object != NULL;
}

static void set_free(Target* target) {
  /* Dropping a handler may run code that comes back here: the entry is free before. */
  PyObject *weak = target->weak, *handler = target->handler;
  *target = (Target){0};
  Py_XDECREF(weak);
  Py_XDECREF(handler);
}

Target* target_of(PyObject* module, int grad, uint64_t wait_ns) {
  /* Objects lie 16 bytes apart at least. */
  const uintptr_t hash = (((uintptr_t)module >> 4) + (uintptr_t)(grad != 0)) * 0x9E3779B97F4A7C15ull >> 32;
  Target* room = NULL;
  for (unsigned i = 0; i < PROBES; ++i) {
    Target* target = &table[(hash + i) % SLOTS];
    if (target->weak != NULL && target->module == module && target->grad == grad && is_alive(target->weak)) return target;
    if (room == NULL && (target->weak == NULL || !is_alive(target->weak))) room = target;
  }
  if (room == NULL) return NULL;
  PyObject* weak = PyWeakref_NewRef(module, NULL);
  if (weak == NULL) {
    PyErr_Clear();
    return NULL;
  }
  set_free(room);
  *room = (Target){.module = module, .grad = grad, .weak = weak, .wait_ns = wait_ns};
  return room;
}

void forget_targets(void) {
  for (int i = 0; i < SLOTS; ++i) set_free(&table[i]);
}
