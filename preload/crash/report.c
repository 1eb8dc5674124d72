/* The constructor, the handler, and what it says. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "preload/crash/crash.h"

extern char** environ;

sigjmp_buf crash_escape;
volatile sig_atomic_t crash_can_escape;

static const int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
enum { kSignalCount = sizeof kSignals / sizeof *kSignals };

static const char* name_of(int signal_number) {
  static const char* const names[] = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"};
  for (int i = 0; i < kSignalCount; ++i)
    if (kSignals[i] == signal_number) return names[i];
  return "signal";
}

/* ---- what happened ---- */

static void add_cause(CrashLine* line, int signal_number, const siginfo_t* info, uintptr_t stack_pointer) {
  if (info->si_code <= 0) { /* kill, raise, abort */
    if (info->si_pid == getpid()) {
      line_add(line, signal_number == SIGABRT ? ": abort() or a failed assertion" : ": raised by the program itself");
    } else {
      line_add(line, ": sent by process ");
      line_number(line, info->si_pid);
    }
    return;
  }
  const uintptr_t address = (uintptr_t)info->si_addr;
  if (signal_number == SIGFPE) {
    line_add(line, info->si_code == FPE_INTDIV ? ": integer division by zero" : ": arithmetic error");
  } else if (signal_number == SIGILL) {
    line_add(line, ": instruction that this CPU does not have, or no code");
  } else if (info->si_code == SI_KERNEL) {
    line_add(line, ": access to an address that cannot exist");
  } else {
    line_add(line, ": access to ");
    line_hex(line, address);
    if (signal_number == SIGBUS) line_add(line, ", beyond the end of a mapped file, or out of memory or /dev/shm");
    if (signal_number == SIGSEGV) line_add(line, info->si_code == SEGV_ACCERR ? ", which does not allow it" : ", where nothing is mapped");
    if (signal_number == SIGSEGV && address + 65536 > stack_pointer && address < stack_pointer + 4096)
      line_add(line, ": the stack is full (endless recursion?)");
  }
}

static void add_place(CrashLine* line, const CrashPlace* place) {
  line_add(line, place->path);
  line_add(line, "+");
  line_hex(line, place->address);
  if (place->symbol[0] == '\0') return;
  line_add(line, " ");
  line_add(line, place->symbol);
  line_add(line, "+");
  line_hex(line, place->offset);
}

static void write_frame(uint32_t number, const CrashFrame* frame, CrashPlace* place) {
  static CrashLine line;
  memset(place, 0, sizeof *place);
  if (sigsetjmp(crash_escape, 1) == 0) {
    crash_can_escape = 1;
    crash_find_place(frame, place);
  }
  crash_can_escape = 0; /* a file that was cut short: what is known by then is shown */
  line_start(&line);
  line_add(&line, number < 10 ? "  #" : " #");
  line_number(&line, number);
  line_add(&line, " ");
  line_hex(&line, frame->ip);
  line_add(&line, " ");
  if (place->path[0] == '\0') {
    line_add(&line, "(no module: generated code, or not code)");
  } else {
    add_place(&line, place);
  }
  if (crash_is_ours(frame->ip - (frame->after_call ? 1 : 0))) line_add(&line, " (ipexrun)");
  line_write(&line);
}

static void write_stack(const CrashStack* stack, CrashPlace* first) {
  static CrashPlace place;
  static CrashLine line;
  const uint32_t inner = stack->count < kInnerFrames ? stack->count : kInnerFrames;
  for (uint32_t i = 0; i < inner; ++i) {
    write_frame(i, &stack->inner[i], &place);
    if (i == 0) *first = place;
  }
  uint32_t from = stack->count > kInnerFrames + kOuterFrames ? stack->count - kOuterFrames : kInnerFrames;
  if (from > kInnerFrames) {
    line_start(&line);
    line_add(&line, "  ... ");
    line_number(&line, from - kInnerFrames);
    line_add(&line, " frames left out");
    line_write(&line);
  }
  for (; from < stack->count; ++from) write_frame(from, &stack->outer[(from - kInnerFrames) % kOuterFrames], &place);
}

static void write_verdict(const CrashStack* stack) {
  static CrashLine line;
  line_start(&line);
  if (stack->count == 0) {
    line_add(&line, "the stack cannot be followed: whether ipexrun's code was on it is not known");
    line_write(&line);
    return;
  }
  const char* frames = stack->count == 1 ? " frame" : " frames";
  if (stack->ours == 0) {
    line_add(&line, stack->count == 1 ? "this " : "none of these ");
    if (stack->count > 1) line_number(&line, stack->count);
    line_add(&line, stack->count == 1 ? "frame is not ipexrun's" : " frames is ipexrun's");
  } else {
    line_number(&line, stack->ours);
    line_add(&line, stack->count == 1 ? " of this " : " of these ");
    line_number(&line, stack->count);
    line_add(&line, frames);
    line_add(&line, stack->ours == 1 ? " is ipexrun's, #" : " are ipexrun's, the first is #");
    line_number(&line, stack->first_ours);
    line_add(&line, ": please report it; --no-optimize runs without them");
  }
  if (!stack->whole) line_add(&line, "; the stack cannot be followed further");
  line_write(&line);
}

