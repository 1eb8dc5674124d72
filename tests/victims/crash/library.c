/* A library with a crash in it; built under two names, one of which is a name of ipexrun's. */
__attribute__((noinline, visibility("hidden"))) void library_write(int* where) { *(volatile int*)where = 1; }

__attribute__((visibility("default"))) void WORK(int* where);
void WORK(int* where) {
  library_write(where);
  __asm__ volatile("");
}
