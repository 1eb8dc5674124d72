// How much of the machine does dense convolution use?
//
// The 7x7 and 3x3 layers of ResNet-50 with their relu, batch 1, bf16, by the best variant of this process; nothing where that is the
// reference. Weights rotate over more memory than L2, the image stays, as after the layer before. The limit: AMX products that load
// nothing, on as many threads. Options: see kernel_bench.h.
#include "kernels/conv.h"

#include <limits>
#include <string>
#include <vector>

#include "bench/kernel_bench.h"

namespace {

using namespace ipexrun;  // NOLINT: a program of one file
using bench::DType;
using bench::Memory;

struct Layer {
  std::int64_t image;
  std::int64_t channels;
  std::int64_t stride;
  std::int64_t from_channels = channels;
  std::int64_t kernel = 3;
};

kernels::ConvArgs args_of(const Layer& layer) {
  const std::int64_t out = layer.image / layer.stride;
  kernels::ConvArgs args;
  args.from_dtype = args.packed_dtype = args.bias_dtype = args.to_dtype = DType::kBf16;
  args.from_strides = kernels::dense_strides(layer.from_channels, {1, layer.image, layer.image});
  args.to_strides = kernels::dense_strides(layer.channels, {1, out, out});
  args.images = 1;
  args.in_channels = layer.from_channels;
  args.out_channels = layer.channels;
  args.axes[1] = args.axes[2] = {layer.image, out, layer.kernel, layer.stride, layer.kernel / 2, 1};
  args.activation = kernels::ConvActivation::kClamp;
  args.low = 0;
  args.high = std::numeric_limits<float>::infinity();
  return args;
}

void run(benchmark::State& state, const bench::Options& options, const kernels::Parallel& parallel, const Layer& layer) {
  kernels::ConvArgs args = args_of(layer);
  const std::int64_t channels = layer.channels;
  const std::int64_t taps = layer.kernel * layer.kernel;
  const Memory image = bench::numbers(args.from_strides.image, DType::kBf16);
  const Memory bias = bench::numbers(channels, DType::kBf16);
  const Memory to = bench::zeros(static_cast<std::size_t>(args.to_strides.image) * 2);
  const Memory plain = bench::numbers(channels * layer.from_channels * taps, DType::kBf16);
  kernels::ConvWeight weight;
  weight.data = plain.get();
  weight.dtype = weight.packed_dtype = DType::kBf16;
  weight.in_channels = layer.from_channels;
  weight.out_channels = channels;
  weight.kernel[1] = weight.kernel[2] = layer.kernel;
  weight.out_stride = layer.from_channels * taps;
  weight.in_stride = taps;
  weight.strides[1] = layer.kernel;
  weight.strides[2] = 1;
  const std::size_t bytes = kernels::conv_packed_bytes(weight);
  std::vector<Memory> packs(bench::copies_of(bytes, options.cold_bytes));
  for (Memory& pack : packs) {
    pack = bench::zeros(bytes);
    kernels::pack_conv(weight, pack.get());
  }
  args.from = image.get();
  args.bias = bias.get();
  args.to = to.get();
  const std::int64_t products = args.axes[1].out * args.axes[2].out * channels * layer.from_channels * taps;
  const bench::Turn work = [&](std::size_t call) {
    args.packed = packs[call % packs.size()].get();
    bench::check(kernels::convolve(args, parallel, isa_of_process()));
    return 2.0 * static_cast<double>(products);
  };
  bench::race(state, options, "FLOP", work, bench::products_limit(parallel, bench::amx_products));
}

}  // namespace

int main(int argc, char** argv) {
  return bench::main_of(argc, argv, [](const bench::Options& options, const kernels::Parallel& parallel) {
    const std::vector<Layer> layers{{224, 64, 2, 3, 7}, {56, 64, 1},  {28, 128, 1}, {14, 256, 1},
                                    {7, 512, 1},        {56, 128, 2}, {28, 256, 2}, {14, 512, 2}};
    for (const Layer& layer : options.smoke ? std::vector<Layer>{{6, 32, 1}} : layers) {
      const kernels::ConvArgs args = args_of(layer);
      if (!kernels::conv_supported(args, isa_of_process())) {
        std::fprintf(stderr, "conv: dense convolution has the reference alone here\n");
        return;
      }
      bench::add(options,
                 "conv" + std::to_string(layer.kernel) + "x" + std::to_string(layer.kernel) + "/" + std::to_string(layer.image) + "/" +
                     std::to_string(layer.channels) + "/stride:" + std::to_string(layer.stride) + "/" +
                     kernels::conv_variant(args, isa_of_process()),
                 [&, layer](benchmark::State& state) { run(state, options, parallel, layer); });
    }
  });
}
