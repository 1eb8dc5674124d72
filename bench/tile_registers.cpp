// How many tile registers may a loop of AMX products use, on a core of one's own and on one whose other thread is busy?
//
//   registers/N   products of bf16 tiles from L1 in N registers; of_limit: its speed beside all 8, in turn.
//                 8: four of C, two of A, two of B
//                 7: one of A
//                 6: one of A and of B
//                 5: two of C, one of A, two of B
//                 4: one of B as well
//                 3: one of each
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

/// 2 x 2 tiles of C.
template <int kRegisters>
void multiply_block(const char* a, const char* b) {
  tile_load<6>(b, 64);
  tile_load<4>(a, 64);
  tile_multiply<0, 4, 6>();
  if constexpr (kRegisters == 8) {
    tile_load<5>(a + kTile, 64);
    tile_multiply<2, 5, 6>();
    tile_load<7>(b + kTile, 64);
    tile_multiply<1, 4, 7>();
    tile_multiply<3, 5, 7>();
  } else if constexpr (kRegisters == 7) {
    tile_load<7>(b + kTile, 64);
    tile_multiply<1, 4, 7>();
    tile_load<4>(a + kTile, 64);
    tile_multiply<2, 4, 6>();
    tile_multiply<3, 4, 7>();
  } else {
    tile_load<6>(b + kTile, 64);
    tile_multiply<1, 4, 6>();
    tile_load<4>(a + kTile, 64);
    tile_multiply<3, 4, 6>();
    tile_load<6>(b, 64);
    tile_multiply<2, 4, 6>();
  }
}

/// 1 x 2 tiles of C, or both into one.
template <int kRegisters>
void multiply_row(const char* a, const char* b) {
  constexpr int kSecond = kRegisters == 5 ? 7 : 6;
  tile_load<4>(a, 64);
  tile_load<6>(b, 64);
  tile_multiply<0, 4, 6>();
  if constexpr (kRegisters == 3) tile_load<4>(a, 64);
  tile_load<kSecond>(b + kTile, 64);
  tile_multiply<kRegisters == 3 ? 0 : 1, 4, kSecond>();
}

template <int kRegisters>
void multiply_step(const char* a, const char* b) {
  if constexpr (kRegisters >= 6) {
    multiply_block<kRegisters>(a, b);
  } else {
    multiply_row<kRegisters>(a, b);
    multiply_row<kRegisters>(a + kTile, b);
  }
}

template <int kRegisters>
double products(const Operands& operands) {
  constexpr int kRounds = 500;
  tile_configure(whole_tiles());  // empties all registers
  for (int i = 0; i < kRounds; ++i) {
    for (int step = 0; step < kSteps; ++step) {
      multiply_step<kRegisters>(operands.a.get() + 2 * step * kTile, operands.b.get() + 2 * step * kTile);
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
    add_all(options, operands, std::integer_sequence<int, 3, 4, 5, 6, 7, 8>());
  });
}
