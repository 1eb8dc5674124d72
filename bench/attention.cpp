// How much of the machine does attention use, and which variant is best where?
//
// Batch 1, 12 heads of 64, forward, rows = keys; every variant that this process may use but the reference. Q, K and V are views of
// [rows, heads, depth], as a linear layer leaves them, and rotate over more memory than L2. The limit: AMX products that load nothing for
// bf16, fused multiply-adds of registers for fp32, on as many threads. Options: see kernel_bench.h.
#include "kernels/attention.h"

#include <cmath>
#include <string>
#include <vector>

#include "bench/kernel_bench.h"
#include "kernels/dispatch.h"

namespace {

using namespace ipexrun;  // NOLINT: a program of one file
using bench::DType;
using bench::Memory;

constexpr std::int64_t kHeads = 12;
constexpr std::int64_t kDepth = 64;

void run(benchmark::State& state, const bench::Options& options, const kernels::Parallel& parallel, DType dtype, std::int64_t rows,
         IsaSet isa) {
  struct Set {
    Memory q, k, v, out;
  };
  const std::int64_t elements = rows * kHeads * kDepth;
  std::vector<Set> sets(bench::copies_of(static_cast<std::size_t>(4 * elements * kernels::bytes_of(dtype)), options.cold_bytes));
  for (Set& set : sets) {
    for (Memory* memory : {&set.q, &set.k, &set.v, &set.out}) *memory = bench::numbers(elements, dtype);
  }
  const auto heads = [&](const Memory& memory) { return kernels::Heads{memory.get(), elements, kDepth, kHeads * kDepth}; };
  const bench::Turn work = [&](std::size_t call) {
    const Set& set = sets[call % sets.size()];
    kernels::AttentionArgs args;
    args.q = heads(set.q);
    args.k = heads(set.k);
    args.v = heads(set.v);
    args.dtype = dtype;
    args.batch = 1;
    args.heads = args.kv_heads = kHeads;
    args.rows = args.keys = rows;
    args.depth = kDepth;
    args.scale = 1 / std::sqrt(static_cast<float>(kDepth));
    args.out = set.out.get();
    args.out_batch_stride = elements;
    args.out_head_stride = kDepth;
    args.out_row_stride = kHeads * kDepth;
    bench::check(kernels::attention(args, parallel, isa));
    return 4.0 * static_cast<double>(rows) * static_cast<double>(elements);
  };
  bench::race(state, options, "FLOP", work,
              bench::products_limit(parallel, dtype == DType::kF32 ? bench::fma_products : bench::amx_products));
}

}  // namespace

int main(int argc, char** argv) {
  return bench::main_of(argc, argv, [](const bench::Options& options, const kernels::Parallel& parallel) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const kernels::AttentionVariants table = kernels::attention_variants(dtype);
      for (const std::int64_t rows : options.smoke ? std::vector<std::int64_t>{40} : std::vector<std::int64_t>{128, 197, 512, 2048}) {
        for (std::size_t i = 0; i + 1 < table.count; ++i) {
          const IsaSet isa = table.first[i].needs;
          if (!isa_has(isa_of_process(), isa)) continue;
          bench::add(options, "attention/" + bench::name_of(dtype) + "/" + std::to_string(rows) + "/" + table.first[i].name,
                     [&, dtype, rows, isa](benchmark::State& state) { run(state, options, parallel, dtype, rows, isa); });
        }
      }
    }
  });
}
