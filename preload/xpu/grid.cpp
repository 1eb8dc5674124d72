#include "preload/xpu/grid.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace ipexrun::preload::xpu {
namespace {

at::TensorIterator iterate(const at::Tensor& to, const at::Tensor* from) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false).add_output(to);
  if (from != nullptr) config.add_const_input(*from);
  return config.build();
}

}  // namespace

bool make_grid(const at::TensorIteratorBase& iterator, Grid& grid) {
  const int dims = iterator.ndim();
  if (dims > 8 || iterator.ntensors() > 4) return false;
  for (int d = 0; d < 8; ++d) {
    grid.sizes[d] = d < dims ? iterator.shape()[static_cast<std::size_t>(d)] : 1;
    for (int k = 0; k < 4; ++k)
      grid.strides[k][d] = d < dims && k < iterator.ntensors() ? iterator.strides(k)[static_cast<std::size_t>(d)] : 0;
  }
  return true;
}

const char* kernel_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float";
    case at::kDouble:
      return "double";
    case at::kHalf:
      return "half";
    case at::kBFloat16:
      return "bfloat";
    case at::kLong:
      return "long";
    case at::kInt:
      return "int";
    case at::kShort:
      return "short";
    case at::kChar:
      return "char";
    case at::kByte:
      return "uchar";
    case at::kBool:
      return "bool";
    default:
      return nullptr;
  }
}

const char* raw_type(std::size_t bytes) {
  switch (bytes) {
    case 1:
      return "uchar";
    case 2:
      return "ushort";
    case 4:
      return "uint";
    case 8:
      return "ulong";
    case 16:
      return "ulong2";
    default:
      return nullptr;
  }
}

namespace {

bool lanes(const at::Tensor& on) { return unit_of(on).device->facts().lanes; }

/// The shape of a work group over axes 0 and 1 of a grid.
std::array<std::size_t, 3> group_shape(const at::Tensor& on, const Grid& grid) {
  // Two shapes of work groups only: a CPU's driver compiles a kernel anew for each.
  if (!lanes(on)) return grid.sizes[0] >= 32 ? std::array<std::size_t, 3>{64, 1, 1} : std::array<std::size_t, 3>{8, 8, 1};
  // Lanes side by side as far as the first axis goes.
  const auto all = static_cast<std::size_t>(group_of(on));
  std::size_t wide = all;
  if (grid.sizes[1] > 1)
    while (wide > 8 && wide / 2 >= static_cast<std::size_t>(grid.sizes[0])) wide /= 2;
  return {wide, all / wide, 1};
}
std::size_t rest_of(const Grid& grid, int first = 2) {
  std::size_t rest = 1;
  for (int d = first; d < 8; ++d) rest *= static_cast<std::size_t>(grid.sizes[d]);
  return rest;
}

}  // namespace

// Measured on an H200: 4 elements of 4 bytes, or 8 of 2, reach its memory's rate.
std::int64_t each_item(const at::Tensor& on, std::size_t bytes) { return !lanes(on) ? 1 : bytes > 2 ? 4 : 8; }
const char* each_option(const at::Tensor& on, std::size_t bytes) { return each_item(on, bytes) == 8 ? " -DEACH=8" : ""; }

std::int64_t group_of(const at::Tensor& on) { return lanes(on) && unit_of(on).device->facts().max_work_group >= 256 ? 256 : 64; }

void launch_linear(const at::Tensor& on, Kernel& kernel, const std::vector<Argument>& arguments, std::int64_t n, std::int64_t each) {
  const std::int64_t group = group_of(on), of_group = group * each, groups = (n + of_group - 1) / of_group;
  unit_of(on).device->launch(kernel, arguments, {static_cast<std::size_t>(groups * group), 1, 1}, {static_cast<std::size_t>(group), 1, 1},
                             stream_of(on));
}

