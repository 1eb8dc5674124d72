/* What lies in containers at one moment, by identity, and whether it still does: the guard of a traced module
 * (python/ipexrun/capture/traced_graph.py), which compares thousands of attributes at every call. */
#ifndef IPEXRUN_PYTHON_HOOK_SNAPSHOTS_H_
#define IPEXRUN_PYTHON_HOOK_SNAPSHOTS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* snapshot(containers): a tuple that holds what is in each of them: keys and values of a dict, the elements of a list, the
 * methods of a class itself (its bases' are theirs), the class of anything else. */
PyObject* ipexrun_snapshot(PyObject* self, PyObject* containers);

/* unchanged(containers, snapshot[, versions]): whether all of it is still there, the very same objects at the same places. `versions`, a
   bytearray of 8 zeros for each container at first, keeps what dicts and classes looked like when they were compared: one that was not
   touched since is not read again, but for the code of methods. */
PyObject* ipexrun_unchanged(PyObject* self, PyObject* args);

/* fetch(lines): asks for these lines of memory (addresses of 64 bits each), which will be read soon. Nothing is read: an address may be
 * anything. */
PyObject* ipexrun_fetch(PyObject* self, PyObject* lines);

/* all_same(facts): whether for each (function, key, value) function(key) is that very value. Raises what a function raises. */
PyObject* ipexrun_all_same(PyObject* self, PyObject* facts);

/* So many first bytes of an object word_in() looks into. */
enum { IPEXRUN_WORDS_OF_OBJECTS = 32 };

/* word_in(object, word): where among the object's first bytes, as a multiple of 8, this number of 64 bits lies; -1: nowhere. */
PyObject* ipexrun_word_in(PyObject* self, PyObject* args);

/* Whether each of these objects has its word there. */
int ipexrun_hold_words(PyObject* objects, Py_ssize_t offset, const void* words);

#endif
