// linear_f32 on AMX: fp32 numbers as three bf16 parts each (parts.h), of whose nine products the six that matter are added up in fp32.
//
// Method: Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations" (ARITH 2019).
// The three products that are left out are below 2^-24 of theirs, of any sign, and tiles add 32 products up before these meet the sum:
// errors are 0.4 to 1.4 of those of vectors. What bounds it is the unit that multiplies: 2.7 times as much as the same core's vectors can.
//
// Loops, outermost first: blocks of rows, chunks of panels, blocks of K (A's parts stay in L2), panels, strips of 32 rows. While a panel's
// block is multiplied (parts_products.h), the next one is split, and finished sums are written. Rows of A that parts cannot stand for take
// their block of rows to the vectors' kernel, columns of B their panel; each block of K is asked.
#include "kernels/amx/linear_f32.h"

#include "kernels/amx/parts_products.h"
#include "kernels/simd/linear_f32.h"
#include "kernels/simd/windows.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kHeadBytes = 64;   // of scratch
constexpr std::int64_t kChunkMost = 128;  // panels

/// What a worker keeps in front of its rows of A from one block to the next.
struct Head {
  bool refused;  // parts cannot stand for them
};

struct PartsPlan {
  std::int64_t steps;
  std::int64_t k_blocks;
  std::int64_t block_steps;  // of the longest
  std::int64_t row_block;
  std::int64_t chunk;  // panels
  std::int64_t a_bytes;
  std::int64_t b_bytes;  // of one of two
  std::int64_t sums_bytes;

  [[nodiscard]] std::int64_t step_of(std::int64_t k_block) const { return steps * k_block / k_blocks; }
};

PartsPlan parts_plan(const LinearF32Args& args, const LinearBlock& block) {
  PartsPlan plan{};
  const std::int64_t rows = block.row_end - block.row_begin;
  const std::int64_t panels = block.panel_end - block.panel_begin;
  plan.steps = steps_of(args.k);
  plan.k_blocks = ceil_div(plan.steps, kLongStepsMost);
  plan.block_steps = ceil_div(plan.steps, plan.k_blocks);
  const std::int64_t row_bytes = plan.block_steps * kATileBytes / 16;
  const std::int64_t rows_most = at_least(block.l2_bytes * 2 / 5 / row_bytes / kStripRows * kStripRows, kStripRows);
  plan.row_block = ceil_div(equal_pieces(rows, rows_most), kStripRows) * kStripRows;
  const std::int64_t sums = plan.row_block * kPanelColumns * 4;
  const std::int64_t sums_most = at_least(block.l2_bytes * 3 / 10 / sums, 2);
  plan.chunk = equal_pieces(panels, plan.k_blocks == 1 ? kChunkMost : at_most(sums_most, kChunkMost));
  plan.a_bytes = plan.row_block * row_bytes;
  plan.b_bytes = plan.block_steps * kBStepBytes;
  plan.sums_bytes = plan.k_blocks == 1 ? 0 : sums * plan.chunk;
  return plan;
}

/// A row's numbers of `steps` steps, zeros behind the first `valid`, into lines of tiles. False where parts cannot stand for them.
bool split_row(const float* from, std::int64_t valid, std::int64_t steps, char* to) {
  __m512i largest = _mm512_setzero_si512();
  for (std::int64_t s = 0; s < steps; ++s, from += kStepK, valid -= kStepK, to += kATileBytes) {
    const __m512 first = valid >= 16 ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(mask16(valid), from);
    const __m512 second = valid >= 32 ? _mm512_loadu_ps(from + 16) : _mm512_maskz_loadu_ps(mask16(valid - 16), from + 16);
    split_pairs(first, second, to, kTileBytes, &largest);
  }
  return is_within(_mm512_reduce_max_epu32(largest), kLeastOfA);
}

/// The part of a row of windows from `first` to `end`, in a line.
void gather_row(const LinearF32Args& args, const WindowAt& at, std::int64_t first, std::int64_t end, float* to) {
  const float* images = static_cast<const float*>(args.a);
  for_pieces_of_window(*args.windows, at, [&](std::int64_t from, std::int64_t count, std::int64_t k) {
    const std::int64_t before = k < first ? first - k : 0;
    const std::int64_t here = at_most(k + count, end) - k - before;
    if (here <= 0) return;
    float* there = to + k + before - first;
    const float* numbers = from < 0 ? nullptr : images + from + before;
    for (std::int64_t i = 0; i < here; i += 16) {
      const __mmask16 mask = mask16(here - i);
      _mm512_mask_storeu_ps(there + i, mask, numbers == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, numbers + i));
    }
  });
}

