// tar (POSIX.1-1988 "ustar") through zlib. libarchive would bring a dozen libraries into a launcher that must start in slim
// containers; the format is one block of 512 bytes before each file (docs/decisions/0007-machine.md).
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "launcher/machine/tree.h"

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kMostBytes = 256u << 20;  // unpacked; a machine of 2048 CPUs has some 20 MiB

struct Header {
  std::array<char, 100> name;
  std::array<char, 8> mode;
  std::array<char, 8> uid;
  std::array<char, 8> gid;
  std::array<char, 12> size;
  std::array<char, 12> mtime;
  std::array<char, 8> checksum;
  char type;
  std::array<char, 100> link;
  std::array<char, 8> magic;  // "ustar", '\0', "00"
  std::array<char, 32> user;
  std::array<char, 32> group;
  std::array<char, 8> major;
  std::array<char, 8> minor;
  std::array<char, 155> prefix;
  std::array<char, 12> unused;
};
static_assert(sizeof(Header) == kBlock);

struct GzCloser {
  void operator()(gzFile_s* file) const { gzclose(file); }
};
using Gz = std::unique_ptr<gzFile_s, GzCloser>;

template <std::size_t N>
void put_text(std::array<char, N>& field, const std::string& text) {
  std::copy_n(text.data(), std::min(N, text.size()), field.data());
}

template <std::size_t N>
void put_octal(std::array<char, N>& field, std::uint64_t value) {
  for (std::size_t i = N - 1; i-- > 0; value /= 8) field[i] = static_cast<char>('0' + value % 8);
  field[N - 1] = '\0';
}

template <std::size_t N>
std::string text_of(const std::array<char, N>& field) {
  return {field.data(), ::strnlen(field.data(), N)};
}

