// What are float32 products worth as sums of three bf16 parts on AMX (kernels/amx/linear_f32.cpp), beside the vectors of the same core?
//
//   parts/MxNxK           of_limit: how much faster than vectors, on weights that rotate over more memory than L2; limit/s is the vectors'
//   parts/MxCxHxWxN       the same for the windows of 3 x 3 pixels of one image
//   tiles/MxCxHxWxN       the same for such convolutions by F(2x2, 3x3) (kernels/amx/winograd.cpp), of M images; FLOP are those of windows
// Where another program uses the other thread of a core, tiles lose more than vectors do: run it on several cores. Options: kernel_bench.h.
#include <string>
#include <vector>

#include "bench/kernel_bench.h"
#include "kernels/linear_f32.h"
#include "kernels/winograd.h"

namespace {

using namespace ipexrun;  // NOLINT: a program of one file
using bench::DType;
using bench::Memory;

struct Shape {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  std::int64_t side = 0;  ///< of an image whose windows A's rows are
};

struct Operands {
  Memory a;
  Memory c;
  std::vector<Memory> packed;
  kernels::ImageWindows windows;
};

Operands operands_of(const Shape& shape, std::size_t rotation) {
  Operands operands;
  const std::int64_t channels = shape.k / 9;
  const Memory b = bench::numbers(shape.k * shape.n, DType::kF32);
  operands.a = bench::numbers(shape.side > 0 ? shape.m * channels : shape.m * shape.k, DType::kF32);
  operands.c = bench::zeros(static_cast<std::size_t>(shape.m * shape.n * 4));
  const std::size_t bytes = kernels::packed_f32_bytes(shape.k, shape.n, false);
  for (std::size_t i = 0; i < bench::copies_of(bytes, rotation); ++i) {
    operands.packed.push_back(bench::zeros(bytes));
    kernels::pack_f32({b.get(), false, shape.k, shape.n, 1, shape.k}, operands.packed.back().get(), {}, isa_of_process());
  }
  kernels::ImageWindows& windows = operands.windows;
  windows.channels = windows.pixel_stride = channels;
  windows.row_stride = channels * shape.side;
  windows.image_stride = windows.row_stride * shape.side;
  for (int axis = 0; axis < 2; ++axis) {
    windows.in[axis] = windows.out[axis] = shape.side;
    windows.kernel[axis] = 3;
    windows.padding[axis] = 1;
  }
  return operands;
}

bench::Turn turn_of(const Shape& shape, Operands& operands, bool parts, const kernels::Parallel& parallel) {
  return [=, &operands, &parallel](std::size_t call) {
    kernels::LinearF32Args args;
    args.parts = parts;
    args.a = operands.a.get();
    args.packed_b = operands.packed[call % operands.packed.size()].get();
    args.c = operands.c.get();
    args.m = shape.m;
    args.n = args.ldc = shape.n;
    args.k = args.lda = shape.k;
    if (shape.side > 0) args.windows = &operands.windows;
    kernels::linear_f32(args, parallel, isa_of_process());
    return 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
  };
}

/// `m` images.
Operands operands_of_tiles(const Shape& shape, std::size_t rotation) {
  Operands operands;
  const std::int64_t pixels = shape.m * shape.side * shape.side;
  const Memory weight = bench::numbers(9 * shape.k * shape.n, DType::kF32);
  operands.a = bench::numbers(pixels * shape.k, DType::kF32);
  operands.c = bench::zeros(static_cast<std::size_t>(pixels * shape.n * 4));
  const std::size_t bytes = kernels::packed_winograd_bytes(shape.k, shape.n, false, 2);
  const std::int64_t strides[4] = {9 * shape.k, 1, 3 * shape.k, shape.k};
  for (std::size_t i = 0; i < bench::copies_of(bytes, rotation); ++i) {
    operands.packed.push_back(bench::zeros(bytes));
    kernels::pack_winograd(weight.get(), DType::kF32, strides, shape.k, shape.n, false, 2, operands.packed.back().get(), {});
  }
  return operands;
}

bench::Turn turn_of_tiles(const Shape& shape, Operands& operands, bool parts, const kernels::Parallel& parallel) {
  return [=, &operands, &parallel](std::size_t call) {
    kernels::WinogradArgs args;
    args.parts = parts;
    args.from = operands.a.get();
    args.images = shape.m;
    for (int axis = 0; axis < 2; ++axis) {
      args.in[axis] = args.out[axis] = shape.side;
      args.padding[axis] = 1;
    }
    args.channels = args.pixel_stride = shape.k;
    args.row_stride = shape.k * shape.side;
    args.image_stride = args.row_stride * shape.side;
    args.packed = operands.packed[call % operands.packed.size()].get();
    args.to = operands.c.get();
    args.n = args.ld_to = shape.n;
    kernels::winograd(args, parallel, isa_of_process());
    return 18.0 * static_cast<double>(shape.m * shape.side * shape.side * shape.n * shape.k);
  };
}

std::string name_of_tiles(const Shape& s) {
  return std::to_string(s.m) + "x" + std::to_string(s.k) + "x" + std::to_string(s.side) + "x" + std::to_string(s.side) + "x" +
         std::to_string(s.n);
}

std::string name_of(const Shape& s) {
  if (s.side == 0) return std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
  return "1x" + std::to_string(s.k / 9) + "x" + std::to_string(s.side) + "x" + std::to_string(s.side) + "x" + std::to_string(s.n);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::main_of(argc, argv, [](const bench::Options& options, const kernels::Parallel& parallel) {
    const std::vector<Shape> shapes{
        {1024, 768, 768}, {1024, 3072, 768}, {1024, 768, 3072}, {128, 768, 768},        {128, 3072, 768},        {128, 768, 3072},
        {3136, 256, 64},  {3136, 64, 256},   {784, 512, 128},   {784, 128, 512},        {196, 1024, 256},        {196, 256, 1024},
        {49, 2048, 512},  {49, 512, 2048},   {32, 768, 768},    {3136, 64, 9 * 64, 56}, {784, 128, 9 * 128, 28}, {196, 256, 9 * 256, 14}};
    for (const Shape& shape : options.smoke ? std::vector<Shape>{{64, 96, 70}, {16, 40, 9 * 8, 4}} : shapes) {
      bench::add(options, "parts/" + name_of(shape), [&, shape](benchmark::State& state) {
        Operands operands = operands_of(shape, options.cold_bytes);
        bench::race(state, options, "FLOP", turn_of(shape, operands, true, parallel), turn_of(shape, operands, false, parallel));
      });
    }
    const std::vector<Shape> images{{1, 64, 64, 56},   {1, 128, 128, 28}, {1, 256, 256, 14}, {2, 512, 512, 7}, {8, 64, 64, 56},
                                    {8, 128, 128, 28}, {8, 256, 256, 14}, {8, 512, 512, 7},  {1, 64, 64, 224}, {1, 512, 512, 28}};
    for (const Shape& shape : options.smoke ? std::vector<Shape>{{2, 40, 32, 9}} : images) {
      bench::add(options, "tiles/" + name_of_tiles(shape), [&, shape](benchmark::State& state) {
        Operands operands = operands_of_tiles(shape, options.cold_bytes);
        bench::race(state, options, "FLOP", turn_of_tiles(shape, operands, true, parallel),
                    turn_of_tiles(shape, operands, false, parallel));
      });
    }
  });
}
