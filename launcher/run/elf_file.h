// The few facts of an ELF file that decide whether something can be preloaded into it, or it into something.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ipexrun::launcher {

struct ElfFacts {
  bool native = false;         ///< class, byte order and machine are those of this launcher
  bool shared_object = false;  ///< ET_DYN: a library, or a position independent program
  bool interpreted = false;    ///< has PT_INTERP, that is: a program that the dynamic loader starts
  std::string machine;         ///< "x86-64", "AArch64", "32-bit x86", or "machine 243" for one without a name here
};

/// nullopt when the file cannot be read or is no ELF file (a script, a linker script, an archive).
std::optional<ElfFacts> read_elf(const std::string& path);

/// What a native library or program says about the libraries that it wants.
struct ElfLinks {
  std::vector<std::string> needed;  ///< names, in the order of the file
  std::vector<std::string> search;  ///< RUNPATH, else RPATH, one folder each; $ORIGIN is not replaced
  bool search_first = false;        ///< RPATH: looked at before LD_LIBRARY_PATH
};

/// nullopt when the file is no native ELF file with a readable dynamic section.
std::optional<ElfLinks> read_elf_links(const std::string& path);

}  // namespace ipexrun::launcher
