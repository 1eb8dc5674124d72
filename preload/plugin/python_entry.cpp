#include "preload/plugin/python_entry.h"

#include <dlfcn.h>

#include <fstream>
#include <iterator>
#include <string>

#include "configs/base/log.h"

namespace ipexrun::preload {
namespace {

// CPython's stable functions, found at run time: the plugin is built per torch version and must not depend on a Python version.
struct PyObjectOpaque;
using Object = PyObjectOpaque*;

struct CPython {
  int (*is_initialized)() = nullptr;
  void* (*this_thread_state)() = nullptr;
  void* (*current_state)() = nullptr;
  int (*add_pending_call)(int (*)(void*), void*) = nullptr;
  Object (*compile)(const char*, const char*, int) = nullptr;
  Object (*eval)(Object, Object, Object) = nullptr;
  Object (*builtins)() = nullptr;
  Object (*dict_new)() = nullptr;
  int (*dict_set)(Object, const char*, Object) = nullptr;
  Object (*string)(const char*) = nullptr;
  Object (*boolean)(long) = nullptr;
  Object (*number)(double) = nullptr;
  Object (*capsule)(void*, const char*, void (*)(Object)) = nullptr;
  void (*decref)(Object) = nullptr;
  void (*error_fetch)(Object*, Object*, Object*) = nullptr;
  void (*error_restore)(Object, Object, Object) = nullptr;
  void (*error_clear)() = nullptr;

  /// False when this process has no (complete) CPython.
  bool find() {
    return get(is_initialized, "Py_IsInitialized") && get(this_thread_state, "PyGILState_GetThisThreadState") &&
           (get(current_state, "PyThreadState_GetUnchecked") || get(current_state, "_PyThreadState_UncheckedGet")) &&
           get(add_pending_call, "Py_AddPendingCall") && get(compile, "Py_CompileString") && get(eval, "PyEval_EvalCode") &&
           get(builtins, "PyEval_GetBuiltins") && get(dict_new, "PyDict_New") && get(dict_set, "PyDict_SetItemString") &&
           get(string, "PyUnicode_FromString") && get(boolean, "PyBool_FromLong") && get(number, "PyFloat_FromDouble") &&
           get(capsule, "PyCapsule_New") && get(decref, "Py_DecRef") && get(error_fetch, "PyErr_Fetch") &&
           get(error_restore, "PyErr_Restore") && get(error_clear, "PyErr_Clear");
  }

  /// Whether the calling thread holds the GIL. PyGILState_Check() alone says yes to everybody once a subinterpreter exists.
  [[nodiscard]] bool holds_gil() const {
    void* mine = this_thread_state();
    return mine != nullptr && mine == current_state();
  }

 private:
  template <typename Function>
  static bool get(Function& out, const char* name) {
    out = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
    return out != nullptr;
  }
};

struct Entry {
  CPython python;
  const IpexrunHookApi* api = nullptr;
  std::string folder;
  std::string source;
};

constexpr int kFileInput = 257;  // Py_file_input

bool set_item(const CPython& python, Object globals, const char* name, Object value) {
  if (value == nullptr) return false;
  const bool ok = python.dict_set(globals, name, value) == 0;
  python.decref(value);
  return ok;
}

/// Runs entry.py in a namespace of its own. The GIL is held; an exception that was set before stays set.
void run_source(const Entry& entry) {
  const CPython& python = entry.python;
  Object error = nullptr;
  Object value = nullptr;
  Object trace = nullptr;
  python.error_fetch(&error, &value, &trace);
  const std::string path = entry.folder + "/entry.py";
  Object globals = python.dict_new();
  Object code = python.compile(entry.source.c_str(), path.c_str(), kFileInput);
  void* table = const_cast<IpexrunHookApi*>(entry.api);  // a capsule carries a void*; the extension reads it as const again
  Object result = nullptr;
  if (globals != nullptr && code != nullptr && python.dict_set(globals, "__builtins__", python.builtins()) == 0 &&
      set_item(python, globals, "lib_python", python.string(entry.folder.c_str())) &&
      set_item(python, globals, "capsule", python.capsule(table, IPEXRUN_HOOK_CAPSULE, nullptr)) &&
      set_item(python, globals, "bench", python.boolean(entry.api->bench)) &&
      set_item(python, globals, "capture_wait_s", python.number(entry.api->capture != 0 ? entry.api->capture_wait_s : -1)) &&
      set_item(python, globals, "debug", python.boolean(log::level() >= log::Level::kDebug ? 1 : 0))) {
    result = python.eval(code, globals, globals);
  }
  if (result == nullptr) {
    python.error_clear();
    log::debug("python hook: left out: " + path + " did not run");
  }
  for (Object object : {result, code, globals}) {
    if (object != nullptr) python.decref(object);
  }
  python.error_restore(error, value, trace);
}

int run_pending(void* entry) {
  run_source(*static_cast<Entry*>(entry));
  return 0;  // anything else would raise in the user's code
}

}  // namespace

void python_entry_run(const std::string& lib_dir, const IpexrunHookApi& api) {
  CPython python;
  if (!python.find() || python.is_initialized() == 0) return;
  const std::string folder = lib_dir + "/python";
  std::ifstream file(folder + "/entry.py", std::ios::binary);
  std::string source(std::istreambuf_iterator<char>(file), {});
  if (source.empty()) {
    log::debug("python hook: left out: cannot read " + folder + "/entry.py");
    return;
  }
  // Never freed: the pending call may run at any time, and once the interpreter ends, never.
  auto* entry = new Entry{python, &api, folder, std::move(source)};
  if (python.holds_gil()) {
    run_source(*entry);
  } else if (python.add_pending_call(run_pending, entry) != 0) {
    log::debug("python hook: left out: the interpreter's queue of pending calls is full");
  }
}

}  // namespace ipexrun::preload
