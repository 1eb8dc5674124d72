/* What a program sees of an exception that came through Python of ours. */
#ifndef IPEXRUN_PYTHON_HOOK_TRACEBACKS_H_
#define IPEXRUN_PYTHON_HOOK_TRACEBACKS_H_

/* The exception on its way loses the outermost lines of its traceback that are ours or TorchDynamo's: between the program's call and the
 * module's own code stock has none. One that has no other lines keeps them. The outermost line must be one of ours, which says where our
 * files lie. Never raises. */
void ipexrun_leave_out_own_lines(void);

#endif
