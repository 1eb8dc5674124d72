// Products of matrices: mm, addmm, bmm, baddbmm, by their out= forms; torch makes the others of them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <string_view>

#include "preload/xpu/fallback.h"
#include "preload/xpu/grid.h"
#include "preload/xpu/operators.h"
#include "preload/xpu/products.h"
#include "preload/xpu/reduced.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

using Shape = ProductShape;

constexpr std::int64_t kRowsOfAnItem = 8;  ///< ROWS, TILE and SIDE of xpu/kernels/gemm.cl
constexpr std::int64_t kTile = 64;
constexpr std::size_t kTileSide = 16;
constexpr std::size_t kTileBytes = 2 * 16 * (64 + 1) * sizeof(double);
constexpr std::size_t kBlockBytes = 4 * 8 * (128 + 4) * sizeof(float);

void strides_of(const Tensor& tensor, std::int64_t* out) {
  const std::int64_t dims = tensor.dim();
  out[0] = tensor.stride(dims - 2);
  out[1] = tensor.stride(dims - 1);
  out[2] = dims == 3 ? tensor.stride(0) : 0;
}

bool known(const Tensor& tensor, at::ScalarType type) {
  return tensor.is_xpu() && tensor.layout() == at::kStrided && tensor.scalar_type() == type && !tensor.is_conj() && !tensor.is_neg();
}

std::size_t blocks(std::int64_t size, std::int64_t of) { return static_cast<std::size_t>((size + of - 1) / of); }

/// The side of gemm_blocks' blocks: 128 where there is one for each of the device's units (measured on an H200: 43 TFLOP/s at 4096; at
/// 1024, where half of the units have none, 19, and 33 with blocks of 64), and where they compute at most a fifth more beyond the edges
/// (assumed); else 64.
std::int64_t block_for(const ::ipexrun::xpu::Device& device, std::int64_t m, std::int64_t n, std::size_t batch) {
  const std::size_t large = blocks(m, 128) * blocks(n, 128), small = blocks(m, 64) * blocks(n, 64);
  return large * batch >= device.facts().compute_units && 10 * 4 * large <= 12 * small ? 128 : 64;
}
bool makes_blocks(const ::ipexrun::xpu::Device& device) {
  return device.facts().lanes && device.facts().max_work_group >= kTileSide * kTileSide && device.facts().local_bytes >= kBlockBytes;
}

/// Of float16 and bfloat16 on devices that have such units. False: nothing was done.
bool multiply_in_matrix_units(::ipexrun::xpu::Device& device, at::ScalarType type, const char* mixed, const Shape& shape, const Tensor& out,
                              const std::vector<Argument>& arguments) {
  const std::int64_t lanes = device.matrix_lanes();
  if (lanes == 0 || (type != at::kHalf && type != at::kBFloat16) || shape.m <= kRowsOfAnItem) return false;
  const std::string options = std::string("-DT=") + kernel_type(type) + " -DMATRIX=" + std::to_string(lanes) + mixed +
                              (device.facts().matrix_emulated ? " -DMATRIX_EMULATED" : "");
  Kernel* kernel = nullptr;
  try {
    kernel = &device.kernel("gemm_matrix", options, "gemm_matrix");
  } catch (const ::ipexrun::xpu::DeviceError& problem) {  // a driver that promises more than its compiler takes
    no_kernel("products in matrix units", problem.what(), "run without them");
    device.give_up_matrix();
    return false;
  }
  const std::int64_t rows = lanes == 16 ? 32 : 16;  // of a sub-group: 8 * STEPS_DOWN of gemm_matrix.cl
  const auto batch = static_cast<std::size_t>(out.dim() == 3 ? out.size(0) : 1);
  const auto side = static_cast<std::size_t>(lanes);
  device.launch(*kernel, arguments, {blocks(shape.n, 2 * lanes) * side, blocks(shape.m, 4 * rows) * 4, batch}, {side, 4, 1},
                stream_of(out));
  return true;
}

