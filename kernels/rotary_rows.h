// The rows of a call of rotary, one after the other. Internal linkage, see packed.h.
#pragma once

#include <cstdint>

#include "kernels/rotary.h"

namespace ipexrun::kernels {
namespace {

/// Batch after batch, in it position after position of each head, or head after head of each position.
class RotaryRows {
 public:
  RotaryRows(const RotaryArgs& args, bool heads_outside, std::int64_t index)
      : args_(args),
        inner_(heads_outside ? args.positions : args.heads),
        outer_(heads_outside ? args.heads : args.positions),
        heads_outside_(heads_outside),
        i_(index % inner_),
        o_(index / inner_ % outer_),
        batch_(index / (inner_ * outer_)) {}

  void next() {
    if (++i_ < inner_) return;
    i_ = 0;
    if (++o_ < outer_) return;
    o_ = 0;
    ++batch_;
  }

  /// Where the row begins, in elements.
  [[nodiscard]] std::int64_t from() const { return place(args_.from_strides); }
  [[nodiscard]] std::int64_t to() const { return place(args_.to_strides); }
  [[nodiscard]] std::int64_t table() const { return batch_ * args_.table_batch_stride + position() * args_.table_position_stride; }

 private:
  [[nodiscard]] std::int64_t position() const { return heads_outside_ ? i_ : o_; }
  [[nodiscard]] std::int64_t place(const RotaryStrides& strides) const {
    const std::int64_t head = heads_outside_ ? o_ : i_;
    return batch_ * strides.batch + position() * strides.position + head * strides.head;
  }

  const RotaryArgs& args_;
  std::int64_t inner_;
  std::int64_t outer_;
  bool heads_outside_;
  std::int64_t i_;
  std::int64_t o_;
  std::int64_t batch_;
};

}  // namespace
}  // namespace ipexrun::kernels