template <bool kEpilogue>
class Product {
 public:
  Product(const LinearF32Args& args, const LinearBlock& block, void* scratch)
      : args_(args),
        block_(block),
        plan_(parts_plan(args, block)),
        head_(static_cast<Head*>(scratch)),
        a_(static_cast<char*>(scratch) + kHeadBytes),
        b_(a_ + plan_.a_bytes),
        sums_(b_ + 2 * plan_.b_bytes),
        stage_(sums_ + plan_.sums_bytes),
        spare_(stage_ + 2 * kBlockBytes) {}

  void run() {
    shared_ = core_is_shared();
    tile_configure(config_for(16));
    Item now{block_.row_begin, rows_at(block_.row_begin), block_.panel_begin, chunk_end(block_.panel_begin), block_.panel_begin, 0};
    bool fits = split_all(now);
    while (now.rows > 0) {
      if (now.panel == now.first && !split_a(now)) {
        by_vectors(now.row, now.rows, block_.panel_begin, block_.panel_end);
        now = below(now);
        if (now.rows > 0) fits = split_all(now);
        continue;
      }
      if (!fits) refused_[now.panel - now.first] = true;
      fits = run_item(now, after(now));
      now = after(now);
    }
    drain<kEpilogue>(pending_, pending_.rows);
    tile_release();
  }

 private:
  /// A block of K of a panel, for a block of rows.
  struct Item {
    std::int64_t row;
    std::int64_t rows;   // none: there is no more
    std::int64_t first;  // panel of the chunk
    std::int64_t end;
    std::int64_t panel;
    std::int64_t k_block;
  };

  [[nodiscard]] std::int64_t rows_at(std::int64_t row) const { return at_most(block_.row_end - row, plan_.row_block); }
  [[nodiscard]] std::int64_t chunk_end(std::int64_t panel) const { return at_most(panel + plan_.chunk, block_.panel_end); }

  [[nodiscard]] Item below(const Item& now) const {
    const std::int64_t row = now.row + now.rows;
    return {row, rows_at(row), block_.panel_begin, chunk_end(block_.panel_begin), block_.panel_begin, 0};
  }

  [[nodiscard]] Item after(const Item& now) const {
    Item next = now;
    if (++next.panel < now.end) return next;
    next.panel = now.first;
    if (++next.k_block < plan_.k_blocks) return next;
    if (now.end >= block_.panel_end) return below(now);
    return {now.row, now.rows, now.end, chunk_end(now.end), now.end, 0};
  }

  [[nodiscard]] Splitter splitter(const Item& item, std::int64_t slots) {
    const std::int64_t step = plan_.step_of(item.k_block);
    const float* from = static_cast<const float*>(args_.packed_b) + (item.panel * args_.k + step * kStepK) * kPanelColumns;
    return {from, args_.k - step * kStepK, plan_.step_of(item.k_block + 1) - step, b_ + turn_ * plan_.b_bytes, slots};
  }

  bool split_all(const Item& item) {
    turn_ ^= 1;
    return splitter(item, 1).finish();
  }

  /// Rows of A for a block of K, unless they are there. False where parts cannot stand for them; nothing was written of them then.
  bool split_a(const Item& now) {
    const bool all_rows = now.rows == block_.row_end - block_.row_begin;
    if (now.k_block == 0) __builtin_memset(refused_, 0, sizeof refused_);
    if (plan_.k_blocks == 1 && now.first > block_.panel_begin) return true;
    if (plan_.k_blocks == 1 && block_.same_rows && all_rows) return !head_->refused;
    const std::int64_t first = plan_.step_of(now.k_block);
    const std::int64_t steps = plan_.step_of(now.k_block + 1) - first;
    const std::int64_t valid = at_most(args_.k - first * kStepK, steps * kStepK);
    const std::int64_t padded = ceil_div(now.rows, 16) * 16;
    const bool windows = args_.windows != nullptr;
    WindowAt at(windows ? *args_.windows : ImageWindows{.out = {1, 1}}, windows ? now.row : 0);
    bool fits = true;
    alignas(64) float line[kLongStepsMost * kStepK];
    for (std::int64_t r = 0; r < padded; ++r) {
      char* to = a_ + r / 16 * plan_.block_steps * kATileBytes + r % 16 * 64;
      if (r >= now.rows) {
        split_row(line, 0, steps, to);
        continue;
      }
      const float* from = static_cast<const float*>(args_.a) + (now.row + r) * args_.lda + first * kStepK;
      if (windows) {
        gather_row(args_, at, first * kStepK, first * kStepK + valid, line);
        at.next(*args_.windows);
        from = line;
      }
      fits = split_row(from, valid, steps, to) && fits;
    }
    head_->refused = !fits;
    return fits;
  }

