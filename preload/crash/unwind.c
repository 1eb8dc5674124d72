/* The walk over the stack, by libunwind. It is opened at start-up and kept to ourselves (RTLD_LOCAL): as a dependency of a preloaded
 * library its _Unwind_* functions would take the place of those that the program's C++ exceptions use. */
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <libunwind.h>
#include <ucontext.h>

#include "preload/crash/crash.h"

#define NAME_OF(function) TEXT_OF(function)
#define TEXT_OF(text) #text

static int (*init_local)(unw_cursor_t*, unw_context_t*, int);
static int (*step)(unw_cursor_t*);
static int (*get_reg)(unw_cursor_t*, int, unw_word_t*);
static int (*is_signal_frame)(unw_cursor_t*);

static void add(CrashStack* stack, uintptr_t ip, bool after_call) {
  const CrashFrame frame = {ip, after_call};
  const uint32_t number = stack->count++;
  if (number < kInnerFrames) {
    stack->inner[number] = frame;
  } else {
    stack->outer[(number - kInnerFrames) % kOuterFrames] = frame;
  }
  if (!crash_is_ours(ip - (after_call ? 1 : 0))) return;
  if (stack->ours++ == 0) stack->first_ours = number;
}

static void walk(unw_context_t* context, int flags, bool after_call, CrashStack* stack) {
  static unw_cursor_t cursor; /* one report at a time */
  if (init_local == NULL || init_local(&cursor, context, flags) != 0) return;
  int more = 0;
  do {
    unw_word_t ip = 0;
    if (get_reg(&cursor, UNW_REG_IP, &ip) != 0 || ip == 0) {
      stack->whole = ip == 0;
      return;
    }
    add(stack, (uintptr_t)ip, after_call);
    /* The frame above a signal handler's was interrupted, not called. */
    after_call = is_signal_frame(&cursor) <= 0;
    more = step(&cursor);
  } while (more > 0 && stack->count < kMostFrames);
  stack->whole = more == 0;
}

void crash_walk(void* context, CrashStack* stack) {
  static ucontext_t copy;
  copy = *(const ucontext_t*)context;
  greg_t* registers = copy.uc_mcontext.gregs;
  if (crash_is_code()) {
    walk((unw_context_t*)context, UNW_INIT_SIGNAL_FRAME, false, stack);
    return;
  }
  /* A call through a bad pointer: there is nothing to look up at the address, but the caller's lies on top of the stack. */
  add(stack, (uintptr_t)registers[REG_RIP], false);
  registers[REG_RIP] = *(const greg_t*)registers[REG_RSP];
  registers[REG_RSP] += (greg_t)sizeof(greg_t);
  walk((unw_context_t*)&copy, 0, true, stack);
}

bool crash_open_unwinder(void) {
  void* library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return false;
  step = (int (*)(unw_cursor_t*))dlsym(library, NAME_OF(unw_step));
  get_reg = (int (*)(unw_cursor_t*, int, unw_word_t*))dlsym(library, NAME_OF(unw_get_reg));
  is_signal_frame = (int (*)(unw_cursor_t*))dlsym(library, NAME_OF(unw_is_signal_frame));
  void* init = dlsym(library, NAME_OF(unw_init_local2));
  if (step == NULL || get_reg == NULL || is_signal_frame == NULL || init == NULL) return false;
  init_local = (int (*)(unw_cursor_t*, unw_context_t*, int))init;

  static CrashStack stack;
  unw_context_t here; /* a ucontext_t on this architecture */
  if (getcontext(&here) == 0) walk(&here, 0, true, &stack);
  return true;
}
