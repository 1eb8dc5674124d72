// Programs: from the cache folder, else compiled from source and put there.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>

#include "xpu/opencl/state.h"

namespace ipexrun::xpu {
namespace {

std::uint64_t fnv1a(const std::string& text, std::uint64_t hash = 0xcbf29ce484222325ull) {
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ull;
  return hash;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// All or nothing: two processes may write the same file. What cannot be written is compiled again next time.
void write_file(const std::string& path, const std::string& bytes) {
  const std::string draft = path + "." + std::to_string(::getpid());
  const int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return;
  const bool whole = ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  ::close(file);
  if (!whole || ::rename(draft.c_str(), path.c_str()) != 0) ::unlink(draft.c_str());
}

std::string build_log(cl_program program, cl_device_id id) {
  std::size_t bytes = 0;
  if (::clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) return "";
  std::string out(bytes, '\0');
  ::clGetProgramBuildInfo(program, id, CL_PROGRAM_BUILD_LOG, bytes, out.data(), nullptr);
  return out.substr(0, 4000);
}

std::string binary_of(cl_program program) {
  std::size_t bytes = 0;
  if (::clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr) != CL_SUCCESS || bytes == 0) return "";
  std::string out(bytes, '\0');
  auto* data = reinterpret_cast<unsigned char*>(out.data());
  return ::clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof data, &data, nullptr) == CL_SUCCESS ? out : "";
}

/// nullptr when the binary is of another driver, cut off, or simply not there.
cl_program from_binary(cl_context context, cl_device_id id, const std::string& bytes, const std::string& options) {
  if (bytes.empty()) return nullptr;
  const std::size_t size = bytes.size();
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  cl_int code = CL_SUCCESS, status = CL_SUCCESS;
  cl_program program = ::clCreateProgramWithBinary(context, 1, &id, &size, &data, &status, &code);
  if (code != CL_SUCCESS || status != CL_SUCCESS) {
    if (program != nullptr) ::clReleaseProgram(program);
    return nullptr;
  }
  if (::clBuildProgram(program, 1, &id, options.c_str(), nullptr, nullptr) == CL_SUCCESS) return program;
  ::clReleaseProgram(program);
  return nullptr;
}

/// For reports: "gemm", "elementwise add", "rows softmax".
std::string label_of(const std::string& file, const std::string& options, const std::string& name) {
  for (const char* word : {"-DOP=op_", "-DREDUCTION="})
    if (const std::size_t at = options.find(word); at != std::string::npos) {
      const std::size_t from = at + std::string(word).size();
      return file + ' ' + options.substr(from, options.find(' ', from) - from);
    }
  return name == file ? file : file + ' ' + name;
}

}  // namespace

cl_program Device::State::program(const std::string& file, const std::string& options) {
  const std::string key = file + ' ' + options;
  if (const auto found = programs.find(key); found != programs.end()) return found->second;
  const std::string source = kernel_source(file);
  if (source.empty()) throw DeviceError("xpu: no kernels of the name " + file);
  std::string all = "-cl-std=CL1.2 " + options;
  if (facts.has_fp64) all += " -DHAS_FP64=1";
  if (facts.lanes) all += " -DGPU=1";
  std::string path;
  if (!cache_folder.empty()) {
    char name[40];
    const std::uint64_t hash = fnv1a(facts.platform + facts.name + facts.driver_version + facts.version + all, fnv1a(source));
    std::snprintf(name, sizeof name, "/%016llx.clbin", static_cast<unsigned long long>(hash));
    path = cache_folder + name;
    if (cl_program known = from_binary(context, id, read_file(path), all)) {
      ++from_cache;
      return programs[key] = known;
    }
  }
  const char* text = source.c_str();
  cl_int code = CL_SUCCESS;
  cl_program program = ::clCreateProgramWithSource(context, 1, &text, nullptr, &code);
  check(code, "no program");
  code = ::clBuildProgram(program, 1, &id, all.c_str(), nullptr, nullptr);
  if (code != CL_SUCCESS) {
    const std::string words = build_log(program, id);
    ::clReleaseProgram(program);
    throw DeviceError("xpu: the kernels in " + file + ".cl do not build for " + facts.name + " (" + all + "): " + code_name(code) + "\n" +
                      words);
  }
  ++from_source;
  if (!path.empty()) write_file(path, binary_of(program));
  return programs[key] = program;
}

Kernel& Device::kernel(const std::string& file, const std::string& options, const std::string& name) {
  const std::lock_guard lock(state_->programs_mutex);
  std::unique_ptr<Kernel>& out = state_->kernels[file + ' ' + options + ' ' + name];
  if (out == nullptr) {
    cl_int code = CL_SUCCESS;
    const auto start = std::chrono::steady_clock::now();
    cl_program program = state_->program(file, options);
    state_->build_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    cl_kernel handle = ::clCreateKernel(program, name.c_str(), &code);
    check(code, ("no kernel " + name + " in " + file + ".cl").c_str());
    out = std::make_unique<Kernel>(Kernel{handle, label_of(file, options, name), {}});
  }
  return *out;
}

}  // namespace ipexrun::xpu
