/* What lies at an address: the module from /proc/self/maps, the function from the module's symbol table. dladdr and dl_iterate_phdr would
 * take the loader's lock, which the crashed program may hold. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/crash/crash.h"

typedef struct Mapping {
  uintptr_t start, end;
  uint64_t offset; /* in the file */
  bool code;
  const char* path; /* within the line, "" = none */
} Mapping;

/* A line at a time, from a buffer of ours. */
typedef struct Maps {
  int fd;
  size_t begin, end;
  char text[8192]; /* longer than any line: a path has at most 4096 bytes */
} Maps;

static uint64_t hex_at(const char** at) {
  uint64_t value = 0;
  for (;; ++*at) {
    const char c = **at;
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return value;
    value = 16 * value + (uint64_t)digit;
  }
}

/* "7f00-7f10 r-xp 00001000 08:01 123  /lib/x.so" */
static void parse(const char* line, Mapping* out) {
  const char* at = line;
  out->start = (uintptr_t)hex_at(&at);
  if (*at == '-') ++at;
  out->end = (uintptr_t)hex_at(&at);
  out->code = strlen(at) > 3 && at[3] == 'x';
  if (strlen(at) > 6) at += 6;
  out->offset = hex_at(&at);
  for (int field = 0; field < 3; ++field) { /* the offset's end, the device, the inode */
    at += strcspn(at, " ");
    at += strspn(at, " ");
  }
  out->path = *at == '/' ? at : "";
}

static bool next(Maps* maps, Mapping* out) {
  for (;;) {
    char* newline = memchr(maps->text + maps->begin, '\n', maps->end - maps->begin);
    if (newline != NULL) {
      *newline = '\0';
      parse(maps->text + maps->begin, out);
      maps->begin = (size_t)(newline + 1 - maps->text);
      return true;
    }
    memmove(maps->text, maps->text + maps->begin, maps->end - maps->begin);
    maps->end -= maps->begin;
    maps->begin = 0;
    const ssize_t n = maps->end < sizeof maps->text ? read(maps->fd, maps->text + maps->end, sizeof maps->text - maps->end) : 0;
    if (n <= 0) return false;
    maps->end += (size_t)n;
  }
}

static Maps maps; /* one report at a time */

static bool open_maps(void) {
  maps.begin = maps.end = 0;
  maps.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  return maps.fd >= 0;
}

/* ---- whose code ---- */

enum { kMostOurs = 32 };

static struct { uintptr_t start, end; } ours[kMostOurs];
static int ours_count;
static bool ip_is_code;

static bool is_our_path(const char* path) {
  const char* slash = strrchr(path, '/');
  const char* name = slash == NULL ? path : slash + 1;
  if (strncmp(name, "libipexrun_crash.so", 19) == 0) return false; /* it stands below every thread, and here */
  if (strncmp(name, "libipexrun_", 11) == 0) return true;
  const size_t length = strlen(crash_settings.lib_dir);
  return length > 1 && strncmp(path, crash_settings.lib_dir, length) == 0 && path[length] == '/';
}

void crash_scan_modules(uintptr_t ip) {
  ours_count = 0;
  ip_is_code = true; /* until the map says otherwise */
  if (!open_maps()) return;
  ip_is_code = false;
  for (Mapping one; next(&maps, &one);) {
    if (!one.code) continue;
    if (one.start <= ip && ip < one.end) ip_is_code = true;
    if (ours_count == kMostOurs || !is_our_path(one.path)) continue;
    ours[ours_count].start = one.start;
    ours[ours_count++].end = one.end;
  }
  close(maps.fd);
}

bool crash_is_code(void) { return ip_is_code; }

bool crash_is_ours(uintptr_t address) {
  for (int i = 0; i < ours_count; ++i)
    if (ours[i].start <= address && address < ours[i].end) return true;
  return false;
}

/* ---- which function ---- */

/* A file of the module's, mapped; everything in it is checked against its size. */
typedef struct Image {
  const unsigned char* data;
  size_t size;
} Image;

