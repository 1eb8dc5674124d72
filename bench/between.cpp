// At what part of the rate of a plain copy do the operations between the products run?
//
// Each by the best variant of this process, on operands that stay in L2 (of one thread), that rotate over --cold-mib (L3), and over 8 times
// as much (memory). The limit is memcpy on as many threads of as much as the operation reads and writes, which rotates over as much
// memory of its own, so of_limit is 1 where nothing but memory bounds it. Results have their memory from the start: no page faults.
// Options: see kernel_bench.h.
#include <functional>
#include <string>
#include <vector>

#include "bench/kernel_bench.h"
#include "kernels/activation.h"
#include "kernels/convert.h"
#include "kernels/gated.h"
#include "kernels/normalize.h"
#include "kernels/reorder.h"
#include "kernels/rotary.h"

namespace {

using namespace ipexrun;  // NOLINT: a program of one file
using bench::DType;
using bench::Memory;
using kernels::Parallel;

constexpr std::int64_t kColumns = 768;
constexpr std::int64_t kHeadDepth = 64;
constexpr double kEps = 1e-5;

/// Elements are [rows, kColumns]; of images [channels, pixels].
struct Size {
  const char* name;
  std::int64_t rows;
  std::int64_t channels;
  std::int64_t pixels;
  std::size_t rotation;  ///< see copies_of()
};

/// One set of operands: two inputs, a result.
struct Call {
  const char* a;
  const char* b;
  char* to;
  Size size;
  const Memory& weights;  ///< small, the same for all sets: zeros in fp32
  const Parallel& parallel;
  IsaSet isa;

  [[nodiscard]] std::int64_t n() const { return size.rows * kColumns; }
};

struct Operation {
  std::string name;
  DType from;
  DType to;
  std::function<bool(const Call&)> run;
  int inputs = 1;
  bool image = false;
  double more = 0;  ///< what is read besides, over the bytes of the result
};

bool rotate(const Call& call, DType dtype) {
  const kernels::RotaryStrides strides{call.n(), kColumns, kHeadDepth};
  kernels::RotaryArgs args;
  args.from = call.a;
  args.to = call.to;
  args.dtype = dtype;
  args.batch = 1;
  args.positions = call.size.rows;
  args.heads = kColumns / kHeadDepth;
  args.depth = args.rotated = kHeadDepth;
  args.from_strides = args.to_strides = strides;
  args.cos = args.sin = call.b;  // any numbers do
  args.table_dtype = dtype;
  args.table_position_stride = kHeadDepth / 2;
  return kernels::rotary(args, call.parallel, call.isa);
}

kernels::NormArgs norm_args(const Call& call, DType dtype) {
  kernels::NormArgs args;
  args.from = call.a;
  args.to = call.to;
  args.dtype = dtype;
  args.rows = call.size.rows;
  args.columns = kColumns;
  args.weight = call.weights.get();
  args.eps = kEps;
  return args;
}

Operation reorder(bool to_planar, DType from, DType to) {
  return {to_planar ? "to_nchw" : "to_nhwc",
          from,
          to,
          [=](const Call& call) {
            const kernels::ReorderArgs args{call.a, from, call.to, to, 1, call.size.channels, call.size.pixels};
            (to_planar ? kernels::to_planar : kernels::to_channels_last)(args, call.parallel, call.isa);
            return true;
          },
          1,
          true};
}

Operation conversion(DType from, DType to) {
  const auto format = [](DType dtype) { return dtype == DType::kF32 ? kernels::Format::kF32 : kernels::Format::kBf16; };
  return {"convert", from, to, [=](const Call& call) {
            kernels::convert({call.a, format(from), call.to, format(to), call.n()}, call.parallel, call.isa);
            return true;
          }};
}

std::vector<Operation> operations() {
  std::vector<Operation> all;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    all.push_back({"softmax", dtype, dtype, [=](const Call& call) {
                     return kernels::softmax({call.a, call.to, dtype, call.size.rows, kColumns}, call.parallel, call.isa);
                   }});
    all.push_back({"layer_norm", dtype, dtype, [=](const Call& call) {
                     kernels::NormArgs args = norm_args(call, dtype);
                     args.bias = args.weight;
                     return kernels::layer_norm(args, call.parallel, call.isa);
                   }});
    all.push_back(
        {"rms_norm", dtype, dtype, [=](const Call& call) { return kernels::rms_norm(norm_args(call, dtype), call.parallel, call.isa); }});
    all.push_back({"gelu", dtype, dtype, [=](const Call& call) {
                     kernels::activation({kernels::Activation::kGelu, dtype, call.a, call.to, call.n()}, call.parallel, call.isa);
                     return true;
                   }});
    all.push_back({"silu_mul", dtype, dtype,
                   [=](const Call& call) {
                     kernels::gated({kernels::Activation::kSilu, dtype, call.a, call.b, call.to, call.size.rows, kColumns, kColumns,
                                     kColumns, kColumns},
                                    call.parallel, call.isa);
                     return true;
                   },
                   2});
    all.push_back({"rotary", dtype, dtype, [=](const Call& call) { return rotate(call, dtype); }, 1, false,
                   static_cast<double>(kHeadDepth) / 2 / kColumns});
  }
  all.push_back(conversion(DType::kF32, DType::kBf16));
  all.push_back(conversion(DType::kBf16, DType::kF32));
  for (const bool to_planar : {false, true}) {
    all.push_back(reorder(to_planar, DType::kF32, DType::kF32));
    all.push_back(reorder(to_planar, DType::kBf16, DType::kBf16));
    all.push_back(reorder(to_planar, DType::kF32, DType::kBf16));
    all.push_back(reorder(to_planar, DType::kBf16, DType::kF32));
  }
  return all;
}

