/* dlopen, dlsym and pthread_create of the program: look, then TAIL-JUMP to the real function. The jump leaves the caller's return
 * address on the stack: the loader takes the caller from it (RUNPATH and $ORIGIN for dlopen, RTLD_NEXT for dlsym), so a call from a
 * wrapper would change what is found. None of the three has vector arguments, so only the integer argument registers are saved.
 *
 * shim_settled is non-zero once there is nothing left to do in this process: then a stub is a load, a branch and a jump. */

  .text
  .hidden shim_settled

  .macro STUB name, look, real
  .hidden \look
  .hidden \real
  .globl \name
  .type \name, @function
  .p2align 4
\name:
  .cfi_startproc
  endbr64
  cmpl $0, shim_settled(%rip)
  jne 1f
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  pushq %rdx
  .cfi_adjust_cfa_offset 8
  pushq %rcx
  .cfi_adjust_cfa_offset 8
  pushq %r8
  .cfi_adjust_cfa_offset 8
  pushq %r9
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp /* a call needs rsp at a multiple of 16: return address + 6 registers + these 8 */
  .cfi_adjust_cfa_offset 8
  movq 56(%rsp), %rdi /* the return address */
  call \look
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %r9
  .cfi_adjust_cfa_offset -8
  popq %r8
  .cfi_adjust_cfa_offset -8
  popq %rcx
  .cfi_adjust_cfa_offset -8
  popq %rdx
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
1:
  movq \real(%rip), %r11
  jmp *%r11
  .cfi_endproc
  .size \name, .-\name
  .endm

  STUB dlopen, shim_at_dlopen, shim_real_dlopen
  STUB dlsym, shim_at_dlsym, shim_real_dlsym
  STUB pthread_create, shim_at_pthread_create, shim_real_pthread_create

  .section .note.GNU-stack, "", @progbits
/* Says that every indirect jump target here starts with endbr64 (IBT) and that the shadow stack stays in step (SHSTK). */
  .section .note.gnu.property, "a"
  .p2align 3
  .long 4, 16, 5
  .asciz "GNU"
  .long 0xc0000002, 4, 3, 0
