/* A library that links torch, as a C++ program's model library does; its constructor runs after torch's. */
#include <unistd.h>

extern int fake_torch_state(void);

__attribute__((visibility("default"))) int model_run(void) { return fake_torch_state(); }
