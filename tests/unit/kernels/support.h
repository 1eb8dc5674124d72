// What the kernel tests share: buffers that end at an unreadable page, a thread pool, one linear call with its own truth.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "configs/base/isa.h"
#include "kernels/linear.h"

namespace ipexrun::kernels::test {

/// Memory whose last byte is followed, and whose first page is preceded, by a page that faults. Filled with 0x7f (a huge float and
/// a huge bf16), so that reading between rows shows. With IPEXRUN_TEST_NO_GUARD_BEHIND set the page behind is one more of those bytes.
class Guarded {
 public:
  Guarded() = default;
  explicit Guarded(std::size_t bytes);
  ~Guarded();
  Guarded(Guarded&& other) noexcept;
  Guarded& operator=(Guarded&& other) noexcept;

  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  char* map_ = nullptr;
  std::size_t map_bytes_ = 0;
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// How many of so many random shapes are tried: a quarter under a sanitizer, where the truth takes ten times as long.
constexpr int sampled(int shapes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return shapes / 4;
#else
  return shapes;
#endif
}

/// A Parallel over fresh std::threads, one a worker and call: slow, but with nothing shared between calls.
Parallel thread_parallel(int threads);

/// One worker after the other on a thread of its own, the last ones first: the first to run finds all pieces of work that workers share.
Parallel backward_parallel(int threads);

/// What the variants of a table need, without those that cannot run here, lowest (nothing: the reference) first.
template <typename Table>
std::vector<IsaSet> levels_of(const Table& table) {
  std::vector<IsaSet> levels;
  for (std::size_t i = table.count; i > 0; --i) {
    if (isa_has(isa_of_process(), table.first[i - 1].needs)) levels.push_back(table.first[i - 1].needs);
  }
  return levels;
}

/// levels_of() for the variants of linear.
std::vector<IsaSet> levels_here();

/// Name of the variant that an instruction set selects.
std::string variant_of(IsaSet isa);

struct Case {
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  DType a = DType::kF32;
  DType b = DType::kF32;
  DType c = DType::kF32;
  int bias = 0;  ///< 0 none, 1 fp32, 2 bf16
  std::int64_t extra_lda = 0;
  std::int64_t extra_ldc = 0;
  bool plain_b = false;       ///< B stored as [K, N] instead of a weight [N, K]
  std::int64_t offset_a = 0;  ///< elements in front of A (alignment)
  std::int64_t offset_c = 0;
  int threads = 1;
  std::uint32_t seed = 1;
  Unary unary = Unary::kNone;
  Binary binary = Binary::kNone;
  bool binary_first = false;
  DType other = DType::kF32;
  std::int64_t extra_ld_other = 0;
  bool in_place = false;  ///< C itself is what is combined with, as it was; `other` is then ignored
};

std::string describe(const Case& c, IsaSet isa);

/// Buffers of a case, filled with seeded numbers, and the result of a call.
class Problem {
 public:
  explicit Problem(const Case& c);

  [[nodiscard]] const Case& shape() const { return case_; }
  [[nodiscard]] float a(std::int64_t m, std::int64_t k) const;  ///< as stored
  [[nodiscard]] float b(std::int64_t k, std::int64_t n) const;
  [[nodiscard]] float bias(std::int64_t n) const;
  [[nodiscard]] float c(std::int64_t m, std::int64_t n) const;
  void set_a(std::int64_t m, std::int64_t k, float value);
  void set_b(std::int64_t k, std::int64_t n, float value);
  void set_bias(std::int64_t n, float value);

  [[nodiscard]] LinearArgs args() const;
  void pack(const Parallel& parallel = {});
  bool run(IsaSet isa);
  bool run(IsaSet isa, const Parallel& parallel);

  /// Empty when C equals the truth within the bound of fp32 summation, and nothing but C was written; else what differs.
  [[nodiscard]] std::string difference() const;
  /// All bytes of C's buffer.
  [[nodiscard]] std::string c_bytes() const;

 private:
  [[nodiscard]] std::int64_t lda() const { return case_.k + case_.extra_lda; }
  [[nodiscard]] std::int64_t ldc() const { return case_.n + case_.extra_ldc; }
  [[nodiscard]] std::int64_t b_index(std::int64_t k, std::int64_t n) const { return case_.plain_b ? k * case_.n + n : n * case_.k + k; }

  Case case_;
  [[nodiscard]] float other(std::int64_t m, std::int64_t n) const;

  Guarded a_, b_, bias_, c_, other_, packed_;
};

}  // namespace ipexrun::kernels::test
