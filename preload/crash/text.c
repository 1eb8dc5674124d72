/* Lines for stderr, put together by hand and written with one write(2): they must not mix with those of other processes. */
#include <string.h>
#include <unistd.h>

#include "preload/crash/crash.h"

void line_start(CrashLine* line) {
  line->length = 0;
  line_add(line, "ipexrun: ");
}

void line_add(CrashLine* line, const char* text) {
  const size_t room = sizeof line->text - 1 - line->length; /* one is for the newline */
  size_t length = strlen(text);
  if (length > room) length = room;
  memcpy(line->text + line->length, text, length);
  line->length += length;
}

static void add_digits(CrashLine* line, uint64_t value, unsigned base) {
  char digits[24];
  size_t at = sizeof digits;
  digits[--at] = '\0';
  do {
    digits[--at] = "0123456789abcdef"[value % base];
    value /= base;
  } while (value != 0);
  line_add(line, digits + at);
}

void line_number(CrashLine* line, int64_t value) {
  if (value < 0) line_add(line, "-");
  add_digits(line, value < 0 ? -(uint64_t)value : (uint64_t)value, 10);
}

void line_hex(CrashLine* line, uint64_t value) {
  line_add(line, "0x");
  add_digits(line, value, 16);
}

void line_write(CrashLine* line) {
  line->text[line->length++] = '\n';
  for (size_t done = 0; done < line->length;) {
    const ssize_t n = write(STDERR_FILENO, line->text + done, line->length - done);
    if (n <= 0) return; /* a closed or full stderr is the program's choice */
    done += (size_t)n;
  }
}