/* For the launcher's summary. The instance's own process has the last word, others the first. */
static void record(int signal_number, const CrashStack* stack, const CrashPlace* first) {
  IpexrunEventHeader* header = crash_settings.header;
  if (header == NULL || (header->crash_signal != 0 && header->root_pid != getpid())) return;
  static CrashLine where;
  where.length = 0;
  const char* slash = strrchr(first->path, '/');
  line_add(&where, slash == NULL ? first->path : slash + 1);
  if (first->path[0] != '\0') {
    line_add(&where, "+");
    line_hex(&where, first->address);
  }
  if (first->symbol[0] != '\0') {
    line_add(&where, " (");
    line_add(&where, first->symbol);
    line_add(&where, ")");
  }
  size_t length = where.length < sizeof header->crash_where - 1 ? where.length : sizeof header->crash_where - 1;
  memcpy(header->crash_where, where.text, length);
  header->crash_where[length] = '\0';
  header->crash_pid = getpid();
  header->crash_frames = (int32_t)stack->count;
  header->crash_ours = (int32_t)stack->ours;
  __atomic_store_n(&header->crash_signal, signal_number, __ATOMIC_RELEASE);
}

void crash_report(int signal_number, const siginfo_t* info, void* context) {
  static CrashLine line;
  static CrashStack stack;
  static CrashPlace first;
  const greg_t* registers = ((const ucontext_t*)context)->uc_mcontext.gregs;
  char thread_name[17] = "";
  prctl(PR_GET_NAME, thread_name);
  line_start(&line);
  line_add(&line, name_of(signal_number));
  line_add(&line, " in ");
  if (crash_settings.instance >= 0) {
    line_add(&line, "instance ");
    line_number(&line, crash_settings.instance);
    line_add(&line, ", ");
  }
  line_add(&line, "process ");
  line_number(&line, getpid());
  line_add(&line, ", thread ");
  line_number(&line, (pid_t)syscall(SYS_gettid));
  line_add(&line, " '");
  line_add(&line, thread_name);
  line_add(&line, "'");
  add_cause(&line, signal_number, info, (uintptr_t)registers[REG_RSP]);
  line_write(&line);

  /* A damaged stack may lead the walk anywhere. */
  sigset_t faults, before;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  sigaddset(&faults, SIGBUS);
  sigprocmask(SIG_UNBLOCK, &faults, &before);
  memset(&stack, 0, sizeof stack);
  if (sigsetjmp(crash_escape, 1) == 0) {
    crash_can_escape = 1;
    crash_scan_modules((uintptr_t)registers[REG_RIP]);
    crash_walk(context, &stack);
  }
  crash_can_escape = 0;
  memset(&first, 0, sizeof first);
  write_stack(&stack, &first);
  write_verdict(&stack);
  record(signal_number, &stack, &first);
  sigprocmask(SIG_SETMASK, &before, NULL);
}

/* ---- the handler ---- */

/* Process and thread that is reporting, 0 = none. The process counts: a forked child inherits the memory. */
static uint64_t reporter;

static void die(int signal_number, const siginfo_t* info) {
  const struct sigaction fallback = {.sa_handler = SIG_DFL};
  sigaction(signal_number, &fallback, NULL);
  /* Blocked until the handler returns; then the process ends where it crashed, with the signal and the details it crashed with. */
  const pid_t process = getpid();
  const pid_t thread = (pid_t)syscall(SYS_gettid);
  if (syscall(SYS_rt_tgsigqueueinfo, process, thread, signal_number, info) != 0) syscall(SYS_tgkill, process, thread, signal_number);
}

static void on_crash(int signal_number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  /* write, open and nanosleep are cancellation points: a thread with a pending pthread_cancel would end here, and the process live on. It
   * stays disabled, as the process ends when the handler returns: enabling it ends a thread of asynchronous type at once. */
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  const uint64_t process = (uint64_t)getpid() << 32;
  const uint64_t self = process | (uint32_t)syscall(SYS_gettid);
  uint64_t seen = __atomic_load_n(&reporter, __ATOMIC_ACQUIRE);
  while ((seen & ~(uint64_t)UINT32_MAX) != process) {
    if (__atomic_compare_exchange_n(&reporter, &seen, self, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      crash_can_escape = 0;
      crash_report(signal_number, info, context);
      seen = self;
    }
  }
  if (seen == self && crash_can_escape) {
    crash_can_escape = 0;
    siglongjmp(crash_escape, 1);
  }
  if (seen != self) {
    /* Another thread reports, and then ends the process. */
    const struct timespec pause = {0, 50 * 1000 * 1000};
    for (int i = 0; i < 200; ++i) nanosleep(&pause, NULL);
  }
  die(signal_number, info);
  errno = saved_errno;
}

__attribute__((constructor)) static void begin(void) {
  crash_read_settings(environ);
  if (!crash_settings.on) return;
  crash_prepare_thread();
  if (!crash_open_unwinder() && (crash_settings.header == NULL || crash_settings.header->root_pid == getpid())) {
    CrashLine line;
    line_start(&line);
    line_add(&line, "--crash-report: libunwind.so.8 is not there: crashes are reported without their stack");
    line_write(&line);
  }
  struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < kSignalCount; ++i) {
    struct sigaction now;
    if (sigaction(kSignals[i], NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL)
      sigaction(kSignals[i], &action, NULL);
  }
}
