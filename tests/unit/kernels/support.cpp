#include "tests/unit/kernels/support.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "kernels/bf16.h"
#include "kernels/dispatch.h"
#include "kernels/ref/linear.h"

namespace ipexrun::kernels::test {
namespace {

constexpr int kFill = 0x7f;

std::size_t size_of(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

float get(const char* data, DType dtype, std::int64_t index) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  std::uint16_t value = 0;
  std::memcpy(&value, data + index * 2, 2);
  return bf16_to_f32(value);
}

void put(char* data, DType dtype, std::int64_t index, float value) {
  const std::uint16_t half = bf16_from_f32(value);
  if (dtype == DType::kF32) {
    std::memcpy(data + index * 4, &value, 4);
  } else {
    std::memcpy(data + index * 2, &half, 2);
  }
}

void run_on_threads(void* context, int n, void (*fn)(void* arg, int i), void* arg) {
  const int threads = static_cast<int>(reinterpret_cast<std::intptr_t>(context));
  std::atomic<int> next{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads && t < n; ++t) {
    workers.emplace_back([&] {
      for (int i = next++; i < n; i = next++) fn(arg, i);
    });
  }
  for (std::thread& worker : workers) worker.join();
}

void run_backwards(void* /*context*/, int n, void (*fn)(void* arg, int i), void* arg) {
  for (int i = n - 1; i >= 0; --i) std::thread(fn, arg, i).join();
}

double rounded(float value) { return static_cast<double>(bf16_to_f32(bf16_from_f32(value))); }

}  // namespace

Guarded::Guarded(std::size_t bytes) : bytes_(bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t inner = (bytes + page - 1) / page * page;
  map_bytes_ = inner + 2 * page;
  void* map = mmap(nullptr, map_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw std::runtime_error("mmap failed");
  map_ = static_cast<char*>(map);
  // qemu 7.2 reads all of a masked load, the lanes that are masked out too, where a CPU does not fault: no guard behind for it.
  static const bool guard_behind = std::getenv("IPEXRUN_TEST_NO_GUARD_BEHIND") == nullptr;
  const std::size_t open = guard_behind ? inner : inner + page;
  if (open != 0 && mprotect(map_ + page, open, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("mprotect failed");
  data_ = map_ + page + (inner - bytes);
  std::memset(map_ + page, kFill, open);
}

Guarded::~Guarded() {
  if (map_ != nullptr) munmap(map_, map_bytes_);
}

Guarded::Guarded(Guarded&& other) noexcept { *this = std::move(other); }

Guarded& Guarded::operator=(Guarded&& other) noexcept {
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Parallel thread_parallel(int threads) { return {threads, run_on_threads, reinterpret_cast<void*>(static_cast<std::intptr_t>(threads))}; }

Parallel backward_parallel(int threads) { return {threads, run_backwards, nullptr}; }

std::vector<IsaSet> levels_here() { return levels_of(linear_variants()); }

std::string variant_of(IsaSet isa) {
  LinearArgs args;
  args.m = args.n = args.k = 64;
  return linear_bf16_variant(args, isa);
}

std::string describe(const Case& c, IsaSet isa) {
  std::ostringstream text;
  text << variant_of(isa) << " m " << c.m << " n " << c.n << " k " << c.k << " a " << static_cast<int>(c.a) << " b "
       << static_cast<int>(c.b) << " c " << static_cast<int>(c.c) << " bias " << c.bias << " lda+" << c.extra_lda << " ldc+" << c.extra_ldc
       << " unary " << static_cast<int>(c.unary) << " binary " << static_cast<int>(c.binary) << (c.binary_first ? " first" : "")
       << " other " << static_cast<int>(c.other) << (c.in_place ? " in place" : "") << " ld+" << c.extra_ld_other << " plain " << c.plain_b
       << " at " << c.offset_a << "," << c.offset_c << " threads " << c.threads << " seed " << c.seed;
  return text.str();
}

Problem::Problem(const Case& c) : case_(c) {
  const auto count = [](std::int64_t rows, std::int64_t columns, std::int64_t ld) {
    return static_cast<std::size_t>(rows == 0 ? 0 : (rows - 1) * ld + columns);
  };
  a_ = Guarded((static_cast<std::size_t>(c.offset_a) + count(c.m, c.k, lda())) * size_of(c.a));
  b_ = Guarded(static_cast<std::size_t>(c.k * c.n) * size_of(c.b));
  bias_ = Guarded(static_cast<std::size_t>(c.n) * (c.bias == 2 ? 2 : 4));
  c_ = Guarded((static_cast<std::size_t>(c.offset_c) + count(c.m, c.n, ldc())) * size_of(c.c));
  if (c.binary != Binary::kNone) {
    if (c.in_place) {
      case_.other = c.c;
      case_.extra_ld_other = c.extra_ldc;
    }
    other_ = Guarded(count(c.m, c.n, c.n + case_.extra_ld_other) * size_of(case_.other));
  }
  packed_ = Guarded(packed_b_bytes(c.k, c.n));
  std::mt19937 random(c.seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (std::int64_t m = 0; m < c.m; ++m) {
    for (std::int64_t k = 0; k < c.k; ++k) set_a(m, k, uniform(random));
  }
  for (std::int64_t i = 0; i < c.k * c.n; ++i) put(b_.data(), c.b, i, uniform(random));
  if (c.bias != 0) {
    for (std::int64_t n = 0; n < c.n; ++n) set_bias(n, uniform(random));
  }
  for (std::int64_t m = 0; c.binary != Binary::kNone && m < c.m; ++m) {
    for (std::int64_t n = 0; n < c.n; ++n) put(other_.data(), case_.other, m * (c.n + case_.extra_ld_other) + n, uniform(random));
  }
}

float Problem::a(std::int64_t m, std::int64_t k) const { return get(a_.data(), case_.a, case_.offset_a + m * lda() + k); }
float Problem::b(std::int64_t k, std::int64_t n) const { return get(b_.data(), case_.b, b_index(k, n)); }
float Problem::bias(std::int64_t n) const {
  return case_.bias == 0 ? 0.0f : get(bias_.data(), case_.bias == 1 ? DType::kF32 : DType::kBf16, n);
}
float Problem::c(std::int64_t m, std::int64_t n) const { return get(c_.data(), case_.c, case_.offset_c + m * ldc() + n); }

float Problem::other(std::int64_t m, std::int64_t n) const {
  return get(other_.data(), case_.other, m * (case_.n + case_.extra_ld_other) + n);
}

void Problem::set_a(std::int64_t m, std::int64_t k, float value) { put(a_.data(), case_.a, case_.offset_a + m * lda() + k, value); }
void Problem::set_b(std::int64_t k, std::int64_t n, float value) { put(b_.data(), case_.b, b_index(k, n), value); }
void Problem::set_bias(std::int64_t n, float value) { put(bias_.data(), case_.bias == 1 ? DType::kF32 : DType::kBf16, n, value); }

LinearArgs Problem::args() const {
  LinearArgs args;
  args.a = a_.data() + static_cast<std::size_t>(case_.offset_a) * size_of(case_.a);
  args.a_dtype = case_.a;
  args.lda = lda();
  args.packed_b = packed_.data();
  args.bias = case_.bias == 0 ? nullptr : bias_.data();
  args.bias_dtype = case_.bias == 2 ? DType::kBf16 : DType::kF32;
  args.c = c_.data() + static_cast<std::size_t>(case_.offset_c) * size_of(case_.c);
  args.c_dtype = case_.c;
  args.ldc = ldc();
  args.m = case_.m;
  args.n = case_.n;
  args.k = case_.k;
  args.epilogue.unary = case_.unary;
  args.epilogue.binary = case_.binary;
  args.epilogue.binary_first = case_.binary_first;
  args.epilogue.other = case_.in_place ? args.c : other_.data();
  args.epilogue.other_dtype = case_.other;
  args.epilogue.ld_other = case_.n + case_.extra_ld_other;
  return args;
}

void Problem::pack(const Parallel& parallel) {
  const MatrixB b{b_.data(), case_.b, case_.k, case_.n, case_.plain_b ? case_.n : 1, case_.plain_b ? 1 : case_.k};
  pack_b(b, packed_.data(), parallel, isa_of_process());
}

bool Problem::run(IsaSet isa) { return run(isa, thread_parallel(case_.threads)); }

bool Problem::run(IsaSet isa, const Parallel& parallel) {
  std::memset(c_.data(), kFill, c_.bytes());
  if (case_.in_place && other_.bytes() > 0)
    std::memcpy(c_.data() + static_cast<std::size_t>(case_.offset_c) * size_of(case_.c), other_.data(), other_.bytes());
  pack(parallel);
  return linear_bf16(args(), parallel, isa);
}

std::string Problem::difference() const {
  constexpr double kEps = std::numeric_limits<float>::epsilon() / 2;
  std::ostringstream text;
  const auto at = [this](std::int64_t major, std::int64_t k) { return static_cast<std::size_t>(major * case_.k + k); };
  std::vector<double> weight(static_cast<std::size_t>(case_.n * case_.k));
  for (std::int64_t n = 0; n < case_.n; ++n) {
    for (std::int64_t k = 0; k < case_.k; ++k) weight[at(n, k)] = rounded(b(k, n));
  }
  // The truth of a large case is computed for evenly spread rows and the last one.
  const std::int64_t step = 1 + 2 * (case_.m * case_.n * case_.k / 2000000);
  std::vector<double> row(static_cast<std::size_t>(case_.k));
  for (std::int64_t m = 0; m < case_.m; m = m + step < case_.m || m + 1 == case_.m ? m + step : case_.m - 1) {
    for (std::int64_t k = 0; k < case_.k; ++k) row[static_cast<std::size_t>(k)] = rounded(a(m, k));
    for (std::int64_t n = 0; n < case_.n; ++n) {
      double sum = static_cast<double>(bias(n));
      float one = 0;
      Epilogue epilogue = args().epilogue;
      if (epilogue.binary != Binary::kNone) {
        one = other(m, n);
        epilogue.other = &one;
        epilogue.other_dtype = DType::kF32;
      }
      double magnitude = std::fabs(sum);
      const double* column = weight.data() + n * case_.k;
      for (std::int64_t k = 0; k < case_.k; ++k) {
        const double product = row[static_cast<std::size_t>(k)] * column[k];
        sum += product;
        magnitude += std::fabs(product);
      }
      const double seen = static_cast<double>(c(m, n));
      if (std::isnan(sum) || std::isinf(sum)) {
        if (std::isnan(sum) == std::isnan(seen) && (std::isnan(sum) || sum == seen)) continue;
      } else {
        // |error| <= (additions) * u * sum of |terms|, each addition rounded once; a bf16 C is rounded once more.
        double bound = static_cast<double>(case_.k + 2) * kEps * magnitude;
        if (epilogue.any()) {
          // No function is steeper than 1.13, no other operand above 1; activation.h bounds the functions' own errors.
          bound = 1.2 * bound + 6e-7 * (std::fabs(sum) + 1);
          sum = ref::finished(epilogue, 0, 0, sum);
        }
        if (case_.c == DType::kBf16) bound += (std::fabs(sum) + bound) / 256;
        if (std::fabs(seen - sum) <= bound) continue;
      }
      text << "C[" << m << "," << n << "] is " << seen << ", truth " << sum;
      return text.str();
    }
  }
  const std::size_t element = size_of(case_.c);
  const std::size_t all = c_.bytes() / element;
  for (std::size_t i = 0; i < all; ++i) {
    const std::int64_t place = static_cast<std::int64_t>(i) - case_.offset_c;
    if (place >= 0 && place % ldc() < case_.n) continue;
    for (std::size_t byte = 0; byte < element; ++byte) {
      if (c_.data()[i * element + byte] != static_cast<char>(kFill)) return "memory between rows of C was written";
    }
  }
  return "";
}

std::string Problem::c_bytes() const { return {c_.data(), c_.bytes()}; }

}  // namespace ipexrun::kernels::test
