/* What the files of the crash library share. From the handler on, everything here is safe in a signal handler: system calls and memory of
 * our own, no allocation, no lock, no stdio. */
#ifndef IPEXRUN_PRELOAD_CRASH_CRASH_H_
#define IPEXRUN_PRELOAD_CRASH_CRASH_H_

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "configs/contract/event.h"

enum { kCrashPathBytes = 4096 };

/* ---- settings.c ---- */

typedef struct CrashSettings {
  bool on;                       /* IPEXRUN_CRASH_REPORT, and not IPEXRUN_DISABLE, and not a set-user-ID program */
  int instance;                  /* IPEXRUN_INSTANCE, -1 = not known */
  char lib_dir[kCrashPathBytes]; /* IPEXRUN_LIB_DIR, "" = not known */
  IpexrunEventHeader* header;    /* of the event file, mapped; NULL = none */
} CrashSettings;

extern CrashSettings crash_settings;

void crash_read_settings(char** environment);

/* ---- threads.c ---- */

/* Gives the calling thread a signal stack of its own, unless it has one. */
void crash_prepare_thread(void);

/* ---- unwind.c ---- */

/* Opens libunwind and uses it once, so that nothing is left to be set up in a crash. False when it is not there. */
bool crash_open_unwinder(void);

typedef struct CrashFrame {
  uintptr_t ip;
  bool after_call; /* ip is a return address: the call lies before it */
} CrashFrame;

enum { kInnerFrames = 40, kOuterFrames = 16, kMostFrames = 1000000 };

typedef struct CrashStack {
  CrashFrame inner[kInnerFrames]; /* the first ones */
  CrashFrame outer[kOuterFrames]; /* the last ones beyond them; frame n lies at (n - kInnerFrames) % kOuterFrames */
  uint32_t count;                 /* of all frames seen */
  uint32_t ours;                  /* how many of them are ipexrun's */
  uint32_t first_ours;
  bool whole; /* the walk came to the end of the stack */
} CrashStack;

/* Walks the stack that `context` (a ucontext_t) belongs to. `stack` may be half filled when the walk meets a fault and the caller escapes.
 */
void crash_walk(void* context, CrashStack* stack);

/* ---- modules.c ---- */

/* Reads /proc/self/maps for what crash_is_ours() and crash_is_code() answer. */
void crash_scan_modules(uintptr_t ip);
bool crash_is_ours(uintptr_t address); /* the shim, the plugin, the hook; not this library */
bool crash_is_code(void);              /* whether the `ip` of crash_scan_modules() lies in mapped code */

typedef struct CrashPlace {
  char path[512];   /* of the module, "" = none: generated code, or nothing mapped */
  uint64_t address; /* in the module, as addr2line takes it */
  char symbol[240]; /* the function, "" = unknown */
  uint64_t offset;  /* from the function's start */
} CrashPlace;

void crash_find_place(const CrashFrame* frame, CrashPlace* place);

/* ---- text.c ---- */

typedef struct CrashLine {
  char text[1024];
  size_t length;
} CrashLine;

void line_start(CrashLine* line);
void line_add(CrashLine* line, const char* text);
void line_number(CrashLine* line, int64_t value);
void line_hex(CrashLine* line, uint64_t value);
void line_write(CrashLine* line);

/* ---- report.c ---- */

/* Says what happened, on stderr and in the event file. */
void crash_report(int signal_number, const siginfo_t* info, void* context);

/* A fault inside the report comes back here, where it is set. */
extern sigjmp_buf crash_escape;
extern volatile sig_atomic_t crash_can_escape;

#endif
