/* How much of its stack the calling thread has left. A trace of TorchDynamo's takes 100 to 200 KiB of it more than the calls that it
 * traces, and 5 more for each module that lies inside of another: threads that programs start with small stacks (threading.stack_size(), a
 * host in another language) would end the process there. */
#ifndef IPEXRUN_PYTHON_HOOK_STACKS_H_
#define IPEXRUN_PYTHON_HOOK_STACKS_H_

/* Whether it is enough for work of ours in Python. Not on a stack that is none of the thread's own. */
int ipexrun_has_stack(void);

#endif