/// Tensors that kernels take, of the result's sizes. a and b are of one type; out and c are too, which is that type or float32.
void launch_product(const Tensor& out, const Tensor& a, const Tensor& given_b, const Tensor* c, double beta, double alpha) {
  const at::ScalarType type = a.scalar_type();
  const bool wide = type == at::kDouble;
  const char* mixed = out.scalar_type() == type ? "" : " -DO=float";
  ::ipexrun::xpu::Device& device = *unit_of(out).device;
  const bool lanes = device.facts().lanes;
  // Neighbours in a row of b are read together; tiles take either order, elsewhere a transposed b is laid out anew once.
  const bool tiles = lanes && a.size(-2) > kRowsOfAnItem && device.facts().max_work_group >= kTileSide * kTileSide &&
                     device.facts().local_bytes >= kTileBytes;
  const bool blocks_of_results = tiles && !wide && device.facts().local_bytes >= kBlockBytes;
  const bool as_given = tiles || given_b.stride(-1) == 1 || given_b.size(-1) == 1 || a.size(-2) <= kRowsOfAnItem;
  const Tensor b = as_given ? given_b : given_b.contiguous();
  Shape shape{a.size(-2), b.size(-1), a.size(-1), {}, {}, {}, {}};
  strides_of(a, shape.a);
  strides_of(b, shape.b);
  strides_of(out, shape.out);
  Tensor expanded;
  if (c != nullptr && beta != 0) {
    expanded = c->expand(out.sizes());
    strides_of(expanded, shape.c);
  } else {
    beta = 0;
  }
  const auto number = [&](double value) { return wide ? Argument::value(value) : Argument::value(static_cast<float>(value)); };
  const std::vector<Argument> arguments{Argument::memory(out.mutable_data_ptr()),
                                        Argument::memory(a.const_data_ptr()),
                                        Argument::memory(b.const_data_ptr()),
                                        Argument::memory(expanded.defined() ? expanded.const_data_ptr() : out.const_data_ptr()),
                                        Argument::value(shape),
                                        number(alpha),
                                        number(beta)};
  if (multiply_in_matrix_units(device, type, mixed, shape, out, arguments)) return;
  const auto batch = static_cast<std::size_t>(out.dim() == 3 ? out.size(0) : 1);
  const std::int64_t block = block_for(device, shape.m, shape.n, batch);
  // A CPU's work items are loops: they want vectors inside; a GPU's are lanes that load side by side.
  const bool vectors = !lanes && (b.stride(-1) == 1 || b.size(-1) == 1);
  Kernel& kernel = device.kernel(
      "gemm",
      std::string("-DT=") + kernel_type(type) + mixed + (wide ? " -DWIDE" : "") + (blocks_of_results && block == 64 ? " -DBLOCK=64" : ""),
      vectors             ? "gemm_vectors"
      : blocks_of_results ? "gemm_blocks"
      : tiles             ? "gemm_tiles"
                          : "gemm");
  if (blocks_of_results && !vectors) {
    const auto side = static_cast<std::size_t>(block / 8);
    device.launch(kernel, arguments, {blocks(shape.n, block) * side, blocks(shape.m, block) * side, batch}, {side, side, 1},
                  stream_of(out));
  } else if (vectors) {
    device.launch(kernel, arguments, {blocks(shape.n, 16), blocks(shape.m, kRowsOfAnItem), batch}, {2, 4, 1}, stream_of(out));
  } else if (tiles) {
    device.launch(kernel, arguments, {blocks(shape.n, kTile) * kTileSide, blocks(shape.m, kTile) * kTileSide, batch},
                  {kTileSide, kTileSide, 1}, stream_of(out));
  } else {
    device.launch(kernel, arguments, {static_cast<std::size_t>(shape.n), blocks(shape.m, kRowsOfAnItem), batch}, {64, 1, 1},
                  stream_of(out));
  }
}

/// Of float32, with 16 bits inside where that was asked for or is faster.
void multiply_float(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* c, double beta, double alpha) {
  const auto with = [&](const Tensor& to, at::ScalarType inside) {
    if (inside == at::kFloat) return launch_product(to, a, b, c, beta, alpha);
    launch_product(to, a.to(inside), b.to(inside), c, beta, alpha);
  };
  if (!may_reduce(out)) return with(out, at::kFloat);
  const ReducedCall call{out.dim() == 3 ? "batches of products" : "products",
                         {out.dim(), out.dim() == 3 ? bucket(out.size(0)) : 1, bucket(a.size(-2)), a.size(-1), b.size(-1),
                          a.stride(-1) == 1, b.stride(-1) == 1, beta != 0},
                         [&](at::ScalarType inside) {
                           const Tensor fresh = at::empty_strided(out.sizes(), out.strides(), out.options());
                           with(fresh, inside);
                           return std::vector<Tensor>{fresh};
                         },
                         {out.dim() - 1}};
  std::vector<Tensor> results;
  const at::ScalarType inside = choose_inside(call, {a, b, c != nullptr ? *c : Tensor()}, results);
  if (!results.empty()) {
    out.copy_(results[0]);
    return;
  }
  const KeepInside keep;
  with(out, inside);
}

