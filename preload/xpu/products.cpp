// Products of matrices: mm, addmm, bmm, baddbmm, by their out= forms; torch makes the others of them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/matmul.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "preload/xpu/choose_kernel.h"
#include "preload/xpu/fallback.h"
#include "preload/xpu/grid.h"
#include "preload/xpu/operators.h"
#include "preload/xpu/products.h"
#include "preload/xpu/reduced.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

constexpr std::int64_t kRowsOfAnItem = 8;  ///< ROWS, TILE and SIDE of xpu/kernels/gemm.cl
constexpr std::int64_t kTile = 64;
constexpr std::size_t kTileSide = 16;
constexpr std::size_t kTileBytes = 2 * 16 * (64 + 1) * sizeof(double);
constexpr std::size_t kBlockBytes = 4 * 8 * (128 + 4) * sizeof(float);

void matrix_strides(const Tensor& tensor, std::int64_t* out) {
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

constexpr std::int64_t kMostParts = 64;
/// From so many parts on they are taken without measuring: on an H100 whatever had 8 or more was 1.3 to 33 times as fast as blocks of 64
/// and the plain kernel; what had 3 or 4 was slower as often as faster (docs/decisions/0032).
constexpr std::int64_t kPartsFirst = 8;

/// Where few results leave most of the units without work, in how many equal parts k is computed (by blocks of 64; gemm_sum adds them up);
/// 1: not in parts. Four blocks for each unit, parts of 64 or more, and no more floats in all parts than twice what a and b have: assumed,
/// a race decides. At most kMostParts, so that looking for a divisor of k costs a call next to nothing.
std::int64_t parts_for(const ::ipexrun::xpu::Device& device, std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto groups = static_cast<std::int64_t>(blocks(m, 64) * blocks(n, 64));
  std::int64_t parts = std::min({4 * static_cast<std::int64_t>(device.facts().compute_units) / groups, k / 64, kMostParts});
  if (parts > 1) parts = std::min(parts, 2 * k * (m + n) / (m * n));
  while (parts > 1 && k % parts != 0) --parts;
  return std::max<std::int64_t>(parts, 1);
}
bool makes_blocks(const ::ipexrun::xpu::Device& device) {
  return device.facts().lanes && device.facts().max_work_group >= kTileSide * kTileSide && device.facts().local_bytes >= kBlockBytes;
}

/// The kernels of gemm.cl and gemm_matrix.cl.
enum class Form { kMatrix, kBlocks128, kBlocks64, kParts, kTiles, kPlain, kRows, kVectors, kVectorsAnew };
constexpr const char* name_of(Form form) {
  switch (form) {
    case Form::kMatrix:
      return "matrix units";
    case Form::kBlocks128:
      return "blocks of 128";
    case Form::kBlocks64:
      return "blocks of 64";
    case Form::kParts:
      return "blocks of 64, k in parts";
    case Form::kTiles:
      return "tiles";
    case Form::kPlain:
      return "plain";
    case Form::kRows:
      return "rows";
    case Form::kVectors:
      return "vectors";
    case Form::kVectorsAnew:
      break;
  }
  return "vectors, b laid anew";
}

/// Those that a call may take, the one that is taken without measuring first.
class Forms {
 public:
  void add(Form form) {
    for (std::size_t i = 0; i < count_; ++i)
      if (all_[i] == form) return;
    all_[count_] = form;
    names_[count_++] = name_of(form);
  }
  [[nodiscard]] Form operator[](int at) const { return all_[static_cast<std::size_t>(at)]; }
  [[nodiscard]] c10::ArrayRef<const char*> names() const { return {names_.data(), count_}; }

 private:
  std::array<Form, 8> all_{};
  std::array<const char*, 8> names_{};
  std::size_t count_ = 0;
};

bool has_matrix_units(const ::ipexrun::xpu::Device& device, at::ScalarType type, std::int64_t m) {
  return device.matrix_lanes() != 0 && (type == at::kHalf || type == at::kBFloat16) && m > kRowsOfAnItem;
}

constexpr std::int64_t kRowsForPlain = 64;  ///< above, a kernel that shares nothing between rows has nothing to win (assumed)

/// 1: neighbours in a row lie side by side; 2: those in a column; 0: neither.
std::int64_t layout_of(const Tensor& matrix) {
  return matrix.stride(-1) == 1 || matrix.size(-1) == 1 ? 1 : matrix.stride(-2) == 1 || matrix.size(-2) == 1 ? 2 : 0;
}

/// Depends on what a KernelKind has of the call, and on the first one.
Forms forms_of(const ::ipexrun::xpu::Device& device, const Tensor& a, const Tensor& b, std::size_t batch) {
  Forms out;
  const at::ScalarType type = a.scalar_type();
  const std::int64_t m = a.size(-2), n = b.size(-1);
  const bool few = m <= kRowsOfAnItem;
  if (!device.facts().lanes) {
    // A CPU's work items are loops: they want vectors inside, along neighbours in a row of b. A transposed b is laid anew once where there
    // are rows enough to pay for it.
    const bool side_by_side = layout_of(b) == 1;
    if (side_by_side) out.add(Form::kVectors);
    if (few && layout_of(a) == 1 && layout_of(b) == 2) out.add(Form::kRows);  // 6 to 17 times as fast as plain (PoCL, one core)
    if (few) out.add(Form::kPlain);
    if (!side_by_side) out.add(Form::kVectorsAnew);
    return out;
  }
  // A GPU's are lanes that load side by side; tiles take either order.
  const bool tiles = device.facts().max_work_group >= kTileSide * kTileSide && device.facts().local_bytes >= kTileBytes;
  const bool blocked = makes_blocks(device) && type != at::kDouble;
  const std::int64_t parts = blocked && batch == 1 ? parts_for(device, bucket(m), n, a.size(-1)) : 1;
  if (has_matrix_units(device, type, m)) out.add(Form::kMatrix);
  if (parts >= kPartsFirst) out.add(Form::kParts);
  if (few || !tiles) out.add(Form::kPlain);
  if (blocked) {
    out.add(block_for(device, m, n, batch) == 128 ? Form::kBlocks128 : Form::kBlocks64);
    out.add(Form::kBlocks64);
    if (m > 64) out.add(Form::kBlocks128);
    if (parts > 1) out.add(Form::kParts);
  }
  if (tiles) out.add(Form::kTiles);
  if (m <= kRowsForPlain) out.add(Form::kPlain);
  return out;
}

/// Of float16 and bfloat16 on devices that have such units. False: nothing was done.
bool multiply_in_matrix_units(::ipexrun::xpu::Device& device, at::ScalarType type, const char* mixed, const ProductShape& shape,
                              const Tensor& out, const std::vector<Argument>& arguments) {
  const std::int64_t lanes = device.matrix_lanes();
  if (!has_matrix_units(device, type, shape.m)) return false;
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

/// As a batch of `parts` products into floats, and their sum. `arguments` and `shape` as of one product.
void multiply_in_parts(::ipexrun::xpu::Device& device, const Tensor& out, std::int64_t parts, const ProductShape& shape,
                       std::vector<Argument> arguments, const std::string& mixed_type, const std::string& options) {
  const Tensor sums = at::empty({parts, shape.m, shape.n}, out.options().dtype(at::kFloat));
  const Argument c = arguments[3], alpha = arguments[5], beta = arguments[6];
  ProductShape part = shape;
  part.k = shape.k / parts;
  part.a[2] = part.k * shape.a[1];
  part.b[2] = part.k * shape.b[0];
  matrix_strides(sums, part.out);
  arguments[0] = arguments[3] = Argument::memory(sums.mutable_data_ptr());
  arguments[4] = Argument::value(part);
  arguments[5] = Argument::value(1.0F);
  arguments[6] = Argument::value(0.0F);
  const auto count = static_cast<std::size_t>(parts), side = std::size_t{8};
  device.launch(device.kernel("gemm", mixed_type + " -DBLOCK=64", "gemm_blocks"), arguments,
                {blocks(shape.n, 64) * side, blocks(shape.m, 64) * side, count}, {side, side, 1}, stream_of(out));
  ProductShape whole = shape;
  whole.k = parts;
  matrix_strides(sums, whole.a);
  const Argument from = Argument::memory(sums.const_data_ptr());
  const std::array to_sum{Argument::memory(out.mutable_data_ptr()), from, from, c, Argument::value(whole), alpha, beta};
  device.launch(device.kernel("gemm", options, "gemm_sum"), to_sum,
                {static_cast<std::size_t>(shape.n), static_cast<std::size_t>(shape.m), 1}, {64, 1, 1}, stream_of(out));
}

/// Tensors that kernels take, of the result's sizes. a and b are of one type; out and c are too, which is that type or float32.
struct Product {
  Tensor a, b;
  const Tensor* c;
  double beta, alpha;
};

/// `without_units`: what is taken without measuring where there are no matrix units, or where their kernel does not build; plain and tiles
/// come from its program, so that nothing is built for them.
void launch_form(Form form, Form without_units, const Tensor& out, const Product& given) {
  const at::ScalarType type = given.a.scalar_type();
  const bool wide = type == at::kDouble;
  const char* mixed = out.scalar_type() == type ? "" : " -DO=float";
  ::ipexrun::xpu::Device& device = *unit_of(out).device;
  const Tensor b = form == Form::kVectorsAnew ? given.b.contiguous() : given.b;
  ProductShape shape{given.a.size(-2), b.size(-1), given.a.size(-1), {}, {}, {}, {}};
  matrix_strides(given.a, shape.a);
  matrix_strides(b, shape.b);
  matrix_strides(out, shape.out);
  Tensor expanded;
  double beta = given.beta;
  if (given.c != nullptr && beta != 0) {
    expanded = given.c->expand(out.sizes());
    matrix_strides(expanded, shape.c);
  } else {
    beta = 0;
  }
  const auto number = [&](double value) { return wide ? Argument::value(value) : Argument::value(static_cast<float>(value)); };
  const std::vector<Argument> arguments{Argument::memory(out.mutable_data_ptr()),
                                        Argument::memory(given.a.const_data_ptr()),
                                        Argument::memory(b.const_data_ptr()),
                                        Argument::memory(expanded.defined() ? expanded.const_data_ptr() : out.const_data_ptr()),
                                        Argument::value(shape),
                                        number(given.alpha),
                                        number(beta)};
  if (form == Form::kMatrix) {
    if (multiply_in_matrix_units(device, type, mixed, shape, out, arguments)) return;
    form = without_units;
  }
  const auto batch = static_cast<std::size_t>(out.dim() == 3 ? out.size(0) : 1);
  const bool blocked = form == Form::kBlocks128 || form == Form::kBlocks64;
  const bool vectors = form == Form::kVectors || form == Form::kVectorsAnew;
  const Form first = blocked ? form : without_units;
  const std::string options = std::string("-DT=") + kernel_type(type) + mixed + (wide ? " -DWIDE" : "") +
                              (first == Form::kBlocks64 || first == Form::kParts ? " -DBLOCK=64" : "");
  if (form == Form::kParts) {
    const std::string floats = std::string("-DT=") + kernel_type(type) + (type == at::kFloat ? "" : " -DO=float");
    return multiply_in_parts(device, out, parts_for(device, bucket(shape.m), shape.n, shape.k), shape, arguments, floats, options);
  }
  Kernel& kernel = device.kernel("gemm", options,
                                 blocked                ? "gemm_blocks"
                                 : vectors              ? "gemm_vectors"
                                 : form == Form::kTiles ? "gemm_tiles"
                                 : form == Form::kRows  ? "gemm_rows"
                                                        : "gemm");
  if (blocked) {
    const std::int64_t block_size = form == Form::kBlocks128 ? 128 : 64;
    const auto side = static_cast<std::size_t>(block_size / 8);
    device.launch(kernel, arguments, {blocks(shape.n, block_size) * side, blocks(shape.m, block_size) * side, batch}, {side, side, 1},
                  stream_of(out));
  } else if (vectors) {
    device.launch(kernel, arguments, {blocks(shape.n, 16), blocks(shape.m, kRowsOfAnItem), batch}, {2, 4, 1}, stream_of(out));
  } else if (form == Form::kTiles) {
    device.launch(kernel, arguments, {blocks(shape.n, kTile) * kTileSide, blocks(shape.m, kTile) * kTileSide, batch},
                  {kTileSide, kTileSide, 1}, stream_of(out));
  } else {
    device.launch(kernel, arguments, {static_cast<std::size_t>(shape.n), blocks(shape.m, kRowsOfAnItem), batch}, {64, 1, 1},
                  stream_of(out));
  }
}

/// Every second, third, ... row, column and batch of the result, in float64 on the CPU.
Tensor exact_sample(const Tensor& out, const Product& given, const SampleSteps& steps) {
  const auto take = [&](const Tensor& all, bool rows, bool columns) {
    Tensor some = all;
    if (rows) some = some.slice(-2, 0, some.size(-2), steps.row);
    if (columns) some = some.slice(-1, 0, some.size(-1), steps.column);
    return (some.dim() == 3 ? some.slice(0, 0, some.size(0), steps.batch) : some).cpu().to(at::kDouble);
  };
  Tensor exact = at::matmul(take(given.a, true, false), take(given.b, false, true)).mul_(given.alpha);
  if (given.c != nullptr && given.beta != 0) exact.add_(take(given.c->expand(out.sizes()), true, true), given.beta);
  return exact;
}

Precision precision_of(at::ScalarType type) {
  return type == at::kDouble     ? Precision::kFloat64
         : type == at::kHalf     ? Precision::kFloat16Op
         : type == at::kBFloat16 ? Precision::kBf16Op
                                 : Precision::kFloat32;
}

void launch_product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* c, double beta, double alpha) {
  ::ipexrun::xpu::Device& device = *unit_of(out).device;
  const std::int64_t m = a.size(-2), n = b.size(-1), k = a.size(-1), batch = out.dim() == 3 ? out.size(0) : 1;
  const Forms forms = forms_of(device, a, b, static_cast<std::size_t>(batch));
  const Form without_units = forms[forms[0] == Form::kMatrix ? 1 : 0];
  const Product given{a, b, c, beta, alpha};
  const auto compute = [&](int candidate, const Tensor& to) { launch_form(forms[candidate], without_units, to, given); };
  const auto truth = [&](const SampleSteps& steps) { return exact_sample(out, given, steps); };
  const KernelCall call{"products",
                        {bucket(batch), bucket(m), n, k, out.dim(), static_cast<std::int64_t>(a.scalar_type()),
                         static_cast<std::int64_t>(out.scalar_type()), layout_of(a), layout_of(b), c != nullptr && beta != 0,
                         out.stride(-1) == 1, static_cast<std::int64_t>(forms[0]), device.matrix_lanes(), out.device().index()},
                        forms.names(),
                        2.0 * static_cast<double>(batch * m) * static_cast<double>(n) * static_cast<double>(k),
                        compute,
                        truth,
                        precision_of(out.scalar_type())};
  if (const int candidate = choose_kernel(call, out); candidate >= 0) compute(candidate, out);
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
  Forms forms;
  forms.add(block_for(device, shape.m, shape.n, 1) == 128 ? Form::kBlocks128 : Form::kBlocks64);
  forms.add(Form::kBlocks64);
  if (shape.m > 64) forms.add(Form::kBlocks128);
  const auto compute = [&](int candidate, const Tensor& to) {
    const std::int64_t block = forms[candidate] == Form::kBlocks128 ? 128 : 64;
    Kernel& kernel =
        device.kernel("gemm",
                      std::string("-DT=") + kernel_type(to.scalar_type()) + (block == 64 ? " -DBLOCK=64" : "") +
                          " -DKERNEL_HEIGHT=" + std::to_string(kernel_height) + " -DKERNEL_WIDTH=" + std::to_string(kernel_width),
                      "gemm_blocks");
    const std::vector<Argument> arguments{Argument::memory(to.mutable_data_ptr()),
                                          Argument::memory(a.const_data_ptr()),
                                          Argument::memory(image.const_data_ptr()),
                                          Argument::memory(bias.defined() ? bias.const_data_ptr() : to.const_data_ptr()),
                                          Argument::value(shape),
                                          Argument::value(1.0F),
                                          Argument::value(bias.defined() ? 1.0F : 0.0F),
                                          Argument::value(window)};
    const auto side = static_cast<std::size_t>(block / 8);
    device.launch(kernel, arguments, {blocks(shape.n, block) * side, blocks(shape.m, block) * side, 1}, {side, side, 1}, stream_of(to));
  };
  KernelKind kind{1,
                  shape.m,
                  bucket(shape.n),
                  shape.k,
                  static_cast<std::int64_t>(out.scalar_type()),
                  bias.defined(),
                  kernel_height,
                  kernel_width,
                  static_cast<std::int64_t>(forms[0]),
                  out.device().index()};
  std::size_t at = 10;
  for (const std::int32_t* pair : {window.in, window.out, window.stride, window.padding, window.dilation})
    for (int d = 0; d < 2; ++d) kind[at++] = pair[d];
  const KernelCall call{"convolutions",
                        kind,
                        forms.names(),
                        2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k),
                        compute,
                        std::nullopt,  // either size of blocks adds up in the same order
                        precision_of(out.scalar_type())};
  if (const int candidate = choose_kernel(call, out); candidate >= 0) compute(candidate, out);
  return true;
}

void register_products() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  for (const char* name : {"mm.out", "addmm.out", "bmm.out", "baddbmm.out"})
    aten->impl(name, torch::CppFunction::makeFromBoxedFunction<&product>());
}

}  // namespace ipexrun::preload::xpu