template <std::size_t N>
std::optional<std::uint64_t> octal_of(const std::array<char, N>& field) {
  std::uint64_t value = 0;
  for (const char c : field) {
    if (c == '\0' || c == ' ') break;
    if (c < '0' || c > '7') return std::nullopt;
    value = value * 8 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

unsigned checksum_of(Header header) {
  header.checksum.fill(' ');
  std::array<unsigned char, kBlock> bytes{};
  std::memcpy(bytes.data(), &header, kBlock);
  unsigned sum = 0;
  for (const unsigned char byte : bytes) sum += byte;
  return sum;
}

/// Names of more than 100 bytes are cut at a '/' into prefix and name. False when that cannot be.
bool put_name(Header& header, const std::string& path) {
  if (path.size() <= header.name.size()) {
    put_text(header.name, path);
    return true;
  }
  const std::size_t cut = path.find('/', path.size() - header.name.size() - 1);
  if (cut == std::string::npos || cut > header.prefix.size()) return false;
  put_text(header.prefix, path.substr(0, cut));
  put_text(header.name, path.substr(cut + 1));
  return true;
}

std::optional<Header> header_for(const std::string& path, const TreeEntry& entry) {
  Header header{};
  const bool folder = entry.kind == TreeEntry::Kind::kFolder;
  const bool link = entry.kind == TreeEntry::Kind::kLink;
  if (!put_name(header, folder ? path + "/" : path) || (link && entry.content.size() > header.link.size())) return std::nullopt;
  put_octal(header.mode, folder ? 0755 : 0644);
  put_octal(header.uid, 0);  // whoever gathered it stays out of it, and so does the time
  put_octal(header.gid, 0);
  put_octal(header.size, folder || link ? 0 : entry.content.size());
  put_octal(header.mtime, 0);
  header.type = folder ? '5' : link ? '2' : '0';
  if (link) put_text(header.link, entry.content);
  put_text(header.magic, std::string("ustar\00000", 8));
  put_octal(header.checksum, checksum_of(header));
  return header;
}

bool put(gzFile_s* out, const void* data, std::size_t size) {
  return size == 0 || gzwrite(out, data, static_cast<unsigned>(size)) == static_cast<int>(size);
}

Error cannot_write(const std::string& file, int code) {
  return Error{kExitFailure, "cannot write '" + file + "': " + std::strerror(code),
               code == EEXIST ? "name another file, or remove it first" : "name another file: ipexrun gather FILE.tar.gz"};
}

Error no_archive(const std::string& file, const std::string& why) {
  return Error{kExitUsage, "--sysroot '" + file + "' is not an archive of ipexrun gather: " + why,
               "give the folder of a machine, or FILE.tar.gz of ipexrun gather"};
}

/// "a//b" is {"a", "", "b"}.
std::vector<std::string> components(const std::string& path) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    out.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

/// Nothing of an archive may land outside of the folder that it is unpacked into, and each place has one spelling: what stands below a
/// link is found by comparing names (sysroot.cpp).
bool safe_path(const std::string& path) {
  const std::vector<std::string> names = components(path);
  return std::none_of(names.begin(), names.end(), [](const std::string& name) { return name.empty() || name == "." || name == ".."; });
}

/// The same for the target of a link that stands at `path`. A name in it may be a link itself, and ".." after that goes up from wherever
/// it leads to: ".." may only come first, where the folders are known to be none.
bool safe_link(const std::string& path, const std::string& target) {
  if (target.empty() || target[0] == '/') return false;
  auto up_left = static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
  bool named = false;
  for (const std::string& name : components(target)) {
    if (name.empty() || name == ".") continue;
    if (name != "..") {
      named = true;
    } else if (named || up_left-- == 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

Status write_archive(const Tree& tree, const std::string& top, const std::string& file) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return cannot_write(file, errno);
  Gz out(gzdopen(fd, "wb6"));
  if (!out) {
    ::close(fd);
    return cannot_write(file, ENOMEM);
  }
  static constexpr std::array<char, 2 * kBlock> zeros{};
  bool fine = true;
  errno = 0;
  for (const auto& [path, entry] : tree) {
    const std::optional<Header> header = header_for(top + "/" + path, entry);
    if (!header) continue;  // longer than the format can name
    fine = fine && put(out.get(), &*header, kBlock);
    if (entry.kind != TreeEntry::Kind::kFile) continue;
    fine = fine && put(out.get(), entry.content.data(), entry.content.size()) &&
           put(out.get(), zeros.data(), (kBlock - entry.content.size() % kBlock) % kBlock);
  }
  fine = fine && put(out.get(), zeros.data(), zeros.size());
  fine = gzclose(out.release()) == Z_OK && fine;
  if (fine) return ok_status();
  const int code = errno != 0 ? errno : EIO;
  ::unlink(file.c_str());
  return cannot_write(file, code);
}

Result<Tree> read_archive(const std::string& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Error{kExitUsage, "cannot read --sysroot '" + file + "': " + std::strerror(errno), ""};
  const Gz in(gzdopen(fd, "rb"));
  if (!in) {
    ::close(fd);
    return no_archive(file, "out of memory");
  }
  Tree out;
  std::size_t total = 0;
  for (;;) {
    Header header{};
    const int got = gzread(in.get(), &header, kBlock);
    if (got != static_cast<int>(kBlock)) return no_archive(file, "it ends too early");
    if (header.name[0] == '\0') break;
    if (octal_of(header.checksum) != checksum_of(header)) return no_archive(file, "it is no tar archive");
    const std::string prefix = text_of(header.prefix);
    std::string path = (prefix.empty() ? "" : prefix + "/") + text_of(header.name);
    while (path.starts_with("./")) path.erase(0, 2);
    while (path.ends_with('/')) path.pop_back();
    const std::optional<std::uint64_t> size = octal_of(header.size);
    if (!size || (total += *size + kBlock) > kMostBytes) return no_archive(file, "it is too large");
    TreeEntry entry;
    entry.kind = header.type == '5' ? TreeEntry::Kind::kFolder : header.type == '2' ? TreeEntry::Kind::kLink : TreeEntry::Kind::kFile;
    entry.content.resize(*size);
    if (*size > 0 && gzread(in.get(), entry.content.data(), static_cast<unsigned>(*size)) != static_cast<int>(*size))
      return no_archive(file, "it ends too early");
    std::array<char, kBlock> rest{};
    const unsigned padding = static_cast<unsigned>((kBlock - *size % kBlock) % kBlock);
    if (padding > 0 && gzread(in.get(), rest.data(), padding) != static_cast<int>(padding)) return no_archive(file, "it ends too early");
    if (entry.kind == TreeEntry::Kind::kLink) entry.content = text_of(header.link);
    const std::size_t cut = path.find('/');
    if (cut == std::string::npos) continue;  // the top folder itself
    path.erase(0, cut + 1);
    const bool safe = safe_path(path) && (entry.kind != TreeEntry::Kind::kLink || safe_link(path, entry.content));
    if (!safe) return no_archive(file, "'" + path + "' points out of it");
    if (header.type == '0' || header.type == '\0' || header.type == '2' || header.type == '5') out[path] = std::move(entry);
  }
  if (out.empty()) return no_archive(file, "there is nothing in it");
  return out;
}

}  // namespace ipexrun::launcher
