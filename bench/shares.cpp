// What is it worth that workers share the rest of a product, and where a product is cut?
//
// Chains of two products, each of which reads what the one before wrote, as layers do, with weights that rotate over more memory than L2:
//   evenness/...  each worker alone with operands of its own: the fastest and the slowest one's time for the same product
//   shares/...    half of each part first, the rest in pieces (shares.h), beside one part a worker: of_limit is how much faster
//   cuts/...      today's cut (GridCosts), beside one that takes what another core has just written for as near as anything: of_limit
//   likewise
// Options: see kernel_bench.h.
#include "kernels/shares.h"

#include <string>
#include <vector>

#include "bench/kernel_bench.h"
#include "kernels/choose.h"
#include "kernels/linear_f32_variants.h"

namespace {

using namespace ipexrun;  // NOLINT: a program of one file
using bench::DType;
using bench::Memory;
using kernels::GridCosts;
using kernels::Shares;

/// m rows of `narrow` numbers, to `wide` ones and back.
struct Chain {
  std::int64_t m;
  std::int64_t narrow;
  std::int64_t wide;
};

/// What a chain reads and writes.
struct Operands {
  Memory narrow;
  Memory wide;
  std::vector<Memory> up;
  std::vector<Memory> down;
};

Operands operands_of(const Chain& chain, DType dtype, std::size_t rotation) {
  const bool f32 = dtype == DType::kF32;
  const auto packed = [&](std::int64_t k, std::int64_t n) {
    return f32 ? kernels::packed_f32_bytes(k, n, false) : kernels::packed_b_bytes(k, n);
  };
  Operands operands;
  operands.narrow = bench::zeros(static_cast<std::size_t>(chain.m * chain.narrow * 4));
  operands.wide = bench::zeros(static_cast<std::size_t>(chain.m * chain.wide * 4));
  for (std::size_t i = 0; i < bench::copies_of(packed(chain.narrow, chain.wide), rotation / 2); ++i) {
    operands.up.push_back(bench::zeros(packed(chain.narrow, chain.wide)));
    operands.down.push_back(bench::zeros(packed(chain.wide, chain.narrow)));
  }
  return operands;
}

GridCosts costs_of(DType dtype) {
  if (dtype == DType::kF32) return kernels::kGridCostsF32;
  return isa_has(isa_of_process(), kIsaAmxBf16) ? GridCosts() : kernels::kGridCostsBf16;
}

void multiply(DType dtype, const char* a, std::int64_t m, std::int64_t k, const char* b, char* c, std::int64_t n, const Shares& shares,
              const kernels::Parallel& parallel) {
  if (dtype == DType::kF32) {
    kernels::LinearF32Args args;
    args.a = a;
    args.packed_b = b;
    args.c = c;
    args.m = m;
    args.k = args.lda = k;
    args.n = args.ldc = n;
    kernels::run_blocks(args, kernels::choose(kernels::linear_f32_variants(false), isa_of_process() & ~kIsaAmxBf16), shares, parallel);
    return;
  }
  kernels::LinearArgs args;
  args.a = a;
  args.packed_b = b;
  args.c = c;
  args.a_dtype = args.c_dtype = DType::kBf16;
  args.m = m;
  args.k = args.lda = k;
  args.n = args.ldc = n;
  kernels::run_blocks(args, kernels::choose(kernels::linear_variants(), isa_of_process()), shares, parallel);
}

/// There and back with these costs; `shared`: or one part a worker.
bench::Turn turn_of(const Chain& chain, DType dtype, Operands& operands, GridCosts costs, bool shared, const kernels::Parallel& parallel) {
  Shares up = kernels::shares_of(chain.m, chain.wide, kernels::steps_of(chain.narrow), parallel.threads, costs);
  Shares down = kernels::shares_of(chain.m, chain.narrow, kernels::steps_of(chain.wide), parallel.threads, costs);
  if (!shared) up.pieces = down.pieces = 0;
  return [=, &operands, &parallel](std::size_t call) {
    const std::size_t layer = call % operands.up.size();
    multiply(dtype, operands.narrow.get(), chain.m, chain.narrow, operands.up[layer].get(), operands.wide.get(), chain.wide, up, parallel);
    multiply(dtype, operands.wide.get(), chain.m, chain.wide, operands.down[layer].get(), operands.narrow.get(), chain.narrow, down,
             parallel);
    return 4.0 * static_cast<double>(chain.m * chain.narrow * chain.wide);
  };
}

void evenness(benchmark::State& state, DType dtype, const kernels::Parallel& parallel) {
  const Chain chain{64, 768, 96};
  std::vector<Operands> own(static_cast<std::size_t>(parallel.threads));
  for (Operands& operands : own) operands = operands_of(chain, dtype, 0);
  std::vector<double> seconds(own.size());
  const kernels::Parallel alone;
  for (auto _ : state) {
    bench::on_all(parallel, parallel.threads, [&](int i) {
      const auto worker = static_cast<std::size_t>(i);
      const bench::Turn turn = turn_of(chain, dtype, own[worker], costs_of(dtype), false, alone);
      std::vector<double> each;
      for (std::size_t call = 0; call < 200; ++call) {
        const double start = bench::now(CLOCK_MONOTONIC);
        turn(call);
        each.push_back(bench::now(CLOCK_MONOTONIC) - start);
      }
      seconds[worker] = bench::median(each);
    });
    state.SetIterationTime(*std::max_element(seconds.begin(), seconds.end()));
  }
  state.counters["fastest_us"] = 1e6 * *std::min_element(seconds.begin(), seconds.end());
  state.counters["slowest_us"] = 1e6 * *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace

int main(int argc, char** argv) {
  return bench::main_of(argc, argv, [](const bench::Options& options, const kernels::Parallel& parallel) {
    const std::vector<Chain> chains{{128, 768, 3072}, {1576, 768, 3072}, {196, 1024, 256}, {784, 512, 128}, {3136, 256, 64}};
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const std::string type = bench::name_of(dtype);
      bench::add(options, "evenness/" + type, [&, dtype](benchmark::State& state) { evenness(state, dtype, parallel); });
      const GridCosts near = dtype == DType::kF32 ? GridCosts{.rows = 0.2, .panel = 1} : GridCosts{.rows = 1, .panel = 4};
      for (const Chain& chain : options.smoke ? std::vector<Chain>{{64, 256, 96}} : chains) {
        const std::string sizes =
            type + "/" + std::to_string(chain.m) + "x" + std::to_string(chain.narrow) + "x" + std::to_string(chain.wide);
        bench::add(options, "shares/" + sizes, [&, dtype, chain](benchmark::State& state) {
          Operands operands = operands_of(chain, dtype, options.cold_bytes);
          const GridCosts costs = costs_of(dtype);
          bench::race(state, options, "FLOP", turn_of(chain, dtype, operands, costs, true, parallel),
                      turn_of(chain, dtype, operands, costs, false, parallel));
        });
        bench::add(options, "cuts/" + sizes, [&, dtype, chain, near](benchmark::State& state) {
          Operands operands = operands_of(chain, dtype, options.cold_bytes);
          bench::race(state, options, "FLOP", turn_of(chain, dtype, operands, costs_of(dtype), false, parallel),
                      turn_of(chain, dtype, operands, near, false, parallel));
        });
      }
    }
  });
}
