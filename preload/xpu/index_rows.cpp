#include "preload/xpu/index_rows.h"

#include <ATen/ops/empty.h>

#include "preload/xpu/index_check.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

/// Rows move in pieces of up to 16 bytes, or 8 where a CPU takes vectors of 16 of them: how many bytes a piece has.
std::size_t piece_bytes(const Tensor& a, const Tensor& b, std::int64_t inner) {
  std::size_t bytes = a.element_size();
  const std::size_t row = bytes * static_cast<std::size_t>(inner), most = one_item_a_row(a) && row >= 128 ? 8 : 16;
  const auto from = reinterpret_cast<std::uintptr_t>(a.const_data_ptr()) | reinterpret_cast<std::uintptr_t>(b.const_data_ptr());
  while (bytes < most && row % (2 * bytes) == 0 && from % (2 * bytes) == 0) bytes *= 2;
  return bytes;
}
Kernel& raw_kernel(const Tensor& on, std::size_t bytes, std::int64_t n, const char* name) {
  return unit_of(on).device->kernel("index", std::string("-DRAW=") + raw_type(bytes) + index_option(n), name);
}
/// Whether a row of so many pieces fills vectors of a CPU.
bool fills_vectors(const Tensor& on, std::size_t bytes, std::int64_t inner) { return one_item_a_row(on) && bytes <= 8 && inner >= 16; }
/// Kernels whose items take up to 1024 pieces of a row (ROW_PART of index.cl).
void launch_rows(const Tensor& on, Kernel& kernel, const std::vector<Argument>& arguments, std::int64_t inner, std::int64_t rows) {
  unit_of(on).device->launch(kernel, arguments, {static_cast<std::size_t>((inner + 1023) / 1024), static_cast<std::size_t>(rows), 1},
                             {1, 8, 1}, stream_of(on));
}

}  // namespace

Tensor as_index(const Tensor& index) { return index.to(at::kLong).contiguous(); }

void select_rows(const Tensor& out, const Tensor& in, const Tensor& index, RowsOf rows) {
  if (out.numel() == 0) return;
  const std::size_t bytes = piece_bytes(out, in, rows.inner);
  const auto inner = rows.inner * static_cast<std::int64_t>(out.element_size()) / static_cast<std::int64_t>(bytes);
  const std::int64_t lines = rows.outer * index.numel(), n = lines * inner;
  if (fills_vectors(out, bytes, inner))
    return launch_rows(out, raw_kernel(out, bytes, n, "select_whole_rows"),
                       {write(out), read(in), read(index), index_mark(out), count(inner), count(index.numel()), count(rows.size),
                        count(rows.least()), count(lines)},
                       inner, lines);
  launch_linear(out, raw_kernel(out, bytes, n, "select_rows"),
                {write(out), read(in), read(index), index_mark(out), count(inner), count(index.numel()), count(rows.size),
                 count(rows.least()), count(n)},
                n);
}

void put_rows(const Tensor& out, const Tensor& values, const Tensor& index, RowsOf rows) {
  if (index.numel() == 0 || out.numel() == 0) return;
  const bool single = values.numel() == 1;
  const std::size_t bytes = single ? out.element_size() : piece_bytes(out, values, rows.inner);
  const auto inner = rows.inner * static_cast<std::int64_t>(out.element_size()) / static_cast<std::int64_t>(bytes);
  const std::int64_t lines = rows.outer * index.numel(), n = lines * inner;
  if (!single && fills_vectors(out, bytes, inner))
    return launch_rows(out, raw_kernel(out, bytes, n, "put_whole_rows"),
                       {write(out), read(values), read(index), index_mark(out), count(inner), count(index.numel()), count(rows.size),
                        count(rows.least()), count(lines)},
                       inner, lines);
  launch_linear(out, raw_kernel(out, bytes, n, "put_rows"),
                {write(out), read(values), read(index), index_mark(out), count(inner), count(index.numel()), count(rows.size),
                 count(rows.least()), flag(single), count(n)},
                n);
}

bool adds(const Tensor& tensor) { return is_real(tensor) || (plain(tensor) && tensor.scalar_type() == at::kLong); }

void add_rows(const Tensor& out, const Tensor& in, const Tensor& index, RowsOf rows, double scale, std::int64_t skipped) {
  if (in.numel() == 0 || out.numel() == 0) return;
  const std::int64_t many = index.numel();
  TORCH_CHECK(many < std::numeric_limits<std::int32_t>::max(), "sums over more than 2^31 indices on xpu");
  const auto ints = at::TensorOptions().device(out.device()).dtype(at::kInt);
  const Tensor head = at::empty({rows.size}, ints).fill_(-1), next = at::empty({many}, ints);
  launch_linear(
      out, raw_kernel(out, 4, many, "link"),
      {write(head), write(next), read(index), index_mark(out), count(rows.size), count(rows.least()), count(skipped), count(many)}, many);
  const std::int64_t n = rows.outer * many * rows.inner;
  const bool whole = out.scalar_type() == at::kLong;
  const std::string options = (whole ? std::string("-DT=long -DX=long") : real_options(out)) + index_option(n);
  launch_linear(out, unit_of(out).device->kernel("index", options, "add_lists"),
                {write(out), read(in), read(head), read(next), read(index), count(rows.inner), count(many), count(rows.size),
                 whole ? count(static_cast<std::int64_t>(scale)) : number(out, scale), count(n)},
                n);
}

}  // namespace ipexrun::preload::xpu