void launch_grid(const at::Tensor& on, Kernel& kernel, const std::vector<Argument>& arguments, const Grid& grid) {
  unit_of(on).device->launch(kernel, arguments,
                             {static_cast<std::size_t>(grid.sizes[0]), static_cast<std::size_t>(grid.sizes[1]), rest_of(grid)},
                             group_shape(on, grid), stream_of(on));
}

void launch_strided(const at::Tensor& on, Kernel& kernel, std::vector<Argument> arguments, const Grid& grid, std::int64_t each) {
  const std::array<std::size_t, 3> group = group_shape(on, grid);
  const std::int32_t axis = group[1] == 1 ? 0 : 1;
  arguments.push_back(Argument::value(axis));
  arguments.push_back(Argument::value(grid));
  std::array<std::size_t, 3> global{static_cast<std::size_t>(grid.sizes[0]), static_cast<std::size_t>(grid.sizes[1]), rest_of(grid)};
  const auto along = static_cast<std::size_t>(axis);
  const std::size_t of_group = group[along] * static_cast<std::size_t>(each);
  global[along] = (global[along] + of_group - 1) / of_group * group[along];
  unit_of(on).device->launch(kernel, arguments, global, group, stream_of(on));
}

std::string lines_kernel(const at::Tensor& on, const Grid& grid, const std::vector<std::int64_t>& bytes) {
  constexpr std::int64_t kShort = 32;
  if (lanes(on) || grid.sizes[0] < kShort) return "";
  std::string out = "lines_";
  for (std::size_t k = 1; k < bytes.size(); ++k) {
    const std::int64_t step = grid.strides[k][0];
    if (bytes[k] != 0 && step != 0 && step != bytes[k]) return "lines";
    out += bytes[k] == 0 || step != 0 ? '1' : '0';
  }
  // One launch for three dimensions: a few for the rest, where there is enough to do in each.
  constexpr std::int64_t kLaunches = 64, kElements = 1 << 14;
  const auto launches = static_cast<std::int64_t>(rest_of(grid, 3));
  if (launches > 1 && (launches > kLaunches || grid.sizes[0] * grid.sizes[1] * grid.sizes[2] < kElements)) return "lines";
  const bool known = bytes.size() == 2 || std::count(out.begin(), out.end(), '0') <= 1;
  return known && grid.strides[0][0] == bytes[0] ? out : "lines";
}

void launch_lines(const at::Tensor& on, const std::string& file, const std::string& options, const std::string& lines,
                  std::vector<Argument> arguments, const Grid& grid) {
  ::ipexrun::xpu::Device& device = *unit_of(on).device;
  Kernel& kernel = device.kernel(file, options, lines);
  const std::array<std::size_t, 3> group{64, 1, 1};
  const auto wide = static_cast<std::size_t>(grid.sizes[0]), high = static_cast<std::size_t>(grid.sizes[1]);
  if (lines == "lines") {
    arguments.push_back(Argument::value(grid));
    return device.launch(kernel, arguments, {wide, high, rest_of(grid)}, group, stream_of(on));
  }
  arguments.push_back(Argument::value(grid.sizes[0]));
  const std::size_t given = arguments.size();
  const auto launches = static_cast<std::int64_t>(rest_of(grid, 3));
  for (std::int64_t launch = 0; launch < launches; ++launch) {
    arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(given), arguments.end());
    for (const auto& strides : grid.strides) {
      std::int64_t start = 0, rest = launch;
      for (int d = 3; d < 8; rest /= grid.sizes[d++]) start += rest % grid.sizes[d] * strides[d];
      for (const std::int64_t place : {start, strides[1], strides[2]}) arguments.push_back(Argument::value(place));
    }
    device.launch(kernel, arguments, {wide, high, static_cast<std::size_t>(grid.sizes[2])}, group, stream_of(on));
  }
}

