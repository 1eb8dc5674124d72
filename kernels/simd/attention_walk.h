// Where a worker is, and what it fetches ahead of its next units. Include after attention_load.h and where kTileRows is known.
#pragma once

#include <cstdint>

#include "kernels/dispatch.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

/// The place of a block of rows and a block of keys in a head.
struct Block {
  std::int64_t row;  ///< the first
  std::int64_t rows;
  std::int64_t key;
  std::int64_t keys;
  bool causal;

  /// Keys of the block that row r of it sees, and that a tile of rows walks.
  [[nodiscard]] std::int64_t seen_by(std::int64_t r) const {
    if (!causal) return keys;
    const std::int64_t n = row + r + 1 - key;
    return n < 0 ? 0 : least(n, keys);
  }
  [[nodiscard]] std::int64_t walked_by(std::int64_t r) const { return seen_by(least(r - r % kTileRows + kTileRows, rows) - 1); }
};

/// Rows of K, V and Q that the next units want: fetched into L2 a little at a time, for no prefetcher of the CPU sees rows that lie
/// kilobytes apart coming.
template <typename Element>
class Ahead {
 public:
  /// While `unit` runs, which calls fetch() so often; nothing from `end` on is wanted.
  void plan(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t unit, std::int64_t end, std::int64_t calls) {
    const std::int64_t number = unit / plan.blocks;
    bytes_ = args.depth * static_cast<std::int64_t>(sizeof(Element));
    for (Rows& rows : rows_) rows.left = 0;
    if (plan.resident && (number + 1) * plan.blocks < end) {  // each unit of this head a part of the next one's keys
      const Head next(args, number + 1);
      const std::int64_t block = unit % plan.blocks;
      const std::int64_t first = args.keys * block / plan.blocks;
      const std::int64_t count = next.kv_head == Head(args, number).kv_head ? 0 : args.keys * (block + 1) / plan.blocks - first;
      rows_[0] = {k_row<Element>(args, next, first), args.k.row_stride, count, 0};
      rows_[1] = {v_row<Element>(args, next, first), args.v.row_stride, count, 0};
    }
    if (unit + 1 < end) {
      const std::int64_t row = (unit + 1) % plan.blocks * plan.row_block;
      rows_[2] = {q_row<Element>(args, Head(args, (unit + 1) / plan.blocks), row), args.q.row_stride,
                  least(plan.row_block, args.rows - row), 0};
    }
    for (Rows& rows : rows_) rows.at_once = (rows.left + calls - 1) / calls;
  }

  void fetch() {
    for (Rows& rows : rows_) {
      for (std::int64_t i = least(rows.at_once, rows.left); i > 0; --i) {
        const char* at = reinterpret_cast<const char*>(rows.next);
        for (std::int64_t byte = 0; byte < bytes_; byte += 64) __builtin_prefetch(at + byte, 0, 2);
        rows.next += rows.stride;
        --rows.left;
      }
    }
  }

 private:
  struct Rows {
    const Element* next = nullptr;
    std::int64_t stride = 0;
    std::int64_t left = 0;
    std::int64_t at_once = 0;
  };
  Rows rows_[3];
  std::int64_t bytes_ = 0;
};

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
