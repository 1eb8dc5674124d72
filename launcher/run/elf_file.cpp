#include "launcher/run/elf_file.h"

#include <elf.h>
#include <fcntl.h>

#include <algorithm>
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

/// A damaged file must not make us read gigabytes.
constexpr Elf64_Xword kMostDynamicBytes = 1u << 20;
constexpr Elf64_Xword kMostStringBytes = 256u << 20;  // libtorch_cpu.so has 60 MiB of names

/// The file offset of what is loaded at `address`; nullopt when no segment holds it.
std::optional<off_t> offset_of(const std::vector<Elf64_Phdr>& segments, Elf64_Addr address) {
  for (const Elf64_Phdr& one : segments) {
    if (one.p_type == PT_LOAD && address >= one.p_vaddr && address - one.p_vaddr < one.p_filesz)
      return static_cast<off_t>(one.p_offset + (address - one.p_vaddr));
  }
  return std::nullopt;
}

/// The NUL terminated text at `at`, at most 4 KiB; "" when it cannot be read.
std::string text_at(int fd, off_t at) {
  char buffer[4096];
  const ssize_t n = ::pread(fd, buffer, sizeof buffer, at);
  const void* end = n > 0 ? std::memchr(buffer, '\0', static_cast<std::size_t>(n)) : nullptr;
  return end == nullptr ? "" : std::string(buffer);
}

std::vector<std::string> folders_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(':', at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

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

std::optional<ElfLinks> read_elf_links(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  Elf64_Ehdr header;
  if (!file.open() || !read_at(file.get(), &header, sizeof header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != kOwnData || header.e_machine != kOwnMachine ||
      header.e_phentsize != sizeof(Elf64_Phdr))
    return std::nullopt;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!read_at(file.get(), segments.data(), segments.size() * sizeof(Elf64_Phdr), static_cast<off_t>(header.e_phoff))) return std::nullopt;
  const auto dynamic = std::find_if(segments.begin(), segments.end(), [](const Elf64_Phdr& one) { return one.p_type == PT_DYNAMIC; });
  if (dynamic == segments.end() || dynamic->p_filesz > kMostDynamicBytes) return std::nullopt;
  std::vector<Elf64_Dyn> entries(dynamic->p_filesz / sizeof(Elf64_Dyn));
  if (!read_at(file.get(), entries.data(), entries.size() * sizeof(Elf64_Dyn), static_cast<off_t>(dynamic->p_offset))) return std::nullopt;
  entries.erase(std::find_if(entries.begin(), entries.end(), [](const Elf64_Dyn& one) { return one.d_tag == DT_NULL; }), entries.end());

  const auto value_of = [&entries](Elf64_Sxword tag) -> std::optional<Elf64_Xword> {
    const auto found = std::find_if(entries.begin(), entries.end(), [tag](const Elf64_Dyn& one) { return one.d_tag == tag; });
    return found == entries.end() ? std::nullopt : std::optional(found->d_un.d_val);
  };
  const auto table = value_of(DT_STRTAB);
  const auto names = table ? offset_of(segments, *table) : std::nullopt;
  if (!names) return std::nullopt;
  const auto name_at = [&](Elf64_Xword offset) {
    return offset < kMostStringBytes ? text_at(file.get(), *names + static_cast<off_t>(offset)) : std::string();
  };
  ElfLinks links;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_NEEDED) links.needed.push_back(name_at(entry.d_un.d_val));
  }
  const auto runpath = value_of(DT_RUNPATH);
  const auto search = runpath ? runpath : value_of(DT_RPATH);
  if (search) links.search = folders_of(name_at(*search));
  links.search_first = !runpath;
  return links;
}

}  // namespace ipexrun::launcher
