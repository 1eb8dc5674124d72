/* The gate: which torch is this, is there a plugin for it, may that file be trusted, and what does the plugin say. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/plugin_abi.h"
#include "preload/shim/shim.h"

#define REFUSE(...)                              \
  do {                                           \
    snprintf(reason, reason_bytes, __VA_ARGS__); \
    return kGateRefused;                         \
  } while (0)

/* What the plugin's start function returns when torch's kernels are not registered yet (plugin_abi.h). */
enum { kStartActive = 0, kStartNotYet = 2 };

/* Kept from one try to the next: opening is done once, starting as often as the plugin says "not yet". Only the thread that holds
 * entry.c's guard comes here. */
static IpexrunPluginStart plugin_start;
static uint64_t torch_version;

static const char* loader_error(void) {
  const char* text = dlerror();
  return text != NULL ? text : "unknown loader error";
}

static ShimGate check_owner(const char* path, bool folder, char* reason, uint32_t reason_bytes) {
  struct stat file;
  if (stat(path, &file) != 0) REFUSE("cannot read %s: %s", path, strerror(errno));
  if (folder ? !S_ISDIR(file.st_mode) : !S_ISREG(file.st_mode)) REFUSE("%s is not a %s", path, folder ? "folder" : "regular file");
  if (file.st_uid != 0 && file.st_uid != geteuid()) {
    REFUSE("%s belongs to user %u, not to root or to you; it is not loaded", path, (unsigned)file.st_uid);
  }
  const bool sticky_folder = folder && (file.st_mode & S_ISVTX) != 0;
  if ((file.st_mode & S_IWOTH) != 0 && !sticky_folder) REFUSE("%s can be written by every user; it is not loaded (chmod o-w)", path);
  return kGateActive;
}

static char plugin_path[kShimPathBytes + 64];

/* kGateActive: plugin_path is a file in `folder` that may be loaded. kGateNotYet: there is none. */
static ShimGate find_plugin(const char* folder, unsigned major, unsigned minor, char* reason, uint32_t reason_bytes) {
  if (access(folder, F_OK) != 0) return kGateNotYet;
  if (check_owner(folder, true, reason, reason_bytes) != kGateActive) return kGateRefused;
  snprintf(plugin_path, sizeof plugin_path, "%s/libipexrun_plugin_torch%u_%u.so", folder, major, minor);
  if (access(plugin_path, F_OK) != 0) return kGateNotYet;
  return check_owner(plugin_path, false, reason, reason_bytes);
}

static ShimGate open_plugin(void* torch, const ShimTorch* where, char* reason, uint32_t reason_bytes) {
  uint64_t (*abi_version)(void) = (uint64_t(*)(void))shim_real_dlsym(torch, "aoti_torch_abi_version");
  if (abi_version == NULL) REFUSE("%s does not tell its version (too old?)", where->path);
  torch_version = abi_version();
  const unsigned major = (unsigned)(torch_version >> 56), minor = (unsigned)(torch_version >> 48) & 0xff;

  const char* lib_dir = shim_settings.lib_dir;
  if (lib_dir[0] != '/') REFUSE("library folder '%s' is not an absolute path", lib_dir);
  static char folder[kShimPathBytes + 16];
  snprintf(folder, sizeof folder, "%s/plugins", lib_dir);
  ShimGate found = find_plugin(folder, major, minor, reason, reason_bytes);
  /* What this user had built comes second: an installation that was brought up to date counts. */
  if (found == kGateNotYet && shim_settings.plugin_dir[0] == '/') {
    found = find_plugin(shim_settings.plugin_dir, major, minor, reason, reason_bytes);
  }
  if (found == kGateNotYet) REFUSE("no plugin for torch %u.%u in %s (ipexrun doctor --build makes one)", major, minor, folder);
  if (found != kGateActive) return found;
  void* plugin = shim_real_dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) REFUSE("plugin for torch %u.%u does not load: %s", major, minor, loader_error());
  plugin_start = (IpexrunPluginStart)shim_real_dlsym(plugin, IPEXRUN_PLUGIN_START_SYMBOL);
  if (plugin_start == NULL) REFUSE("%s has no %s; rebuild ipexrun", plugin_path, IPEXRUN_PLUGIN_START_SYMBOL);
  return kGateActive;
}

ShimGate shim_pass_gate(const ShimTorch* where, const void* return_address, char* reason, uint32_t reason_bytes) {
  if (where->count > 1) REFUSE("%d copies of libtorch_cpu.so are mapped (the first is %s)", where->count, where->path);

  if (shim_has_unwinder() && !shim_thread_is_outside(return_address)) return kGateNotYet; /* before anything that costs or waits */

  /* Waits while another thread runs torch's constructors: the loader keeps its lock over them. */
  void* torch = shim_real_dlopen(where->path, RTLD_LAZY | RTLD_NOLOAD);
  if (torch == NULL) {
    dlerror(); /* gone again, its dlopen failed: the message is ours, not the program's */
    return kGateNotYet;
  }
  ShimGate result = kGateNotYet;
  if (!shim_find_unwinder(torch)) {
    snprintf(reason, reason_bytes, "no unwinder in the libraries of %s", where->path);
    result = kGateRefused;
  } else if (shim_thread_is_outside(return_address)) {
    result = plugin_start != NULL ? kGateActive : open_plugin(torch, where, reason, reason_bytes);
  }
  if (result == kGateActive) {
    const IpexrunStart start = {IPEXRUN_PLUGIN_ABI, sizeof start, torch_version, shim_settings.lib_dir, reason, reason_bytes, 0};
    const int answer = plugin_start(&start);
    if (answer == kStartNotYet) result = kGateNotYet;
    if (answer != kStartActive && answer != kStartNotYet) {
      result = kGateRefused;
      if (reason[0] == '\0') snprintf(reason, reason_bytes, "the plugin refused to start (code %d)", answer);
    }
  }
  dlclose(torch);
  return result;
}
