/* The one function between shim and plugin. Plain C: the shim is libc only. The plugin is opened with RTLD_NOW | RTLD_LOCAL, has no
 * constructors, and does nothing before this call. */
#ifndef IPEXRUN_PRELOAD_PLUGIN_ABI_H_
#define IPEXRUN_PRELOAD_PLUGIN_ABI_H_

#include <stddef.h>
#include <stdint.h>

#define IPEXRUN_PLUGIN_ABI 1u
#define IPEXRUN_PLUGIN_START_SYMBOL "ipexrun_plugin_start"
/* Plugins are files libipexrun_plugin_torch<major>_<minor>.so in <lib dir>/plugins, else in IPEXRUN_PLUGIN_DIR */

typedef struct IpexrunStart {
  uint32_t abi;           /* IPEXRUN_PLUGIN_ABI */
  uint32_t size;          /* sizeof(IpexrunStart) */
  uint64_t torch_version; /* what aoti_torch_abi_version() returned, e.g. 0x020d... */
  const char* lib_dir;    /* absolute path of lib/ipexrun */
  char* reason;           /* out: why the plugin refuses, NUL terminated */
  uint32_t reason_bytes;
  uint32_t flags; /* IPEXRUN_START_*; read where `size` says that it is there */
} IpexrunStart;

/* Only what torch.compile(backend="ipex") needs: no kernel of the program's own calls is replaced, and nothing is done to Python. */
#define IPEXRUN_START_GRAPHS_ONLY 1u

/* 0: active. 2: not yet, nothing was registered, the shim asks again at its next chance. Anything else: refused, nothing was registered,
 * `reason` says why, never asked again. Called by one thread of the program at a time, with torch fully initialised. Never throws. */
typedef int (*IpexrunPluginStart)(const IpexrunStart* start);

#endif
