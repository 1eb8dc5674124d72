// How many tile registers may a loop of AMX products use, on a core of one's own and on one whose other thread is busy?
//
//   registers/N   products of bf16 tiles from L1 in N registers: 8 = four of C, two of A, two of B; 7 = one of A; 6 = one of A and of B; 4
//   =
//                 two of C, one of A and of B; 3 = one of each. of_limit: its speed beside all 8, in turn
// Pin it, and let something run on the other thread of the core: taskset -c 2 bench_tile_registers. Options: kernel_bench.h.
#include <string>
#include <utility>

#include "bench/kernel_bench.h"

namespace {

using namespace ipexrun;  // NOLINT: a program of one file
using namespace kernels::amx;

constexpr std::int64_t kTile = 1024;
constexpr int kSteps = 6;

/// Two strips of A and of B.
struct Operands {
  bench::Memory a = bench::numbers(2 * kSteps * kTile / 2, bench::DType::kBf16);
  bench::Memory b = bench::numbers(2 * kSteps * kTile / 2, bench::DType::kBf16);
};

template <int kA, int kB>
void multiply_block(const char* a, const char* b) {
  tile_load<6>(b, 64);
  tile_load<4>(a, 64);
  tile_multiply<0, 4, 6>();
  tile_load<kA>(a + kTile, 64);
  if constexpr (kA != 4) tile_multiply<2, kA, 6>();
  tile_load<kB>(b + kTile, 64);
  if constexpr (kA != 4) {
    tile_multiply<1, 4, kB>();
    tile_multiply<3, kA, kB>();
    return;
  }
  // One register of A: it holds the second tile now.
  tile_multiply<3, 4, kB>();
  if constexpr (kB == 6) tile_load<6>(b, 64);
  tile_multiply<2, 4, 6>();
  tile_load<4>(a, 64);
  if constexpr (kB == 6) tile_load<6>(b + kTile, 64);
  tile_multiply<1, 4, kB>();
}

void multiply_step(int registers, const char* a, const char* b) {
  if (registers == 8) return multiply_block<5, 7>(a, b);
  if (registers == 7) return multiply_block<4, 7>(a, b);
  if (registers == 6) return multiply_block<4, 6>(a, b);
  for (int half = 0; half < 2; ++half, b += kTile) {
    tile_load<6>(b, 64);
    tile_load<4>(a, 64);
    tile_multiply<0, 4, 6>();
    tile_load<4>(a + kTile, 64);
    if (registers == 4) {
      tile_multiply<1, 4, 6>();
    } else {
      tile_load<6>(b, 64);
      tile_multiply<0, 4, 6>();
    }
  }
}

template <int kRegisters>
double products(const Operands& operands) {
  constexpr int kRounds = 500;
  TileConfig config{};
  config.palette = 1;
  for (int i = 0; i < 8; ++i) {
    config.bytes_per_row[i] = 64;
    config.rows[i] = 16;
  }
  tile_configure(config);  // empties all registers
  for (int i = 0; i < kRounds; ++i) {
    for (int step = 0; step < kSteps; ++step) {
      multiply_step(kRegisters, operands.a.get() + 2 * step * kTile, operands.b.get() + 2 * step * kTile);
    }
  }
  tile_release();
  return kRounds * kSteps * 4.0 * (2.0 * 16 * 16 * 32);
}

template <int... kRegisters>
void add_all(const bench::Options& options, const Operands& operands, std::integer_sequence<int, kRegisters...> /*all*/) {
  (bench::add(options, "registers/" + std::to_string(kRegisters),
              [&](benchmark::State& state) {
                bench::race(
                    state, options, "FLOP", [&](std::size_t) { return products<kRegisters>(operands); },
                    [&](std::size_t) { return products<8>(operands); });
              }),
   ...);
}

}  // namespace

int main(int argc, char** argv) {
  const Operands operands;
  return bench::main_of(argc, argv, [&](const bench::Options& options, const kernels::Parallel&) {
    if (!isa_has(isa_of_process(), kIsaAmxBf16)) {
      std::fprintf(stderr, "tile registers: no AMX here\n");
      bench::add(options, "registers/none", [](benchmark::State& state) {
        for (auto _ : state) state.SetIterationTime(1e-9);
      });
      return;
    }
    add_all(options, operands, std::integer_sequence<int, 3, 4, 6, 7, 8>());
  });
}
