// How much of the machine does the linear kernel use, and which variant is best where?
//
// One thread, one binary, no torch: every variant that this process may use, fp32 and bf16 at the boundary, called in turn
// (interleaved) on weights that rotate over more memory than L2 and L3 give one core (cold) or stay (hot). Prints JSON: median
// microseconds, TFLOP/s, and the share of the register-only AMX peak (tile products that load nothing), measured between the rounds.
// --smoke: one small shape. --rows 1,16  --shapes 768x3072,...  --seconds S (a shape).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/kernel_bench.h"
#include "configs/base/isa.h"
#include "kernels/dispatch.h"
#include "kernels/linear.h"

namespace {

using namespace ipexrun;  // NOLINT: a program of one file
using kernels::DType;

using bench::median;
using bench::Memory;
using bench::now;
using bench::zeros;

double seconds_since(double start) { return now() - start; }

/// TFLOP/s; 0 without AMX.
double amx_peak_once() {
  const double start = now();
  const double operations = bench::amx_products();
  return operations / seconds_since(start) * 1e-12;
}

struct Shape {
  long k;
  long n;
};

struct Options {
  std::vector<Shape> shapes{{384, 384}, {384, 1536}, {1536, 384}, {768, 768}, {768, 2304}, {768, 3072}, {3072, 768}, {2048, 5632}};
  std::vector<long> rows{1, 4, 16, 128, 512, 1024, 4096};
  double seconds = 0.3;
  std::size_t cold_bytes = std::size_t{128} << 20;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == ',') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--smoke") {
      options.shapes = {{64, 96}};
      options.rows = {1, 40};
      options.seconds = 0.005;
      options.cold_bytes = 1 << 20;
      continue;
    }
    if (word == "--rows") {
      options.rows.clear();
      for (const std::string& item : split(value)) options.rows.push_back(std::atol(item.c_str()));
    } else if (word == "--shapes") {
      options.shapes.clear();
      for (const std::string& item : split(value)) {
        options.shapes.push_back({std::atol(item.c_str()), std::atol(item.substr(item.find('x') + 1).c_str())});
      }
    } else if (word == "--seconds") {
      options.seconds = std::atof(value);
    } else {
      std::fprintf(stderr, "linear: unknown option %s (--smoke, --rows, --shapes, --seconds)\n", word.c_str());
      std::exit(2);
    }
    ++i;
  }
  return options;
}

struct Contender {
  std::string variant;
  IsaSet isa;
  DType dtype;
  std::vector<double> us;
};

void run(const Options& options, Shape shape, long m, bool cold, bool first) {
  const std::size_t bytes = kernels::packed_b_bytes(shape.k, shape.n);
  const std::size_t copies = cold ? std::max<std::size_t>(2, options.cold_bytes / bytes) : 1;
  std::vector<Memory> packs;
  for (std::size_t i = 0; i < copies; ++i) packs.push_back(zeros(bytes));
  const Memory a = zeros(static_cast<std::size_t>(m * shape.k) * 4);
  const Memory bias = zeros(static_cast<std::size_t>(shape.n) * 4);
  const Memory c = zeros(static_cast<std::size_t>(m * shape.n) * 4);
  std::vector<Contender> contenders;
  const kernels::LinearVariants table = kernels::linear_variants();
  for (std::size_t i = 0; i + 1 < table.count; ++i) {  // without the reference
    if (!isa_has(isa_of_process(), table.first[i].needs)) continue;
    for (const DType dtype : {DType::kF32, DType::kBf16}) contenders.push_back({table.first[i].name, table.first[i].needs, dtype, {}});
  }
  std::vector<double> peaks;
  std::size_t turn = 0;
  const auto call = [&](const Contender& who) {
    kernels::LinearArgs args;
    args.a = a.get();
    args.a_dtype = who.dtype;
    args.lda = shape.k;
    args.packed_b = packs[turn++ % copies].get();
    args.bias = bias.get();
    args.c = c.get();
    args.c_dtype = who.dtype;
    args.ldc = shape.n;
    args.m = m;
    args.n = shape.n;
    args.k = shape.k;
    if (!kernels::linear_bf16(args, {}, who.isa)) std::exit(1);
  };
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  const int batch = std::max(1, static_cast<int>(2e8 / flops));
  const double start = now();
  do {
    for (Contender& who : contenders) {
      const double from = now();
      for (int i = 0; i < batch; ++i) call(who);
      who.us.push_back(seconds_since(from) / batch * 1e6);
    }
    peaks.push_back(amx_peak_once());
  } while (seconds_since(start) < options.seconds || peaks.size() < 5);
  const double peak = median(peaks);
  std::printf("%s\n {\"memory\": \"%s\", \"k\": %ld, \"n\": %ld, \"m\": %ld, \"amx_peak_tflops\": %.3f, \"rounds\": %zu, \"variants\": [",
              first ? "" : ",", cold ? "cold" : "hot", shape.k, shape.n, m, peak, peaks.size());
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const double us = median(contenders[i].us);
    const double rate = flops / us * 1e-6;
    std::printf("%s{\"name\": \"%s\", \"dtype\": \"%s\", \"us\": %.2f, \"tflops\": %.3f, \"of_peak\": %.3f}", i == 0 ? "" : ", ",
                contenders[i].variant.c_str(), contenders[i].dtype == DType::kF32 ? "float32" : "bfloat16", us, rate,
                peak > 0 ? rate / peak : 0.0);
  }
  std::printf("]}");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  std::printf("{\"isa\": \"%s\", \"threads\": 1, \"rows\": [", std::string(level_name(isa_of_process())).c_str());
  bool first = true;
  for (const bool cold : {false, true}) {
    for (const Shape shape : options.shapes) {
      for (const long m : options.rows) {
        run(options, shape, m, cold, first);
        first = false;
      }
    }
  }
  std::printf("\n]}\n");
  return 0;
}
