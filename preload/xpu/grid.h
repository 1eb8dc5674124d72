// Strided operands as kernels take them (struct Grid of xpu/kernels/common.cl), and the launches over them.
#pragma once

#include <ATen/TensorIterator.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "preload/xpu/place.h"

namespace ipexrun::preload::xpu {

/// Up to 8 dimensions, the first one fastest; strides in bytes. Unused ones have size 1.
struct Grid {
  std::int64_t sizes[8];
  std::int64_t strides[4][8];
};

/// False: too many dimensions or operands.
bool make_grid(const at::TensorIteratorBase& iterator, Grid& grid);

/// The name of a type in kernels (common.cl); nullptr for those that kernels do not know.
const char* kernel_type(at::ScalarType type);

/// An unsigned integer type of so many bytes; nullptr for other sizes than 1, 2, 4, 8 and 16.
const char* raw_type(std::size_t bytes);

/// How many elements a work item of LINEAR and STRIDED kernels takes (EACH of common.cl) where it makes elements of so many bytes, and the
/// option that tells the kernel so.
std::int64_t each_item(const at::Tensor& on, std::size_t bytes);
const char* each_option(const at::Tensor& on, std::size_t bytes);

/// Items of a work group of linear kernels.
std::int64_t group_of(const at::Tensor& on);
/// Work items 0 to n - 1, or as many as take n elements, `each` an item.
void launch_linear(const at::Tensor& on, Kernel& kernel, const std::vector<Argument>& arguments, std::int64_t n, std::int64_t each = 1);
/// A work item an element of the grid.
void launch_grid(const at::Tensor& on, Kernel& kernel, const std::vector<Argument>& arguments, const Grid& grid);
/// Kernels made of STRIDED, whose last two arguments are added here: the axis along which an item takes `each` elements, and the grid.
void launch_strided(const at::Tensor& on, Kernel& kernel, std::vector<Argument> arguments, const Grid& grid, std::int64_t each);
/// Where work items are a CPU's: the kernel that takes this grid line by line (LINES of elementwise.cl and copy.cl), by the bytes of an
/// element of the result and then of each operand (0: none of the kernel's business, a number). Empty: lines are too short, or items are
/// lanes.
std::string lines_kernel(const at::Tensor& on, const Grid& grid, const std::vector<std::int64_t>& bytes);
/// That kernel of a program; the places of its lines are added to its arguments here.
void launch_lines(const at::Tensor& on, const std::string& file, const std::string& options, const std::string& lines,
                  std::vector<Argument> arguments, const Grid& grid);

/// Element by element, of the same sizes, on one device; between types that kernel_type() knows, or of the same type.
void copy_kernel(const at::Tensor& to, const at::Tensor& from);

/// Sets every element to a value of raw bytes (as many as an element has).
void fill_kernel(const at::Tensor& to, const void* value);

}  // namespace ipexrun::preload::xpu