static const void* part(const Image* image, uint64_t offset, uint64_t size) {
  return offset <= image->size && size <= image->size - offset ? image->data + offset : NULL;
}

/* The address that the linker gave to what lies at `offset` in the file. */
static bool linked_address(const Image* image, const Elf64_Ehdr* header, uint64_t offset, uint64_t* address) {
  const Elf64_Phdr* segments = part(image, header->e_phoff, (uint64_t)header->e_phnum * sizeof(Elf64_Phdr));
  if (segments == NULL || header->e_phentsize != sizeof(Elf64_Phdr)) return false;
  for (int i = 0; i < header->e_phnum; ++i) {
    const Elf64_Phdr* one = &segments[i];
    if (one->p_type != PT_LOAD || offset < one->p_offset || offset - one->p_offset >= one->p_filesz) continue;
    *address = one->p_vaddr + (offset - one->p_offset);
    return true;
  }
  return false;
}

static bool find_in_table(const Image* image, const Elf64_Shdr* sections, int count, const Elf64_Shdr* table, uint64_t address,
                          CrashPlace* place) {
  if (table->sh_link >= (unsigned)count || table->sh_entsize != sizeof(Elf64_Sym)) return false;
  const Elf64_Shdr* strings = &sections[table->sh_link];
  const char* names = part(image, strings->sh_offset, strings->sh_size);
  const Elf64_Sym* symbols = part(image, table->sh_offset, table->sh_size);
  if (names == NULL || symbols == NULL) return false;
  for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); ++i) {
    const Elf64_Sym* one = &symbols[i];
    const unsigned type = ELF64_ST_TYPE(one->st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || one->st_shndx == SHN_UNDEF) continue;
    if (address < one->st_value || address - one->st_value >= one->st_size || one->st_name >= strings->sh_size) continue;
    const size_t room = strings->sh_size - one->st_name;
    const size_t length = strnlen(names + one->st_name, room < sizeof place->symbol ? room : sizeof place->symbol - 1);
    memcpy(place->symbol, names + one->st_name, length);
    place->symbol[length] = '\0';
    place->offset = address - one->st_value;
    return length > 0;
  }
  return false;
}

static void find_symbol(uint64_t file_offset, CrashPlace* place) {
  const int fd = open(place->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return; /* deleted, or in another root */
  struct stat file;
  Image image = {MAP_FAILED, 0};
  if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_size > (off_t)sizeof(Elf64_Ehdr)) {
    image.size = (size_t)file.st_size;
    image.data = mmap(NULL, image.size, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  close(fd);
  if (image.data == MAP_FAILED) return;
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)image.data;
  uint64_t address = 0;
  if (memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64 &&
      linked_address(&image, header, file_offset, &address)) {
    const uint64_t back = file_offset - place->address; /* 1 where the address is a return address */
    place->address = address - back;
    const Elf64_Shdr* sections = part(&image, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr));
    bool found = false;
    for (int kind = 0; kind < 2 && sections != NULL && !found; ++kind)
      for (int i = 0; i < header->e_shnum && !found; ++i)
        if (sections[i].sh_type == (kind == 0 ? SHT_SYMTAB : SHT_DYNSYM))
          found = find_in_table(&image, sections, header->e_shnum, &sections[i], address, place);
  }
  munmap((void*)image.data, image.size);
}

void crash_find_place(const CrashFrame* frame, CrashPlace* place) {
  memset(place, 0, sizeof *place);
  /* A call may be the last instruction of its function: the return address then belongs to the next one. */
  const uintptr_t look = frame->ip - (frame->after_call ? 1 : 0);
  if (!open_maps()) return;
  uint64_t file_offset = 0;
  for (Mapping one; next(&maps, &one);) {
    if (look < one.start || look >= one.end) continue;
    const size_t length = strlen(one.path);
    if (length > 0 && length < sizeof place->path) memcpy(place->path, one.path, length + 1);
    file_offset = look - one.start + one.offset;
    break;
  }
  close(maps.fd);
  if (place->path[0] == '\0') return;
  place->address = file_offset;
  find_symbol(file_offset, place);
}
