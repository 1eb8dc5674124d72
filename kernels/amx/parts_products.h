// Products of fp32 numbers in parts (parts.h): 32 rows of A, split before, by a panel's block of K, while the next block is split, a few
// pairs of rows between products, whose unit is another one. B is rows of K of 32 numbers each; a pair of a tile is a row of K and the 16th
// behind it, in A and B alike, since two vectors become pairs most cheaply that way. A is 16 rows x 32 numbers a step, three tiles of parts
// after each other. Internal linkage, see dispatch.h.
#pragma once

#include "kernels/amx/blocks.h"
#include "kernels/amx/parts.h"
#include "kernels/amx/rows.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

// By measurement, as parts of L2 and as what a block of K has (bench/parts.cpp): shorter blocks cost sums that are stored and loaded.
constexpr std::int64_t kLongStepsMost = 24;
constexpr std::int64_t kShortSteps = 6;                    // 36 KiB of A's parts for 32 rows
constexpr std::int64_t kATileBytes = kParts * kTileBytes;  // of 16 rows and a step
constexpr std::int64_t kBStepBytes = kParts * kStepBytes;
constexpr std::int64_t kPairRows = kStepK / 2;
constexpr std::int64_t kAheadBytes = 2048;  // of B, from what is split
constexpr std::int64_t kSlots = 6;          // between the products of a step

/// Splits a block of K of a panel, pair of rows by pair of rows.
class Splitter {
 public:
  Splitter() = default;
  /// `rows` rows of K, 32 columns each, from `from` on, zeros behind them, in `slots` calls of some().
  Splitter(const float* from, std::int64_t rows, std::int64_t steps, char* to, std::int64_t slots)
      : from_(from), to_(to), rows_(rows), left_(steps * kPairRows), rate_(ceil_div(left_ << 16, slots)) {}

  [[gnu::always_inline]] void some() {
    for (due_ += rate_; due_ >= 1 << 16; due_ -= 1 << 16) {
      if (left_ > 0) pair();
    }
  }

  /// The rest; true where parts can stand for all columns.
  bool finish() {
    while (left_ > 0) pair();
    return are_within(largest_[0], kLeastOfB) && are_within(largest_[1], kLeastOfB);
  }

 private:
  [[gnu::always_inline]] void pair() {
    alignas(64) static constexpr float kNone[kPanelColumns] = {};
    const float* first = row_ < rows_ ? from_ : kNone;
    const float* second = row_ + kPairRows < rows_ ? from_ + kPairRows * kPanelColumns : kNone;
    // In the order of memory, not of pairs: what fetches whole streams into L2 does not follow two places of a page that take turns.
    const char* ahead = reinterpret_cast<const char*>(from_ + row_ % kPairRows * kPanelColumns) + kAheadBytes;
    for (std::int64_t line = 0; line < 4; ++line) _mm_prefetch(ahead + line * 64, _MM_HINT_T0);
    split_pairs(_mm512_loadu_ps(first), _mm512_loadu_ps(second), to_, kStepBytes, &largest_[0]);
    split_pairs(_mm512_loadu_ps(first + 16), _mm512_loadu_ps(second + 16), to_ + kTileBytes, kStepBytes, &largest_[1]);
    --left_;
    ++row_;
    from_ += kPanelColumns;
    to_ += 64;
    if (row_ % kPairRows != 0) return;
    row_ += kPairRows;
    from_ += kPairRows * kPanelColumns;
    to_ += kBStepBytes - kTileBytes;
  }

