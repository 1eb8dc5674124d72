// Every device that Python writes as text, torch.device("cuda") and device="cuda" alike, is made by one constructor of libc10, which
// libtorch_python calls through its table of imported functions. That one entry is exchanged: no wrapper of a Python function could reach
// the argument parsers, and none would be faster.
#include "preload/xpu/redirect.h"

#include <c10/core/Device.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace ipexrun::preload::xpu {
namespace {

constexpr std::string_view kLibrary = "libtorch_python.so";
constexpr std::string_view kConstructor = "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

/// In the place of c10::Device::Device(const std::string&): same arguments, same exceptions.
void read_device(c10::Device* self, const std::string& text) {
  c10::Device read(text);
  *self = read.is_cuda() ? c10::Device(c10::kXPU, read.index()) : read;
}

struct Tables {
  ElfW(Addr) base = 0;
  const ElfW(Rela) * calls = nullptr;
  std::size_t call_bytes = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  ElfW(Addr) read_only_from = 0, read_only_to = 0;  ///< PT_GNU_RELRO
};

/// glibc has made addresses of these; other loaders leave offsets.
ElfW(Addr) address(ElfW(Addr) base, ElfW(Addr) value) { return value < base ? base + value : value; }

int find_tables(dl_phdr_info* object, std::size_t, void* out) {
  const std::string_view path = object->dlpi_name;
  if (path.substr(path.rfind('/') + 1) != kLibrary) return 0;
  Tables& tables = *static_cast<Tables*>(out);
  tables.base = object->dlpi_addr;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object->dlpi_phdr[i];
    if (header.p_type == PT_GNU_RELRO) {
      tables.read_only_from = tables.base + header.p_vaddr;
      tables.read_only_to = tables.read_only_from + header.p_memsz;
    }
    if (header.p_type != PT_DYNAMIC) continue;
    for (auto* entry = reinterpret_cast<const ElfW(Dyn)*>(tables.base + header.p_vaddr); entry->d_tag != DT_NULL; ++entry) {
      const ElfW(Addr) at = address(tables.base, entry->d_un.d_ptr);
      if (entry->d_tag == DT_JMPREL) tables.calls = reinterpret_cast<const ElfW(Rela)*>(at);
      if (entry->d_tag == DT_PLTRELSZ) tables.call_bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_SYMTAB) tables.symbols = reinterpret_cast<const ElfW(Sym)*>(at);
      if (entry->d_tag == DT_STRTAB) tables.names = reinterpret_cast<const char*>(at);
    }
  }
  return 1;
}

}  // namespace

std::string redirect_cuda() {
  static bool done = false;
  if (done) return "";
  Tables tables;
  ::dl_iterate_phdr(&find_tables, &tables);
  if (tables.calls == nullptr || tables.symbols == nullptr || tables.names == nullptr)
    return std::string(kLibrary) + " is not there, or is linked in another way";
  for (std::size_t i = 0; i < tables.call_bytes / sizeof(ElfW(Rela)); ++i) {
    const ElfW(Rela)& call = tables.calls[i];
    if (tables.names + tables.symbols[ELF64_R_SYM(call.r_info)].st_name != kConstructor) continue;
    const ElfW(Addr) slot = tables.base + call.r_offset;
    const auto page_bytes = static_cast<ElfW(Addr)>(::sysconf(_SC_PAGESIZE));
    auto* page = reinterpret_cast<void*>(slot / page_bytes * page_bytes);  // a slot is aligned and lies in one page
    if (::mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return std::string("mprotect: ") + std::strerror(errno);
    __atomic_store_n(reinterpret_cast<ElfW(Addr)*>(slot), reinterpret_cast<ElfW(Addr)>(&read_device), __ATOMIC_RELEASE);
    if (slot >= tables.read_only_from && slot < tables.read_only_to) ::mprotect(page, page_bytes, PROT_READ);
    done = true;
    return "";
  }
  return "this torch reads devices in another way";
}

}  // namespace ipexrun::preload::xpu
