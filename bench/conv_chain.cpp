// What do the convolutions of a ResNet-50 take one after the other, each reading what the one before wrote?
//
// One image of 224 x 224, bf16, weights that come from beyond L2 as in the model, relu and sums (in place) as it has them: what a bench of
// one layer with its operands in L1 does not show. Prints, for each kind of layer, how many there are, the first quartile and the least of
// its calls in microseconds, and the sums; for two builds beside one another, run them in turn. Workers wait awake, as torch's do.
//
//   bench_conv_chain [--threads N] [--seconds S] [--smoke]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "bench/kernel_bench.h"
#include "kernels/conv.h"
#include "kernels/linear.h"

namespace {

using namespace ipexrun;  // NOLINT: a program of one file
using bench::DType;
using bench::Memory;

struct Layer {
  std::string name;
  bool product = false;  ///< 1 x 1 without a stride: rows of pixels times the weight
  kernels::LinearArgs rows;
  kernels::ConvArgs windows;
  std::vector<double> microseconds;
};

class Network {
 public:
  Network(const kernels::Parallel& parallel, IsaSet isa) : parallel_(parallel), isa_(isa) {
    char* image = numbers(std::int64_t{224} * 224 * 3);
    char* stem = numbers(std::int64_t{112} * 112 * 64);
    add("first 7x7", {image, 224, 3}, 64, 7, 2, stem, true, nullptr);
    Image from{numbers(std::int64_t{56} * 56 * 64), 56, 64};  // after the pool
    const int blocks[] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; ++stage) {
      for (int block = 0; block < blocks[stage]; ++block)
        from = add_block(from, std::int64_t{64} << stage, block == 0, stage > 0 && block == 0 ? 2 : 1);
    }
  }

  std::vector<Layer>& layers() { return layers_; }

  bool run(const Layer& layer) const {
    return layer.product ? kernels::linear_bf16(layer.rows, parallel_, isa_) : kernels::convolve(layer.windows, parallel_, isa_);
  }

 private:
  struct Image {
    char* at;
    std::int64_t side;
    std::int64_t channels;
  };

  char* numbers(std::int64_t count) {
    memory_.push_back(bench::numbers(count, DType::kBf16));
    return memory_.back().get();
  }
  char* zeros(std::size_t bytes) {
    memory_.push_back(bench::zeros(bytes));
    return memory_.back().get();
  }

  Image add_block(Image from, std::int64_t width, bool first, std::int64_t stride) {
    const std::int64_t side = from.side / stride;
    const std::string where = std::to_string(side) + (first ? " first, " : ", ");
    char* narrow = numbers(from.side * from.side * width);
    char* wide = numbers(side * side * width);
    char* sum = from.at;
    const auto name = [&](std::int64_t in, std::int64_t out) { return where + "1x1 " + std::to_string(in) + " to " + std::to_string(out); };
    add(name(from.channels, width), from, width, 1, 1, narrow, true, nullptr);
    add(where + "3x3 " + std::to_string(width), {narrow, from.side, width}, width, 3, stride, wide, true, nullptr);
    if (first) {
      sum = numbers(side * side * width * 4);
      add(name(from.channels, width * 4) + ", beside", from, width * 4, 1, stride, sum, false, nullptr);
    }
    add(name(width, width * 4) + ", sum", {wide, side, width}, width * 4, 1, 1, sum, true, sum);
    return {sum, side, width * 4};
  }

