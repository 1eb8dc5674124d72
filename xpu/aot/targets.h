// What programs are built for ahead of time, and by what.
#pragma once

#include <string>
#include <vector>

namespace ipexrun::xpu::aot {

/// One program of a list: a file of xpu/kernels without its ending, and options.
struct Program {
  std::string file, options;
  bool operator<(const Program& other) const { return file != other.file ? file < other.file : options < other.options; }
};

/// A device of Intel's compiler, or SPIR-V for any driver.
struct Target {
  std::string name;
  std::string device;    ///< of ocloc; for SPIR-V the one whose front end is asked
  bool has_fp64 = true;  ///< without it programs that need double are left out
  int matrix_lanes = 0;  ///< of gemm_matrix.cl
  bool spirv = false;
  bool lanes = true;  ///< DeviceFacts::lanes
};

/// By name: spirv, or a device that ocloc knows.
Target target_named(const std::string& name);

/// Which programs of the list a target gets, those for its matrix units added.
std::vector<Program> programs_for(const Target& target, const std::vector<Program>& list);

/// Lines "file options"; empty ones and those that begin with # do not count. Sorted, each once.
std::vector<Program> read_programs(const std::string& text);

/// The compiler in PATH; "" when there is none.
std::string find_ocloc();

/// Whether programs can be built for it: spirv, or a device that this ocloc has.
bool knows_device(const std::string& ocloc, const std::string& name);

/// How an error begins that is the disk's and not the program's.
inline const std::string kCannotWrite = "cannot write ";

/// Builds one program into the file `path`, in the folder `drafts`; "" or the compiler's first error. Any thread.
std::string compile(const std::string& ocloc, const Target& target, const Program& program, const std::string& drafts,
                    const std::string& path);

}  // namespace ipexrun::xpu::aot