  void multiply(bool lower, const char* a0, const char* a1, const char* b, std::int64_t steps, const Quad& from, const Quad& to,
                Splitter* splits) const {
    if (shared_) {
      lower ? multiply_halves_by_parts<kEpilogue, true>(a0, a1, b, steps, from, to, splits, pending_)
            : multiply_halves_by_parts<kEpilogue, false>(a0, a1, b, steps, from, to, splits, pending_);
    } else {
      lower ? multiply_by_parts<kEpilogue, true>(a0, a1, b, steps, from, to, splits, pending_)
            : multiply_by_parts<kEpilogue, false>(a0, a1, b, steps, from, to, splits, pending_);
    }
  }

  [[nodiscard]] char* sums(const Item& now, std::int64_t row) const {
    return sums_ + ((now.panel - now.first) * (plan_.row_block / kStripRows) + row / kStripRows) * kBlockBytes;
  }

  /// Multiplies `now`, whose parts of B are there, and splits those of `next`; true where parts can stand for these.
  bool run_item(const Item& now, const Item& next) {
    const std::int64_t steps = plan_.step_of(now.k_block + 1) - plan_.step_of(now.k_block);
    const std::int64_t group_bytes = plan_.block_steps * kATileBytes;
    const bool last = now.k_block + 1 == plan_.k_blocks;
    const char* b = b_ + turn_ * plan_.b_bytes;
    turn_ ^= 1;
    Splitter splits = next.rows > 0 ? splitter(next, ceil_div(now.rows, kStripRows) * steps * kSlots) : Splitter();
    if (refused_[now.panel - now.first]) {
      if (last) by_vectors(now.row, now.rows, now.panel, now.panel + 1);
      return splits.finish();
    }
    if (now.k_block == 0) load_bias(now.panel);
    for (std::int64_t r = 0; r < now.rows; r += kStripRows) {
      const std::int64_t here = at_most(now.rows - r, kStripRows);
      const char* a = a_ + r / 16 * group_bytes;
      const Quad from = now.k_block == 0 ? in_start(reinterpret_cast<char*>(bias_)) : in_rows(sums(now, r), 128);
      const bool direct = last && !kEpilogue && here == kStripRows && (now.panel + 1) * kPanelColumns <= args_.n;
      char* const c = reinterpret_cast<char*>(static_cast<float*>(args_.c) + (now.row + r) * args_.ldc + now.panel * kPanelColumns);
      const Quad to = direct ? in_rows(c, args_.ldc * 4) : in_rows(last ? stage_ + stage_turn_ * kBlockBytes : sums(now, r), 128);
      multiply(here > 16, a, a + group_bytes, b, steps, from, to, &splits);
      pending_.rows = 0;
      if (last && !direct) {
        const std::int64_t column = now.panel * kPanelColumns;
        pending_ = {to.at, c, args_.ldc * 4, here, mask32(args_.n - column), DType::kF32, &args_.epilogue, now.row + r, column, nullptr};
        stage_turn_ ^= 1;
      }
    }
    return splits.finish();
  }

  void load_bias(std::int64_t panel) {
    LinearArgs of;
    of.n = args_.n;
    of.bias = args_.bias;
    of.bias_dtype = DType::kF32;
    amx::load_bias(of, panel, bias_);
  }

  void by_vectors(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t end) {
    LinearBlock block = block_;
    block.row_begin = row;
    block.row_end = row + rows;
    block.panel_begin = first;
    block.panel_end = end;
    block.same_rows = false;
    avx512::linear_f32(args_, block, spare_);
  }

  const LinearF32Args& args_;
  const LinearBlock& block_;
  PartsPlan plan_;
  Head* head_;
  char* a_;
  char* b_;
  char* sums_;
  char* stage_;
  char* spare_;          // of the vectors' kernel
  bool shared_ = false;  // the core
  std::int64_t turn_ = 0;
  std::int64_t stage_turn_ = 0;
  Pending pending_{};
  bool refused_[kChunkMost] = {};  // panels of a chunk
  alignas(64) float bias_[kPanelColumns];
};

}  // namespace

std::size_t linear_f32_scratch_bytes(const LinearF32Args& args, const LinearBlock& block) {
  const PartsPlan plan = parts_plan(args, block);
  const auto by_vectors = [&](std::int64_t rows) {
    LinearBlock part = block;
    part.row_end = block.row_begin + rows;
    return static_cast<std::int64_t>(avx512::linear_f32_scratch_bytes(args, part));
  };
  // Vectors may want more for the last block of rows than for longer ones.
  const std::int64_t rows = block.row_end - block.row_begin;
  const std::int64_t vectors = at_least(by_vectors(at_most(rows, plan.row_block)), by_vectors((rows - 1) % plan.row_block + 1));
  return static_cast<std::size_t>(kHeadBytes + plan.a_bytes + 2 * plan.b_bytes + plan.sums_bytes + 2 * kBlockBytes + vectors);
}

void linear_f32(const LinearF32Args& args, const LinearBlock& block, void* scratch) {
  if (args.epilogue.any()) {
    Product<true>(args, block, scratch).run();
  } else {
    Product<false>(args, block, scratch).run();
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