namespace {

/// Copies of elements of a CPU's words between neighbours along different axes, in blocks of 16 x 16: the axis of `in`'s neighbours becomes
/// axis 1.
bool transposes(const at::Tensor& on, Grid& grid, std::int64_t next) {
  if (lanes(on) || next > 8 || grid.strides[0][0] != next || grid.strides[1][0] == next || grid.sizes[0] < 8) return false;
  for (int d = 1; d < 8; ++d) {
    if (grid.strides[1][d] != next || grid.sizes[d] < 8) continue;
    std::swap(grid.sizes[1], grid.sizes[d]);
    for (int k = 0; k < 2; ++k) std::swap(grid.strides[k][1], grid.strides[k][d]);
    return true;
  }
  return false;
}

}  // namespace

void copy_kernel(const at::Tensor& to, const at::Tensor& from) {
  const at::TensorIterator iterator = iterate(to, &from);
  Grid grid;
  TORCH_CHECK(make_grid(iterator, grid), "a copy on xpu between layouts of more than 8 dimensions that do not join");
  const bool same = to.scalar_type() == from.scalar_type();
  const std::string options = (same ? std::string("-DRAW=") + raw_type(to.element_size())
                                    : std::string("-DFROM=") + kernel_type(from.scalar_type()) + " -DTO=" + kernel_type(to.scalar_type())) +
                              each_option(to, to.element_size());
  const std::int64_t each = each_item(to, to.element_size());
  ::ipexrun::xpu::Device& device = *unit_of(to).device;
  std::vector<Argument> arguments{Argument::memory(iterator.data_ptr(0)), Argument::memory(iterator.data_ptr(1))};
  if (iterator.is_contiguous()) {
    arguments.push_back(Argument::value(static_cast<std::int64_t>(to.numel())));
    launch_linear(to, device.kernel("copy", options, "linear_copy"), arguments, to.numel(), each);
  } else if (same && transposes(to, grid, to.element_size())) {
    arguments.push_back(Argument::value(grid));
    const auto blocks = [&](int d) { return static_cast<std::size_t>((grid.sizes[d] + 15) / 16); };
    device.launch(device.kernel("copy", options, "transpose"), arguments, {blocks(0), blocks(1), rest_of(grid)}, {4, 4, 1}, stream_of(to));
  } else if (const std::string lines = lines_kernel(to, grid, {to.element_size(), from.element_size()}); !lines.empty()) {
    launch_lines(to, "copy", options, lines, arguments, grid);
  } else {
    launch_strided(to, device.kernel("copy", options, "strided_copy"), arguments, grid, each);
  }
}

void fill_kernel(const at::Tensor& to, const void* value) {
  const at::TensorIterator iterator = iterate(to, nullptr);
  Grid grid;
  TORCH_CHECK(make_grid(iterator, grid), "fill on xpu of a layout with more than 8 dimensions that do not join");
  const auto raw = [&]() -> Argument {
    const auto as = [&](auto zero) {
      std::memcpy(&zero, value, sizeof zero);
      return Argument::value(zero);
    };
    switch (to.element_size()) {
      case 1:
        return as(std::uint8_t{});
      case 2:
        return as(std::uint16_t{});
      case 4:
        return as(std::uint32_t{});
      case 8:
        return as(std::uint64_t{});
      default:
        return as(std::array<std::uint64_t, 2>{});
    }
  }();
  ::ipexrun::xpu::Device& device = *unit_of(to).device;
  const std::string options = std::string("-DRAW=") + raw_type(to.element_size()) + each_option(to, to.element_size());
  const std::int64_t each = each_item(to, to.element_size());
  if (iterator.is_contiguous()) {
    launch_linear(to, device.kernel("fill", options, "linear_fill"),
                  {Argument::memory(iterator.data_ptr(0)), raw, Argument::value(static_cast<std::int64_t>(to.numel()))}, to.numel(), each);
  } else {
    launch_strided(to, device.kernel("fill", options, "strided_fill"), {Argument::memory(iterator.data_ptr(0)), raw}, grid, each);
  }
}

}  // namespace ipexrun::preload::xpu
