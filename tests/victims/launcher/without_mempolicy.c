/* Runs a program under a seccomp filter for the calls of memory policy, as container runtimes have them by default:
 *
 *   without_mempolicy eperm|enosys|kill PROGRAM args
 *
 * The calls fail with that error, or end the process by SIGSYS. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const unsigned answer = strcmp(argv[1], "eperm") == 0    ? SECCOMP_RET_ERRNO | EPERM
                          : strcmp(argv[1], "enosys") == 0 ? SECCOMP_RET_ERRNO | ENOSYS
                                                           : SECCOMP_RET_KILL_PROCESS;
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_set_mempolicy, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, answer),
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("without_mempolicy");
    return 3; /* not permitted here */
  }
  execv(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