  void add(const std::string& name, Image from, std::int64_t channels, std::int64_t kernel, std::int64_t stride, char* to, bool relu,
           char* other) {
    Layer layer;
    layer.name = name;
    layer.product = kernel == 1 && stride == 1;
    char* weight = numbers(channels * from.channels * kernel * kernel);
    char* bias = numbers(channels);
    if (layer.product) {
      kernels::LinearArgs& args = layer.rows;
      args.a = from.at;
      args.a_dtype = args.bias_dtype = args.c_dtype = DType::kBf16;
      args.k = args.lda = from.channels;
      args.m = from.side * from.side;
      args.n = args.ldc = channels;
      char* packed = zeros(kernels::packed_b_bytes(args.k, args.n));
      kernels::pack_b({weight, DType::kBf16, args.k, args.n, 1, args.k}, packed, parallel_, isa_);
      args.packed_b = packed;
      args.bias = bias;
      args.c = to;
      args.epilogue.unary = relu ? kernels::Unary::kRelu : kernels::Unary::kNone;
      if (other != nullptr) {
        args.epilogue.binary = kernels::Binary::kAdd;
        args.epilogue.binary_first = true;
        args.epilogue.other = other;
        args.epilogue.other_dtype = DType::kBf16;
        args.epilogue.ld_other = channels;
      }
    } else {
      const std::int64_t out = from.side / stride;
      kernels::ConvArgs& args = layer.windows;
      args.from = from.at;
      args.from_dtype = args.packed_dtype = args.bias_dtype = args.to_dtype = DType::kBf16;
      args.from_strides = kernels::dense_strides(from.channels, {1, from.side, from.side});
      args.to_strides = kernels::dense_strides(channels, {1, out, out});
      args.images = 1;
      args.in_channels = from.channels;
      args.out_channels = channels;
      args.axes[1] = args.axes[2] = {from.side, out, kernel, stride, kernel / 2, 1};
      if (relu) {
        args.activation = kernels::ConvActivation::kClamp;
        args.low = 0;
        args.high = std::numeric_limits<float>::infinity();
      }
      kernels::ConvWeight plain;
      plain.data = weight;
      plain.dtype = plain.packed_dtype = DType::kBf16;
      plain.in_channels = from.channels;
      plain.out_channels = channels;
      plain.kernel[1] = plain.kernel[2] = kernel;
      plain.out_stride = from.channels * kernel * kernel;
      plain.in_stride = kernel * kernel;
      plain.strides[1] = kernel;
      plain.strides[2] = 1;
      char* packed = zeros(kernels::conv_packed_bytes(plain));
      kernels::pack_conv(plain, packed);
      args.packed = packed;
      args.bias = bias;
      args.to = to;
    }
    layers_.push_back(layer);
  }

  kernels::Parallel parallel_;
  IsaSet isa_;
  std::vector<Memory> memory_;
  std::vector<Layer> layers_;
};

void print(std::vector<Layer>& layers) {
  struct Kind {
    double quartile = 0;
    double least = 0;
    int count = 0;
  };
  std::map<std::string, Kind> kinds;
  std::vector<std::string> order;
  Kind all;
  for (Layer& layer : layers) {
    std::sort(layer.microseconds.begin(), layer.microseconds.end());
    if (kinds.count(layer.name) == 0) order.push_back(layer.name);
    for (Kind* kind : {&kinds[layer.name], &all}) {
      kind->quartile += layer.microseconds[layer.microseconds.size() / 4];
      kind->least += layer.microseconds.front();
      ++kind->count;
    }
  }
  std::printf("%-34s %5s %9s %9s   us each\n", "layer", "count", "quartile", "least");
  for (const std::string& name : order) {
    const Kind& kind = kinds[name];
    std::printf("%-34s %5d %9.1f %9.1f\n", name.c_str(), kind.count, kind.quartile / kind.count, kind.least / kind.count);
  }
  std::printf("%-34s %5d %9.0f %9.0f   us in all\n", "sums", all.count, all.quartile, all.least);
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 2;
  double seconds = 3;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--smoke") == 0) seconds = 0;
    if (i + 1 < argc && std::strcmp(argv[i], "--threads") == 0) threads = std::atoi(argv[++i]);
    if (i + 1 < argc && std::strcmp(argv[i], "--seconds") == 0) seconds = std::atof(argv[++i]);
  }
  bench::Pool pool(threads < 1 ? 1 : threads, true);
  Network network(pool.parallel(), isa_of_process());
  if (!kernels::conv_supported(network.layers().front().windows, isa_of_process())) {
    std::fprintf(stderr, "conv_chain: dense convolution has the reference alone here\n");
    return 0;
  }
  const double end = bench::now(CLOCK_MONOTONIC) + seconds;
  do {
    for (Layer& layer : network.layers()) {
      const double start = bench::now(CLOCK_MONOTONIC);
      bench::check(network.run(layer));
      layer.microseconds.push_back((bench::now(CLOCK_MONOTONIC) - start) * 1e6);
    }
  } while (bench::now(CLOCK_MONOTONIC) < end);
  print(network.layers());
  return 0;
}
