#include "preload/plugin/graph/embedding_step.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "preload/plugin/answer.h"
#include "preload/plugin/graph/view_step.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"

namespace ipexrun::preload::graph {
namespace {

constexpr std::int64_t kLeastBytes = std::int64_t{16} << 10;  ///< that a worker is woken for
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kAheadBytes = 1024;  ///< of the row after this one: what follows the core fetches by itself

struct Rows {
  const char* table;
  std::int64_t stride;  ///< bytes
  std::int64_t bytes;   ///< of a row
  const std::int64_t* indices;
  std::int64_t count;
  std::int64_t parts;
  char* to;
};

void copy_part(void* arg, int part) {
  const Rows& rows = *static_cast<const Rows*>(arg);
  const std::int64_t end = rows.count * (part + 1) / rows.parts;
  for (std::int64_t i = rows.count * part / rows.parts; i < end; ++i) {
    if (i + 1 < end) {
      const char* next = rows.table + rows.indices[i + 1] * rows.stride;
      for (std::int64_t at = 0; at < std::min(rows.bytes, kAheadBytes); at += kLine) __builtin_prefetch(next + at);
    }
    std::memcpy(rows.to + i * rows.bytes, rows.table + rows.indices[i] * rows.stride, static_cast<std::size_t>(rows.bytes));
  }
}

class EmbeddingStep final : public Step {
 public:
  explicit EmbeddingStep(const Node& node)
      : stock_(make_operator_step(node)), table_(node.arguments[0].value), indices_(node.arguments[1].value), to_(node.outputs[0]) {}

  void run(Values& values) const override {
    at::Tensor made = rows_of(values[static_cast<std::size_t>(table_)], values[static_cast<std::size_t>(indices_)]);
    if (made.defined()) {
      values[static_cast<std::size_t>(to_)] = std::move(made);
    } else {
      stock_->run(values);
    }
  }

 private:
  static at::Tensor rows_of(const c10::IValue& table_value, const c10::IValue& indices_value) {
    if (!table_value.isTensor() || !indices_value.isTensor() || !allowed_here()) return {};
    const at::Tensor& table = table_value.toTensor();
    const at::Tensor& indices = indices_value.toTensor();
    if (!plain(table) || !plain(indices) || table.dim() != 2 || table.stride(1) != 1 || table.size(1) == 0 || indices.numel() == 0)
      return {};
    if (indices.scalar_type() != at::kLong || !indices.is_contiguous()) return {};
    const auto* numbers = static_cast<const std::int64_t*>(indices.const_data_ptr());
    const std::int64_t count = indices.numel();
    const std::int64_t last = table.size(0);
    if (!std::all_of(numbers, numbers + count, [&](std::int64_t at) { return at >= 0 && at < last; })) return {};
    Sizes sizes(indices.sizes().begin(), indices.sizes().end());
    sizes.push_back(table.size(1));
    at::Tensor result = scratch_empty(sizes, table.scalar_type());
    const auto element = static_cast<std::int64_t>(table.element_size());
    Rows rows{static_cast<const char*>(table.const_data_ptr()), table.stride(0) * element, table.size(1) * element, numbers, count, 1,
              static_cast<char*>(result.mutable_data_ptr())};
    // After a fork workers may be gone, and torch's own would need none for so few rows.
    const TierState* state = tier();
    const kernels::Parallel pool = state == nullptr || state->weights.read_only() ? kernels::Parallel() : torch_pool();
    rows.parts = std::clamp<std::int64_t>(rows.bytes * count / kLeastBytes, 1, std::min<std::int64_t>(pool.threads, count));
    pool(static_cast<int>(rows.parts), copy_part, &rows);
    return result;
  }

  std::unique_ptr<Step> stock_;
  Value table_;
  Value indices_;
  Value to_;
};

}  // namespace

std::unique_ptr<Step> make_embedding_step(const Node& node) {
  if (!node.is("embedding", "") || node.arguments.size() < 2) return nullptr;
  for (std::size_t i = 0; i < 2; ++i) {
    if (node.arguments[i].kind != Argument::Kind::kValue || node.arguments[i].value == kNone) return nullptr;
  }
  return std::make_unique<EmbeddingStep>(node);
}

}  // namespace ipexrun::preload::graph
