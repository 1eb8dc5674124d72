// scaled_dot_product_attention: one kernel on devices whose items are lanes, where no gradient is recorded (attention.cl); else two
// products and a softmax, whose parts autograd keeps.
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

struct Attention {  // attention.cl
  std::int32_t heads, shared, queries, keys, width, value_width, causal, unused;
  std::int64_t q[3], k[3], v[3], out[3], mask[4];
};

constexpr std::int64_t kFewQueries = 16;  ///< below, most of a group's rows would be empty (assumed)
constexpr std::int64_t kWidest = 128;
constexpr std::size_t kLocalBytes = 44 * 1024;  ///< of a group, at most

bool records_gradients(const Tensor& tensor) {
  return tensor.defined() && ((at::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(0).defined());
}
Tensor side_by_side(const Tensor& tensor) { return tensor.stride(-1) == 1 || tensor.size(-1) == 1 ? tensor : tensor.contiguous(); }
void head_strides(const Tensor& tensor, std::int64_t* out) {
  for (int d = 0; d < 3; ++d) out[d] = tensor.stride(d);
}

/// False: nothing was done.
bool in_one_kernel(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, bool causal,
                   std::optional<double> scale, bool grouped, Tensor& out) {
  if (!is_real(query) || wide(query) || query.dim() != 4 || !unit_of(query).device->facts().lanes ||
      unit_of(query).device->facts().local_bytes < kLocalBytes)
    return false;
  for (const Tensor& one : {key, value})
    if (!plain(one) || one.dim() != 4 || one.scalar_type() != query.scalar_type() || one.device() != query.device() ||
        one.size(0) != query.size(0) || one.size(1) != key.size(1) || one.size(2) != key.size(2))
      return false;
  const std::int64_t batch = query.size(0), heads = query.size(1), of_keys = key.size(1), queries = query.size(2), keys = key.size(2);
  if (key.size(3) != query.size(3) || query.size(3) > kWidest || value.size(3) > kWidest || queries < kFewQueries || query.numel() == 0 ||
      key.numel() == 0 || value.numel() == 0 || (heads != of_keys && (!grouped || heads % of_keys != 0)))
    return false;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() / 2;  // what kernels count in 32 bits
  if (queries > kMost || keys > kMost || batch * heads > kMost) return false;
  const Tensor q = side_by_side(query), k = side_by_side(key), v = side_by_side(value);
  Attention shape{static_cast<std::int32_t>(heads),
                  static_cast<std::int32_t>(heads / of_keys),
                  static_cast<std::int32_t>(queries),
                  static_cast<std::int32_t>(keys),
                  static_cast<std::int32_t>(query.size(3)),
                  static_cast<std::int32_t>(value.size(3)),
                  causal,
                  0,
                  {},
                  {},
                  {},
                  {},
                  {}};
  const std::int64_t head = (std::max(query.size(3), value.size(3)) + 31) / 32 * 32;
  std::string options = std::string("-DT=") + kernel_type(query.scalar_type()) + " -DHEAD=" + std::to_string(head);
  Tensor wide_mask = q;
  if (mask.defined()) {
    if (causal || !plain(mask) || mask.device() != query.device() || mask.dim() > 4 ||
        (mask.scalar_type() != at::kBool && mask.scalar_type() != query.scalar_type()))
      return false;
    wide_mask = mask.expand({batch, heads, queries, keys});
    for (int d = 0; d < 4; ++d) shape.mask[d] = wide_mask.stride(d);
    options += std::string(" -DMASK=") + kernel_type(mask.scalar_type()) + (mask.scalar_type() == at::kBool ? " -DCHOOSES" : "");
  }
  ::ipexrun::xpu::Device& device = *unit_of(query).device;
  Kernel& kernel = device.kernel("attention", options, "attention");
  out = at::empty({batch, heads, queries, value.size(3)}, query.options());
  head_strides(q, shape.q);
  head_strides(k, shape.k);
  head_strides(v, shape.v);
  head_strides(out, shape.out);
  const auto by = static_cast<float>(scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3)))));
  const std::int64_t rows = head <= 64 ? 64 : 32;  // QUERIES
  const std::vector<Argument> arguments{write(out),         read(q), read(k), read(v), read(wide_mask), Argument::value(shape),
                                        Argument::value(by)};
  device.launch(kernel, arguments,
                {static_cast<std::size_t>((queries + rows - 1) / rows) * 8, static_cast<std::size_t>(batch * heads) * 8, 1}, {8, 8, 1},
                stream_of(query));
  return true;
}

// torch's own choice asks a table without a slot for xpu; the sum of products is right everywhere.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask, double dropout, bool causal,
                 std::optional<double> scale, bool grouped) {
  const Tensor given = mask.value_or(Tensor());
  if (dropout == 0 && !records_gradients(query) && !records_gradients(key) && !records_gradients(value) && !records_gradients(given)) {
    try {
      Tensor out;
      if (in_one_kernel(query, key, value, given, causal, scale, grouped, out)) return out;
    } catch (const ::ipexrun::xpu::DeviceError& problem) {
      no_kernel("aten::scaled_dot_product_attention", problem.what(), "is made of products and a softmax");
    }
  }
  // With a mask of bool that function gives rows without any key their values' mean; torch adds a mask of numbers, and such rows are 0.
  OptionalTensor added = mask;
  if (given.defined() && given.scalar_type() == at::kBool)
    added = at::zeros(given.sizes(), query.options()).masked_fill_(given.logical_not(), -std::numeric_limits<double>::infinity());
  return std::get<0>(at::_scaled_dot_product_attention_math(query, key, value, added, dropout, causal, std::nullopt, scale, grouped));
}

}  // namespace

void register_attention() {
  for (const c10::DispatchKey key : {c10::DispatchKey::XPU, c10::DispatchKey::AutogradXPU}) {
    auto* aten = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);  // for good
    aten->impl("scaled_dot_product_attention", &attention);
  }
}

}  // namespace ipexrun::preload::xpu
