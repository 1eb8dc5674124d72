#include "launcher/run/elf_file.h"

#include <elf.h>
#include <fcntl.h>

#include <bit>
#include <cstring>

#include "launcher/run/posix.h"

namespace ipexrun::launcher {
namespace {

#if defined(__x86_64__)
constexpr int kOwnMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kOwnMachine = EM_AARCH64;
#else
constexpr int kOwnMachine = EM_NONE;
#endif
constexpr int kOwnClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
constexpr int kOwnData = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;

std::string machine_name(int elf_class, int machine) {
  switch (machine) {
    case EM_X86_64:
      return elf_class == ELFCLASS32 ? "x32" : "x86-64";
    case EM_386:
      return "32-bit x86";
    case EM_AARCH64:
      return "AArch64";
    case EM_ARM:
      return "32-bit Arm";
    default:
      return "machine " + std::to_string(machine);
  }
}

bool read_at(int fd, void* to, std::size_t bytes, off_t at) { return ::pread(fd, to, bytes, at) == static_cast<ssize_t>(bytes); }

}  // namespace

std::optional<ElfFacts> read_elf(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO of that name must not hang us
  unsigned char ident[EI_NIDENT];
  if (!file.open() || !read_at(file.get(), ident, sizeof ident, 0) || std::memcmp(ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  // e_type and e_machine follow e_ident in both classes.
  Elf64_Half words[2];
  if (!read_at(file.get(), words, sizeof words, EI_NIDENT)) return std::nullopt;
  ElfFacts facts;
  facts.shared_object = words[0] == ET_DYN;
  facts.native = ident[EI_CLASS] == kOwnClass && ident[EI_DATA] == kOwnData && words[1] == kOwnMachine;
  facts.machine = machine_name(ident[EI_CLASS], words[1]);
  if (!facts.native) return facts;

  Elf64_Ehdr header;
  if (!read_at(file.get(), &header, sizeof header, 0) || header.e_phentsize != sizeof(Elf64_Phdr)) return std::nullopt;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(file.get(), &segment, sizeof segment, static_cast<off_t>(header.e_phoff + static_cast<Elf64_Off>(i) * sizeof segment))) {
      return std::nullopt;
    }
    facts.interpreted = facts.interpreted || segment.p_type == PT_INTERP;
  }
  return facts;
}

}  // namespace ipexrun::launcher
