/* A program as linkers made them before glibc 2.34: it hands its own init and fini to __libc_start_main@GLIBC_2.2.5. */
#include <stdio.h>
#include <stdlib.h>

extern int fake_torch_state(void);

__asm__(".symver old_libc_start_main, __libc_start_main@GLIBC_2.2.5");
extern int old_libc_start_main(int (*)(int, char**, char**), int, char**, void (*)(int, char**, char**), void (*)(void), void (*)(void),
                               void*);

static int initialised;
static void program_init(int argc, char** argv, char** envp) { initialised = argc == 1 && argv[0] != NULL && envp != NULL; }
static void program_fini(void) {}

static int program_main(int argc, char** argv, char** envp) {
  (void)envp;
  printf("%d %s init %d torch %d\n", argc, argv[0] != NULL ? "named" : "", initialised, fake_torch_state());
  return 5;
}

__attribute__((used)) static void begin(long* stack, void (*rtld_fini)(void)) {
  old_libc_start_main(program_main, (int)stack[0], (char**)(stack + 1), program_init, program_fini, rtld_fini, stack);
  abort();
}

__asm__(
    ".globl _start\n"
    ".type _start, @function\n"
    "_start:\n"
    ".cfi_startproc\n"
    ".cfi_undefined rip\n"
    "  xorl %ebp, %ebp\n"
    "  movq %rsp, %rdi\n"
    "  movq %rdx, %rsi\n"
    "  andq $-16, %rsp\n"
    "  call begin\n"
    ".cfi_endproc\n");
