/* Programs that crash, each in one way; argv[1] says which. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void library_work(int* where);
void ipexrun_work(int* where);

static int* volatile nowhere;

__attribute__((noinline)) void write_nowhere(void) { *nowhere = 1; }

__attribute__((noinline)) int use_stack(int depth) {
  volatile char bytes[512];
  memset((char*)bytes, depth, sizeof bytes);
  return use_stack(depth + 1) + bytes[depth % 512];
}

__attribute__((noreturn, noinline)) void crash_for_good(void) {
  write_nowhere();
  __builtin_unreachable();
}

/* The call is the last instruction, so its return address already belongs to the next function. */
__attribute__((noinline)) void ends_with_a_call(void) { crash_for_good(); }

static void* crash_in_thread(void* unused) {
  (void)unused;
  write_nowhere();
  return NULL;
}

/* The cancellation waits for the next cancellation point, and write(2) of a report is one. */
static void* crash_while_cancelled(void* unused) {
  (void)unused;
  pthread_cancel(pthread_self());
  write_nowhere();
  return NULL;
}

static void* overflow_in_thread(void* unused) {
  (void)unused;
  use_stack(0);
  return NULL;
}

static void* count(void* number) {
  stack_t now;
  const int has_stack = sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_DISABLE) == 0;
  __atomic_add_fetch((int*)number, has_stack, __ATOMIC_RELAXED);
  return NULL;
}

static void in_thread(void* (*run)(void*), void* argument) {
  pthread_t thread;
  pthread_create(&thread, NULL, run, argument);
  pthread_join(thread, NULL);
}

static void own_handler(int signal_number) {
  static const char text[] = "mine\n";
  if (write(STDOUT_FILENO, text, sizeof text - 1) > 0) _exit(signal_number == SIGSEGV ? 7 : 8);
}

static long mapped_kib(void) {
  FILE* status = fopen("/proc/self/status", "r");
  char line[256];
  long out = 0;
  while (status != NULL && fgets(line, sizeof line, status) != NULL)
    if (sscanf(line, "VmSize: %ld", &out) == 1) break;
  if (status != NULL) fclose(status);
  return out;
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "";
  const struct sigaction own = {.sa_handler = own_handler};
  printf("pid %d\n", (int)getpid());
  fflush(stdout);
  if (strcmp(how, "null") == 0) write_nowhere();
  if (strcmp(how, "thread") == 0) in_thread(crash_in_thread, NULL);
  if (strcmp(how, "cancel") == 0) in_thread(crash_while_cancelled, NULL);
  if (strcmp(how, "library") == 0) library_work(nowhere);
  if (strcmp(how, "ours") == 0) ipexrun_work(nowhere);
  if (strcmp(how, "overflow") == 0) return use_stack(0);
  if (strcmp(how, "overflow_thread") == 0) in_thread(overflow_in_thread, NULL);
  if (strcmp(how, "abort") == 0) abort();
  if (strcmp(how, "heap") == 0) free((char*)malloc(64) + 8);
  if (strcmp(how, "divide") == 0) {
    volatile int number = argc, zero = 0;
    return number / zero;
  }
  if (strcmp(how, "illegal") == 0) __asm__ volatile("ud2");
  if (strcmp(how, "bus") == 0) {
    const int fd = memfd_create("short", 0);
    char* memory = fd < 0 ? NULL : mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    return memory == NULL ? 1 : *(volatile char*)memory;
  }
  if (strcmp(how, "bad_call") == 0) ((void (*)(void))nowhere)();
  if (strcmp(how, "lost_stack") == 0) {
    __asm__ volatile("mov $0x123450, %%rsp\n\tmov $0x123450, %%rbp\n\tmovl $1, 0" ::: "memory");
  }
  if (strcmp(how, "lost_call") == 0) __asm__ volatile("mov $0x123450, %%rsp\n\txor %%eax, %%eax\n\tjmp *%%rax" ::: "memory");
  if (strcmp(how, "last_call") == 0) ends_with_a_call();
  if (strcmp(how, "own_handler") == 0) {
    sigaction(SIGSEGV, &own, NULL);
    write_nowhere();
  }
  if (strcmp(how, "wait") == 0) {
    char byte;
    return read(STDIN_FILENO, &byte, 1) == 0 ? 0 : 1;
  }
  if (strcmp(how, "many") == 0)
    for (int i = 0; i < 4; ++i) {
      pthread_t thread;
      pthread_create(&thread, NULL, crash_in_thread, NULL);
    }
  if (strcmp(how, "many") == 0) pause();
  if (strcmp(how, "fork") == 0) {
    const pid_t child = fork();
    if (child == 0) write_nowhere();
    int status = 0;
    waitpid(child, &status, 0);
    printf("child %d ended by %d\n", (int)child, WTERMSIG(status));
    return 0;
  }
  if (strcmp(how, "exec") == 0) execl("/proc/self/exe", argv[0], "null", NULL);
  if (strcmp(how, "disposition") == 0) { /* what the program sees of us */
    struct sigaction now;
    for (const int* one = (const int[]){SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM, 0}; *one != 0; ++one) {
      sigaction(*one, NULL, &now);
      printf("%s", now.sa_handler == SIG_DFL ? "default " : now.sa_handler == SIG_IGN ? "ignored " : "handled ");
    }
    printf("\n");
  }
  if (strcmp(how, "threads") == 0) { /* each has a signal stack, and gives it back */
    int with_stack = 0;
    in_thread(count, &with_stack);
    const long before = mapped_kib();
    for (int i = 0; i < 200; ++i) in_thread(count, &with_stack);
    printf("%d with a signal stack, %s\n", with_stack, mapped_kib() - before < 200 * 64 / 4 ? "given back" : "kept");
  }
  return 0;
}
