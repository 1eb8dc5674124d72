/* One small program, one scenario a run: `host SCENARIO [LIBRARY...]`. What it prints must be the same with and without the shim; what the
 * plugin saw stands in FAKE_LOG, where the host marks its own steps. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void mark(const char* text) {
  const char* path = getenv("FAKE_LOG");
  if (path == NULL) return;
  const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (fd >= 0 && (write(fd, text, strlen(text)) < 0 || write(fd, "\n", 1) < 0)) abort();
  close(fd);
}

static void* open_or_die(const char* path, int flags) {
  void* library = dlopen(path, flags);
  if (library == NULL) {
    fprintf(stderr, "host: %s\n", dlerror());
    exit(9);
  }
  return library;
}

static void* idle(void* argument) { return argument; }

static void start_a_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, idle, NULL) != 0) exit(8);
  pthread_join(thread, NULL);
}

/* A model library, opened once, then asked for its function: dlsym is the moment. */
static int once(char** library) {
  void* model = open_or_die(library[0], RTLD_NOW);
  mark("opened");
  int (*run)(void) = (int (*)(void))dlsym(model, "model_run");
  mark("asked");
  printf("model says %d\n", run());
  return 0;
}

/* Opened once and never asked: the program's next thread is the moment. */
static int once_then_thread(char** library) {
  open_or_die(library[0], RTLD_NOW);
  mark("opened");
  start_a_thread();
  mark("thread");
  puts("done");
  return 0;
}

/* As above, but another thread has used the loader too: a thread is no safe moment any more, the next dlopen is. */
static void* open_math(void* argument) { return open_or_die("libm.so.6", RTLD_NOW) != NULL ? argument : NULL; }

static int many_loaders(char** library) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, open_math, NULL) != 0) return 8;
  pthread_join(thread, NULL);
  open_or_die(library[0], RTLD_NOW);
  mark("opened");
  start_a_thread();
  mark("thread");
  open_or_die("libm.so.6", RTLD_NOW);
  mark("second dlopen");
  return 0;
}

/* One thread loads torch, whose constructor is slow, while others open something else all the time. */
static volatile int loaded;

static void* open_others(void* argument) {
  while (!loaded) {
    dlclose(open_or_die(argument, RTLD_NOW));
    dlsym(RTLD_DEFAULT, "malloc");
    start_a_thread();
    usleep(200);
  }
  return NULL;
}

static void* open_torch(void* argument) {
  open_or_die(argument, RTLD_NOW);
  loaded = 1;
  return NULL;
}

static int race(char** library) {
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) {
    if (pthread_create(&threads[i], NULL, i == 1 ? open_torch : open_others, library[i == 1 ? 0 : 1]) != 0) return 8;
  }
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  open_or_die("libm.so.6", RTLD_NOW); /* the threads may have been too busy with each other: a last chance */
  puts("raced");
  return 0;
}

/* torch calls the program back, which opens a library: this thread is inside torch. */
static void call_back(void) {
  open_or_die("libm.so.6", RTLD_NOW);
  start_a_thread();
  mark("inside");
}

static int callback(char** library) {
  void* torch = open_or_die(library[0], RTLD_NOW);
  typedef void (*Run)(void (*)(void));
  Run run = (Run)dlsym(torch, "fake_torch_run");
  mark("asked");
  run(call_back);
  mark("out again");
  open_or_die("libm.so.6", RTLD_NOW);
  return 0;
}

/* What the loader answers must not change: RUNPATH of the caller, error texts, errno, handles of the program itself. */
static int answers(char** library) {
  (void)library;
  errno = 77;
  void* relative = dlopen("libfake_helper.so", RTLD_NOW); /* by this program's RUNPATH */
  printf("by runpath: %s, errno %d\n", relative != NULL ? "found" : dlerror(), errno);
  void* missing = dlopen("libthere-is-none.so.5", RTLD_NOW);
  printf("missing: %d %s\n", missing == NULL, dlerror());
  printf("no error left: %d\n", dlerror() == NULL);
  printf("no symbol: %d %s\n", dlsym(RTLD_DEFAULT, "there_is_no_such_symbol") == NULL, dlerror());
  printf("self: %d\n", dlopen(NULL, RTLD_NOW) == dlopen(NULL, RTLD_LAZY));
  printf("next malloc: %d\n", dlsym(RTLD_NEXT, "malloc") != NULL);
  printf("bad thread attribute: %d\n", dlopen("", RTLD_NOW) != NULL);
  void* deep = dlopen("libfake_helper.so", RTLD_NOW | RTLD_DEEPBIND);
  printf("deepbind: %d\n", deep != NULL);
  return 0;
}

