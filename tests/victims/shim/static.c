/* A static program: no loader, so no shim; it runs as it always did. */
#include <stdio.h>

int main(void) {
  puts("static");
  return 6;
}
