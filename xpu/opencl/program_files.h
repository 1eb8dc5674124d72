// Programs as files: what a program is called, and the folders where those that were built ahead of time lie (ipexrun aot). No OpenCL here.
//
//   FOLDER/TARGET/0123456789abcdef.bin    TARGET: a device of Intel's compiler (pvc, acm-g10, ...), or driver-HASH for what another driver
//   has built FOLDER/spirv/0123456789abcdef.spv     for any driver that takes SPIR-V FOLDER/TARGET/programs.txt            what is there:
//   name, file, options
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ipexrun::xpu {

struct DeviceFacts;

constexpr const char* kSpirv = "spirv";

/// All options that a program is built with, `options` being those that the caller asked for.
std::string whole_options(const std::string& options, bool has_fp64, bool lanes);

/// 16 digits of a hash over the file's text and all its options: the file's name without its ending. "" for a file that is not ours.
std::string program_name(const std::string& file, const std::string& all_options);

/// The target whose programs a device takes. Never empty.
std::string target_of(const DeviceFacts& facts);

/// The same of an Intel GPU by its IP version (CL_DEVICE_IP_VERSION_INTEL); "" for one that has no ahead-of-time target.
std::string intel_target(unsigned ip_version);

/// FNV-1a, continued from `hash`.
std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325ull);
std::string digits(std::uint64_t hash);

std::string read_file(const std::string& path);
/// All or nothing, whoever else writes it. False: not written.
bool write_file(const std::string& path, const std::string& bytes);

/// A built program with its hash behind it: drivers (PoCL 3.1) crash on one that is cut off. "": not there, or not whole.
std::string read_program(const std::string& path);
bool write_program(const std::string& path, const std::string& bytes);

/// IPEXRUN_CACHE/xpu, else XDG_CACHE_HOME/ipexrun/xpu, made where it is missing; "" when there is none to be had, or others can write to
/// it.
std::string cache_folder();
/// Where this process looks for programs built ahead of time, in this order: beside the library (lib/ipexrun/xpu), and in the cache folder.
/// Only folders of ours or root's that nobody else can write to.
std::vector<std::string> ahead_folders();

}  // namespace ipexrun::xpu