static int deepbind(char** library) {
  open_or_die(library[0], RTLD_NOW | RTLD_DEEPBIND);
  mark("opened");
  open_or_die("libm.so.6", RTLD_NOW);
  puts("done");
  return 0;
}

/* The child loads torch; the parent never does. */
static int fork_before(char** library) {
  const pid_t child = fork();
  if (child == 0) exit(once(library));
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

/* The parent has it; the child goes on opening things and must start nothing again. */
static int fork_after(char** library) {
  once(library);
  const pid_t child = fork();
  if (child == 0) {
    open_or_die("libm.so.6", RTLD_NOW);
    start_a_thread();
    mark("child");
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

/* A signal handler runs while the loader works and while the plugin starts. */
static volatile sig_atomic_t ticks;
static void tick(int signal_number) {
  (void)signal_number;
  ++ticks;
}

static int signals(char** library) {
  signal(SIGALRM, tick);
  const struct itimerval every = {{0, 100}, {0, 100}};
  setitimer(ITIMER_REAL, &every, NULL);
  for (int i = 0; i < 300; ++i) dlclose(open_or_die(library[1], RTLD_NOW));
  once(library);
  for (int i = 0; i < 300; ++i) dlclose(open_or_die(library[1], RTLD_NOW));
  while (ticks == 0) usleep(100);
  return 0;
}

/* Two different files of the same name. */
static int two(char** library) {
  open_or_die(library[0], RTLD_NOW);
  open_or_die(library[1], RTLD_NOW);
  open_or_die("libm.so.6", RTLD_NOW);
  return 0;
}

static int print_preload(char** unused) {
  (void)unused;
  const char* preload = getenv("LD_PRELOAD");
  printf("%s\n", preload == NULL ? "(unset)" : preload);
  return 0;
}

static int many_looks(char** library) {
  once(library);
  for (int i = 0; i < 20000; ++i) dlsym(RTLD_DEFAULT, "malloc");
  return 0;
}

/* Starts argv[0] by every way that a program can, with PATH lookup where there is one. */
static int run_by(char** command) {
  const char* how = command[0];
  char** argv = command + 1;
  extern char** environ;
  extern int posix_spawn(pid_t*, const char*, const void*, const void*, char* const[], char* const[]);
  extern int posix_spawnp(pid_t*, const char*, const void*, const void*, char* const[], char* const[]);
  pid_t child = 0;
  if (strcmp(how, "posix_spawn") == 0 || strcmp(how, "posix_spawnp") == 0) {
    if ((how[11] == 'p' ? posix_spawnp : posix_spawn)(&child, argv[0], NULL, NULL, argv, environ) != 0) return 7;
  } else if ((child = vfork()) == 0) {
    if (strcmp(how, "execv") == 0) execv(argv[0], argv);
    if (strcmp(how, "execve") == 0) execve(argv[0], argv, environ);
    if (strcmp(how, "execvp") == 0) execvp(argv[0], argv);
    if (strcmp(how, "execvpe") == 0) execvpe(argv[0], argv, environ);
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

static const struct {
  const char* name;
  int (*run)(char** arguments);
} kScenarios[] = {{"once", once},
                  {"once_then_thread", once_then_thread},
                  {"many_loaders", many_loaders},
                  {"race", race},
                  {"callback", callback},
                  {"answers", answers},
                  {"deepbind", deepbind},
                  {"fork_before", fork_before},
                  {"fork_after", fork_after},
                  {"signals", signals},
                  {"two", two},
                  {"many_looks", many_looks},
                  {"print_preload", print_preload},
                  {"run_by", run_by}};

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "print_preload";
  for (size_t i = 0; i < sizeof kScenarios / sizeof *kScenarios; ++i) {
    if (strcmp(kScenarios[i].name, name) == 0) return kScenarios[i].run(argv + 2);
  }
  fprintf(stderr, "host: no scenario %s\n", name);
  return 2;
}