void run(benchmark::State& state, const bench::Options& options, const Parallel& parallel, const Operation& operation, const Size& size) {
  struct Set {
    Memory a, b, to;
  };
  const std::int64_t n = operation.image ? size.channels * size.pixels : size.rows * kColumns;
  const auto reads = static_cast<double>(operation.inputs * n * kernels::bytes_of(operation.from));
  const auto writes = static_cast<double>(n * kernels::bytes_of(operation.to));
  const auto bytes = static_cast<std::size_t>(reads + writes + writes * operation.more);
  std::vector<Set> sets(bench::copies_of(bytes, size.rotation));
  for (Set& set : sets) {
    set.a = bench::numbers(n, operation.from);
    if (operation.inputs > 1 || operation.more > 0) set.b = bench::numbers(n, operation.from);
    set.to = bench::zeros(static_cast<std::size_t>(writes));
  }
  const Memory weights = bench::zeros(kColumns * sizeof(float));
  const bench::Turn work = [&](std::size_t call) {
    const Set& set = sets[call % sets.size()];
    bench::check(operation.run({set.a.get(), set.b.get(), set.to.get(), size, weights, parallel, isa_of_process()}));
    return static_cast<double>(bytes);
  };
  bench::race(state, options, "B", work, bench::copy_limit(parallel, bytes, size.rotation));
}

}  // namespace

int main(int argc, char** argv) {
  return bench::main_of(argc, argv, [](const bench::Options& options, const Parallel& parallel) {
    const std::vector<Size> sizes{
        {"L2", 128, 128, 784, 0}, {"L3", 1024, 256, 3136, options.cold_bytes}, {"memory", 4096, 256, 12544, 8 * options.cold_bytes}};
    for (const Operation& operation : operations()) {
      for (const Size& size : options.smoke ? std::vector<Size>{{"small", 3, 40, 9, options.cold_bytes}} : sizes) {
        const std::string types =
            bench::name_of(operation.from) + (operation.from == operation.to ? "" : "-" + bench::name_of(operation.to));
        bench::add(options, operation.name + "/" + types + "/" + size.name,
                   [&, operation, size](benchmark::State& state) { run(state, options, parallel, operation, size); });
      }
    }
  });
}
