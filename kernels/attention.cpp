// Cuts a call into units, shares them among the workers and gives each its scratch. Compiled for the base instruction set.
#include "kernels/attention.h"

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

constexpr std::int64_t kPadding = 32;             ///< elements; two vectors of any instruction set
constexpr std::int64_t kResidentBytes = 4 << 20;  ///< of packed K and V of a head; more is packed again for each unit
constexpr double kSerialProducts = 1 << 17;       ///< below this a call is shorter than waking a second worker

std::int64_t padded(std::int64_t n) { return ceil_div(n, kPadding) * kPadding; }
std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

AttentionPlan plan_of(const AttentionArgs& args, const AttentionSizes& sizes) {
  AttentionPlan plan{};
  plan.padded_depth = padded(args.depth);
  const std::int64_t tiles = ceil_div(args.rows, sizes.tile_rows);
  plan.blocks = ceil_div(args.rows, sizes.row_block);
  plan.row_block = ceil_div(tiles, plan.blocks) * sizes.tile_rows;
  plan.blocks = ceil_div(args.rows, plan.row_block);
  plan.key_block = padded(ceil_div(args.keys, ceil_div(args.keys, sizes.key_block)));
  plan.padded_key_block = plan.key_block + kPadding / 2;  // rows at powers of two would share sets of L1
  plan.resident = padded(args.keys) * plan.padded_depth <= kResidentBytes / 8;
  plan.packed_keys = plan.resident ? padded(args.keys) : plan.key_block;
  return plan;
}

/// In words of 4 bytes: K, V, scores, Q, sums, and for each row a vector of what it has seen.
std::int64_t scratch_words(const AttentionPlan& plan) {
  return 2 * plan.packed_keys * plan.padded_depth + plan.row_block * (plan.padded_key_block + 2 * plan.padded_depth + kPadding / 2);
}

/// More of it where fp32 is rounded: what that leaves of K and Q, and for each block of keys a row of numbers and a vector.
std::int64_t rest_words(const AttentionPlan& plan) {
  return (plan.packed_keys + plan.row_block) * plan.padded_depth / 2 + kPadding / 2 +
         ceil_div(plan.packed_keys, plan.key_block) * (plan.padded_depth + kPadding / 2);
}

bool rounds(const AttentionArgs& args) { return args.bf16_inside && args.dtype == DType::kF32; }

const AttentionVariant& variant_of(const AttentionArgs& args, IsaSet isa) {
  const AttentionVariant& in_bf16 = choose(attention_variants(DType::kBf16), isa);
  if (rounds(args) && in_bf16.rounds_f32) return in_bf16;
  return choose(attention_variants(args.dtype), isa);
}

/// Rows of Q that share a head of K and V.
std::int64_t queries_of(const AttentionArgs& args) { return args.heads / args.kv_heads * args.rows; }

/// Keys that a unit walks, its cost.
std::int64_t keys_of(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t block) {
  return args.causal ? least(args.keys, (block + 1) * plan.row_block) : args.keys;
}

struct Job {
  const AttentionArgs* args;
  const AttentionVariant* variant;
  AttentionPlan plan;
  bool few;
  std::int64_t units;
  std::int64_t parts;
  std::size_t scratch_bytes;
};

/// Where the part begins, so that all walk about as many keys. Whole heads cost the same; only one of them is looked through.
std::int64_t first_unit(const Job& job, std::int64_t part) {
  if (job.few || !job.args->causal) return begin_of(job.units, part, job.parts);
  std::int64_t keys_of_head = 0;
  for (std::int64_t block = 0; block < job.plan.blocks; ++block) keys_of_head += keys_of(*job.args, job.plan, block);
  const std::int64_t heads = job.units / job.plan.blocks;
  const auto target =
      static_cast<double>(keys_of_head) * static_cast<double>(heads) * static_cast<double>(part) / static_cast<double>(job.parts);
  const auto head = static_cast<std::int64_t>(target / static_cast<double>(keys_of_head));
  if (head >= heads) return job.units;
  double before = static_cast<double>(keys_of_head) * static_cast<double>(head);
  std::int64_t block = 0;
  for (; block < job.plan.blocks && before < target; ++block) before += static_cast<double>(keys_of(*job.args, job.plan, block));
  return head * job.plan.blocks + block;
}

void run_part(const Job& job, std::int64_t part, float* scratch) {
  const std::int64_t begin = first_unit(job, part);
  const std::int64_t end = first_unit(job, part + 1);
  if (job.few) {
    job.variant->run_few(*job.args, begin, end, scratch);
  } else {
    job.variant->blocks(*job.args, job.plan, begin, end, scratch);
  }
}

}  // namespace

bool attention(const AttentionArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.batch <= 0 || args.heads <= 0 || args.rows <= 0 || args.keys <= 0 || args.depth <= 0) return true;
  const AttentionVariant& variant = variant_of(args, isa);
  const std::int64_t heads = args.batch * args.heads;
  const std::int64_t few_units = args.batch * args.kv_heads * ceil_div(queries_of(args), kQueriesAtOnce);
  bool refused = false;
  Job job{&args, &variant, {}, args.rows == 1 || queries_of(args) <= variant.few, few_units, 1, 0};
  if (job.few) {
    job.scratch_bytes = static_cast<std::size_t>(kQueriesAtOnce * (padded(args.keys) + padded(args.depth))) * sizeof(float);
  } else {
    job.plan = plan_of(args, variant.sizes);
    job.units = heads * job.plan.blocks;
    job.plan.rest = scratch_words(job.plan);
    job.plan.refused = &refused;
    const bool rest = rounds(args) && variant.rounds_f32;
    job.scratch_bytes = static_cast<std::size_t>(job.plan.rest + (rest ? rest_words(job.plan) : 0)) * sizeof(float);
  }
  const double products =
      static_cast<double>(heads) * static_cast<double>(args.rows) * static_cast<double>(args.keys) * static_cast<double>(args.depth);
  job.parts = parts_of(job.units, products > kSerialProducts, parallel);
  const bool done = share(job.parts, job.scratch_bytes, parallel, [&](std::int64_t part, void* scratch) {
    run_part(job, part, static_cast<float*>(scratch));
    return true;
  });
  return done && !refused;
}

bool attention_bf16_inside(const AttentionArgs& args, IsaSet isa) {
  if (args.dtype != DType::kF32) return false;
  const AttentionVariant& variant = choose(attention_variants(DType::kBf16), isa);
  return variant.rounds_f32 && args.rows > 1 && queries_of(args) > variant.few;
}

bool attention_supported(DType dtype, IsaSet isa) { return choose(attention_variants(dtype), isa).needs != 0; }

const char* attention_variant(DType dtype, IsaSet isa) { return choose(attention_variants(dtype), isa).name; }

}  // namespace ipexrun::kernels