/// False: nothing was done.
bool multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* c, double beta, double alpha) {
  const at::ScalarType type = out.scalar_type();
  if (type != at::kDouble && type != at::kFloat && type != at::kHalf && type != at::kBFloat16) return false;
  if (!known(out, type) || !known(a, type) || !known(b, type) || (c != nullptr && !known(*c, type))) return false;
  if (type == at::kDouble && !unit_of(out).device->facts().has_fp64) return false;
  std::vector<std::int64_t> sizes = a.sizes().vec();
  sizes.back() = b.size(-1);
  if (out.sizes() != at::IntArrayRef(sizes)) out.resize_(sizes);
  if (out.numel() == 0) return true;
  if (type == at::kFloat) {
    multiply_float(out, a, b, c, c == nullptr ? 0 : beta, alpha);
  } else {
    launch_product(out, a, b, c, beta, alpha);
  }
  return true;
}

void product(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const c10::IValue* given = &*(stack->end() - static_cast<std::ptrdiff_t>(count));
  const bool adds = count == 6;  // (self, a, b, beta, alpha, out), else (a, b, out)
  const Tensor out = given[count - 1].toTensor();
  const bool done = attempt(op, [&] {
    if (!adds) return multiply(out, given[0].toTensor(), given[1].toTensor(), nullptr, 0, 1);
    const at::Scalar beta = given[3].toScalar(), alpha = given[4].toScalar();
    const Tensor self = given[0].toTensor();
    if (beta.isComplex() || alpha.isComplex()) return false;
    return multiply(out, given[1].toTensor(), given[2].toTensor(), &self, beta.to<double>(), alpha.to<double>());
  });
  if (!done) return run_on_cpu(op, keys, stack);
  stack->erase(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  stack->emplace_back(out);
}

}  // namespace

bool multiply_windows(const Tensor& out, const Tensor& a, const Tensor& image, const Tensor& bias, const ProductShape& shape,
                      const ConvolutionWindow& window, int kernel_height, int kernel_width) {
  ::ipexrun::xpu::Device& device = *unit_of(out).device;
  if (!makes_blocks(device) || out.scalar_type() == at::kDouble) return false;
  const std::int64_t block = block_for(device, shape.m, shape.n, 1);
  Kernel& kernel =
      device.kernel("gemm",
                    std::string("-DT=") + kernel_type(out.scalar_type()) + (block == 64 ? " -DBLOCK=64" : "") +
                        " -DKERNEL_HEIGHT=" + std::to_string(kernel_height) + " -DKERNEL_WIDTH=" + std::to_string(kernel_width),
                    "gemm_blocks");
  const std::vector<Argument> arguments{Argument::memory(out.mutable_data_ptr()),
                                        Argument::memory(a.const_data_ptr()),
                                        Argument::memory(image.const_data_ptr()),
                                        Argument::memory(bias.defined() ? bias.const_data_ptr() : out.const_data_ptr()),
                                        Argument::value(shape),
                                        Argument::value(1.0F),
                                        Argument::value(bias.defined() ? 1.0F : 0.0F),
                                        Argument::value(window)};
  const auto side = static_cast<std::size_t>(block / 8);
  device.launch(kernel, arguments, {blocks(shape.n, block) * side, blocks(shape.m, block) * side, 1}, {side, side, 1}, stream_of(out));
  return true;
}

void register_products() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  for (const char* name : {"mm.out", "addmm.out", "bmm.out", "baddbmm.out"})
    aten->impl(name, torch::CppFunction::makeFromBoxedFunction<&product>());
}

}  // namespace ipexrun::preload::xpu
