// The smallest ELF files that have the facts a test needs.
#pragma once

#include <elf.h>

#include <cstring>
#include <string>
#include <vector>

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

/// A library that wants others: one segment that holds the whole file at address 0, and a dynamic section.
struct LinkedImage {
  std::vector<std::string> needed;
  std::string runpath;
  std::string rpath;

  [[nodiscard]] std::string bytes() const {
    std::string names(1, '\0');
    const auto name = [&names](const std::string& text) {
      const std::size_t at = names.size();
      names += text + '\0';
      return at;
    };
    std::vector<Elf64_Dyn> entries;
    const auto entry = [&entries](Elf64_Sxword tag, Elf64_Xword value) {
      Elf64_Dyn one{};
      one.d_tag = tag;
      one.d_un.d_val = value;
      entries.push_back(one);
    };
    for (const std::string& text : needed) entry(DT_NEEDED, name(text));
    if (!runpath.empty()) entry(DT_RUNPATH, name(runpath));
    if (!rpath.empty()) entry(DT_RPATH, name(rpath));
    const std::size_t dynamic_at = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr);
    const std::size_t names_at = dynamic_at + (entries.size() + 2) * sizeof(Elf64_Dyn);
    entry(DT_STRTAB, names_at);
    entry(DT_NULL, 0);

    std::string out = ElfImage{}.bytes().substr(0, sizeof(Elf64_Ehdr));
    reinterpret_cast<Elf64_Ehdr*>(out.data())->e_phnum = 2;
    Elf64_Phdr segments[2] = {};
    segments[0].p_type = PT_LOAD;
    segments[0].p_filesz = names_at + names.size();
    segments[1].p_type = PT_DYNAMIC;
    segments[1].p_offset = dynamic_at;
    segments[1].p_filesz = entries.size() * sizeof(Elf64_Dyn);
    out.append(reinterpret_cast<const char*>(segments), sizeof segments);
    out.append(reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(Elf64_Dyn));
    return out + names;
  }
};

inline std::string library_image() { return ElfImage{}.bytes(); }

}  // namespace ipexrun::launcher
