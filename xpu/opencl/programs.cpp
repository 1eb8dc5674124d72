// Programs: built ahead of time, else from the cache folder, else compiled now (from SPIR-V, from source) and put there.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>

#include "xpu/opencl/program_files.h"
#include "xpu/opencl/state.h"

namespace ipexrun::xpu {
namespace {

/// Whole lines, whoever else writes to the file. What cannot be written is left out.
void append_line(const std::string& path, const std::string& line) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  const std::string whole = line + '\n';
  [[maybe_unused]] const ssize_t written = ::write(file, whole.data(), whole.size());
  ::close(file);
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

/// nullptr where the driver takes no SPIR-V, or not this one.
cl_program from_spirv(cl_context context, cl_device_id id, const std::string& bytes, const std::string& options) {
  if (bytes.empty()) return nullptr;
  std::size_t version_bytes = 0;  // of CL_DEVICE_IL_VERSION: a final zero alone means none
  if (::clGetDeviceInfo(id, CL_DEVICE_IL_VERSION, 0, nullptr, &version_bytes) != CL_SUCCESS || version_bytes <= 1) return nullptr;
  cl_int code = CL_SUCCESS;
  cl_program program = ::clCreateProgramWithIL(context, bytes.data(), bytes.size(), &code);
  if (code != CL_SUCCESS) return nullptr;
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

cl_program Device::State::built_ahead(const std::string& name, const std::string& all_options) {
  for (const std::string& folder : ahead_folders)
    if (cl_program known = from_binary(context, id, read_program(folder + '/' + target + '/' + name + ".bin"), all_options)) return known;
  return nullptr;
}

cl_program Device::State::from_source_text(const std::string& file, const std::string& all_options) {
  const std::string source = kernel_source(file);
  const char* text = source.c_str();
  cl_int code = CL_SUCCESS;
  cl_program program = ::clCreateProgramWithSource(context, 1, &text, nullptr, &code);
  check(code, "no program");
  code = ::clBuildProgram(program, 1, &id, all_options.c_str(), nullptr, nullptr);
  if (code == CL_SUCCESS) return program;
  const std::string words = build_log(program, id);
  ::clReleaseProgram(program);
  throw DeviceError("xpu: the kernels in " + file + ".cl do not build for " + facts.name + " (" + all_options + "): " + code_name(code) +
                    "\n" + words);
}

cl_program Device::State::program(const std::string& file, const std::string& options) {
  const std::string key = file + ' ' + options;
  if (const auto found = programs.find(key); found != programs.end()) return found->second;
  if (!programs_file.empty()) append_line(programs_file, key);
  const std::string all = whole_options(options, facts.has_fp64, facts.lanes);
  const std::string name = program_name(file, all);
  if (name.empty()) throw DeviceError("xpu: no kernels of the name " + file);
  if (cl_program known = built_ahead(name, all)) {
    ++ahead_of_time;
    return programs[key] = known;
  }
  const std::string path =
      cache_folder.empty()
          ? ""
          : cache_folder + '/' + digits(fnv1a(facts.platform + facts.name + facts.driver_version + facts.version + name)) + ".clbin";
  if (!path.empty()) {
    if (cl_program known = from_binary(context, id, read_program(path), all)) {
      ++from_cache;
      return programs[key] = known;
    }
  }
  cl_program program = nullptr;
  for (const std::string& folder : ahead_folders)
    if (program == nullptr) program = from_spirv(context, id, read_program(folder + '/' + kSpirv + '/' + name + ".spv"), all);
  if (program == nullptr) program = from_source_text(file, all);
  ++from_source;
  if (const std::string binary = path.empty() ? "" : binary_of(program); !binary.empty()) write_program(path, binary);
  return programs[key] = program;
}

std::string Device::build_binary(const std::string& file, const std::string& options) {
  cl_program program = state_->from_source_text(file, whole_options(options, state_->facts.has_fp64, state_->facts.lanes));
  const std::string out = binary_of(program);
  ::clReleaseProgram(program);
  return out;
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
    out = std::make_unique<Kernel>(Kernel{handle, label_of(file, options, name), {}, {}, 0});
  }
  return *out;
}

}  // namespace ipexrun::xpu