  const float* from_ = nullptr;
  char* to_ = nullptr;
  std::int64_t rows_ = 0;  // of K
  std::int64_t row_ = 0;
  std::int64_t left_ = 0;
  std::int64_t rate_ = 0;  // pairs a slot, in 2^-16
  std::int64_t due_ = 0;
  __m512i largest_[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
};

/// One step of 32 rows x 32 columns, in all tile registers. Of a row of products, small ones first: high * low, high * middle, middle *
/// middle, middle * high, low * high, high * high; 14 loads for 24 products. Without kLower of the upper 16 rows alone.
template <bool kLower>
[[gnu::always_inline]] inline void multiply_step(const char* a0, const char* a1, const char* b, Splitter& splitter) {
  const auto by_b = [&](const char* columns) __attribute__((always_inline)) {
    tile_load<6>(columns, 64);
    tile_multiply<0, 4, 6>();
    if constexpr (kLower) tile_multiply<2, 5, 6>();
    tile_load<7>(columns + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    if constexpr (kLower) tile_multiply<3, 5, 7>();
    splitter.some();
  };
  const auto by_a = [&](std::int64_t part) __attribute__((always_inline)) {
    tile_load<4>(a0 + part * kTileBytes, 64);
    tile_multiply<0, 4, 6>();
    tile_multiply<1, 4, 7>();
    if constexpr (kLower) {
      tile_load<5>(a1 + part * kTileBytes, 64);
      tile_multiply<2, 5, 6>();
      tile_multiply<3, 5, 7>();
    }
    splitter.some();
  };
  tile_load<4>(a0, 64);
  if constexpr (kLower) tile_load<5>(a1, 64);
  by_b(b + 2 * kStepBytes);
  by_b(b + kStepBytes);
  by_a(1);
  by_b(b);
  by_a(2);
  by_a(0);
}

/// The same sums in the same order for 16 of the columns, in four tile registers: 13 loads for 12 products.
template <bool kLower>
[[gnu::always_inline]] inline void multiply_half_step(const char* a0, const char* a1, const char* b, Splitter& splitter) {
  const auto upper = [&](std::int64_t part) __attribute__((always_inline)) {
    tile_load<4>(a0 + part * kTileBytes, 64);
    tile_multiply<0, 4, 6>();
  };
  const auto lower = [&](std::int64_t part) __attribute__((always_inline)) {
    if constexpr (kLower) {
      tile_load<4>(a1 + part * kTileBytes, 64);
      tile_multiply<1, 4, 6>();
    }
  };
  tile_load<6>(b + 2 * kStepBytes, 64);
  upper(0);
  lower(0);
  splitter.some();
  tile_load<6>(b + kStepBytes, 64);
  if constexpr (kLower) tile_multiply<1, 4, 6>();
  upper(0);
  upper(1);
  lower(1);
  splitter.some();
  tile_load<6>(b, 64);
  if constexpr (kLower) tile_multiply<1, 4, 6>();
  upper(1);
  upper(2);
  lower(2);
  splitter.some();
  lower(0);
  upper(0);
}

/// 32 rows, or 16 without kLower, x 32 columns over `steps` steps of K; B is split and a part of `pending` written between products. Not
/// inlined, and with what it goes on with in locals: the loops want all registers, and what is in memory is read again after each tile.
template <bool kEpilogue, bool kLower>
[[gnu::noinline]] void multiply_by_parts(const char* a0, const char* a1, const char* b, std::int64_t steps, const Quad& from,
                                         const Quad& to, Splitter* splits, Pending pending) {
  Splitter splitter = *splits;
  const std::int64_t rows = ceil_div(pending.rows, steps);
  tile_load<0>(from.at, from.line);
  tile_load<1>(from.at + from.right, from.line);
  if constexpr (kLower) tile_load<2>(from.at + from.down, from.line);
  if constexpr (kLower) tile_load<3>(from.at + from.down + from.right, from.line);
  for (std::int64_t s = 0; s < steps; ++s, a0 += kATileBytes, a1 += kATileBytes, b += kBStepBytes) {
    multiply_step<kLower>(a0, a1, b, splitter);
    if (pending.rows > 0) drain<kEpilogue>(pending, rows);
  }
  tile_store<0>(to.at, to.line);
  tile_store<1>(to.at + to.right, to.line);
  if constexpr (kLower) tile_store<2>(to.at + to.down, to.line);
  if constexpr (kLower) tile_store<3>(to.at + to.down + to.right, to.line);
  *splits = splitter;
}

/// The same on a core that is shared (shared_core.h). Columns 0-15 and the others take turns for kShortSteps steps, so that A, read for
/// both, comes from L1.
template <bool kEpilogue, bool kLower>
[[gnu::noinline]] void multiply_halves_by_parts(const char* a0, const char* a1, const char* b, std::int64_t steps, const Quad& from,
                                                const Quad& to, Splitter* splits, Pending pending) {
  Splitter splitter = *splits;
  const std::int64_t rows = ceil_div(pending.rows, 2 * steps);
  for (std::int64_t first = 0; first < steps; first += kShortSteps) {
    const std::int64_t end = at_most(first + kShortSteps, steps);
    for (std::int64_t half = 0; half < 2; ++half) {
      const Quad& start = first == 0 ? from : to;
      tile_load<0>(start.at + half * start.right, start.line);
      if constexpr (kLower) tile_load<1>(start.at + half * start.right + start.down, start.line);
      for (std::int64_t s = first; s < end; ++s) {
        multiply_half_step<kLower>(a0 + s * kATileBytes, a1 + s * kATileBytes, b + s * kBStepBytes + half * kTileBytes, splitter);
        if (pending.rows > 0) drain<kEpilogue>(pending, rows);
      }
      tile_store<0>(to.at + half * to.right, to.line);
      if constexpr (kLower) tile_store<1>(to.at + half * to.right + to.down, to.line);
    }
  }
  *splits = splitter;
}

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
