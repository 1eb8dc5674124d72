// The smallest ELF files that have the facts a test needs.
#pragma once

#include <elf.h>

#include <cstring>
#include <string>

namespace ipexrun::launcher {

struct ElfImage {
  int type = ET_DYN;
  int machine =
#if defined(__aarch64__)
      EM_AARCH64;
#else
      EM_X86_64;
#endif
  int elf_class = ELFCLASS64;
  bool interpreter = false;

  [[nodiscard]] std::string bytes() const {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = static_cast<unsigned char>(elf_class);
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = static_cast<Elf64_Half>(type);
    header.e_machine = static_cast<Elf64_Half>(machine);
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    Elf64_Phdr segment{};
    segment.p_type = interpreter ? PT_INTERP : PT_LOAD;
    std::string out(reinterpret_cast<const char*>(&header), sizeof header);
    return out.append(reinterpret_cast<const char*>(&segment), sizeof segment);
  }
};

inline std::string library_image() { return ElfImage{}.bytes(); }

}  // namespace ipexrun::launcher
