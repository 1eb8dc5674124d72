#include "xpu/opencl/program_files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "configs/contract/env.h"
#include "xpu/opencl/device.h"
#include "xpu/opencl/sources.h"

namespace ipexrun::xpu {
namespace {

constexpr std::size_t kDigits = 16;

bool ours_alone(const std::string& folder, bool root_may_own) {
  struct stat found {};
  return ::stat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
         (found.st_uid == ::geteuid() || (root_may_own && found.st_uid == 0)) && (found.st_mode & 022) == 0;
}

}  // namespace

std::string whole_options(const std::string& options, bool has_fp64, bool lanes) {
  // Only those that name the type ask for it: the others are the same for every device.
  const bool double_too = has_fp64 && options.find("double") != std::string::npos;
  return "-cl-std=CL1.2 " + options + (double_too ? " -DHAS_FP64=1" : "") + (lanes ? " -DGPU=1" : "");
}

std::uint64_t fnv1a(std::string_view text, std::uint64_t hash) {
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ull;
  return hash;
}

std::string digits(std::uint64_t hash) {
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash));
  return out;
}

std::string program_name(const std::string& file, const std::string& all_options) {
  const std::string source = kernel_source(file);
  return source.empty() ? "" : digits(fnv1a(all_options, fnv1a(source)));
}

std::string intel_target(unsigned ip_version) {
  switch (ip_version >> 14) {  // architecture in 10 bits, release in 8; the rest is the stepping
    case 12u << 8 | 55:
      return "acm-g10";
    case 12u << 8 | 56:
      return "acm-g11";
    case 12u << 8 | 57:
      return "acm-g12";
    case 12u << 8 | 60:
      return "pvc";
    default:
      return "";
  }
}

std::string target_of(const DeviceFacts& facts) {
  const std::string intel = facts.is_intel ? intel_target(facts.ip_version) : "";
  return !intel.empty() ? intel : "driver-" + digits(fnv1a(facts.platform + facts.name + facts.driver_version + facts.version));
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool write_file(const std::string& path, const std::string& bytes) {
  const std::string draft = path + "." + std::to_string(::getpid());
  const int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return false;
  const bool whole = ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  ::close(file);
  if (whole && ::rename(draft.c_str(), path.c_str()) == 0) return true;
  ::unlink(draft.c_str());
  return false;
}

std::string read_program(const std::string& path) {
  std::string bytes = read_file(path);
  if (bytes.size() < kDigits) return "";
  const std::string hash = bytes.substr(bytes.size() - kDigits);
  bytes.resize(bytes.size() - kDigits);
  return hash == digits(fnv1a(bytes)) ? bytes : "";
}

bool write_program(const std::string& path, const std::string& bytes) { return write_file(path, bytes + digits(fnv1a(bytes))); }

std::string cache_folder() {
  std::string base = env::get(env::Id::kCache).value_or("");
  if (base == "off") return "";
  if (base.empty()) {
    const std::string xdg = env::get_named("XDG_CACHE_HOME").value_or("");
    const std::string home = env::get_named("HOME").value_or("");
    if (xdg.empty() && home.empty()) return "";
    base = (xdg.empty() ? home + "/.cache" : xdg);
    ::mkdir(base.c_str(), 0700);
    base += "/ipexrun";
  }
  ::mkdir(base.c_str(), 0700);
  const std::string folder = base + "/xpu";
  ::mkdir(folder.c_str(), 0700);
  return ours_alone(folder, false) ? folder : "";  // programs found there are run
}

std::vector<std::string> ahead_folders() {
  std::vector<std::string> out;
  Dl_info here{};
  if (::dladdr(reinterpret_cast<void*>(&ahead_folders), &here) != 0 && here.dli_fname != nullptr) {
    const std::filesystem::path library = here.dli_fname;  // lib/ipexrun/plugins/libipexrun_xpu_...so
    const std::string beside = (library.parent_path().parent_path() / "xpu").string();
    if (ours_alone(beside, true)) out.push_back(beside);
  }
  if (const std::string cache = cache_folder(); !cache.empty() && ours_alone(cache + "/ahead", false)) out.push_back(cache + "/ahead");
  return out;
}

}  // namespace ipexrun::xpu
