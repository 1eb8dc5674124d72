// What the errors of the samples that were looked at say of samples that were not.
//
// The accuracy rule is relative and holds for each sample. A sample of many numbers is as large as the next one; one of two numbers (the
// scores of two classes) comes out near zero now and then, and what rounding adds to it does not. So a bound that holds for the samples of
// a check holds for others only where samples have many numbers, or where many were looked at. Torch-free;
// docs/decisions/0038-small-samples.md.
#pragma once

#include <cstdint>
#include <vector>

namespace ipexrun::preload {

/// What the norm of the errors of `numbers` numbers stays below in 999 samples of 1000, by the squares of `counted` errors, which sum to
/// `squares`: quantiles of chi-squared distributions by Wilson and Hilferty ("The distribution of chi-square", 1931), the upper one for the
/// sample, the lower one (1 of 20) for what `counted` errors may say too little. `counted` and `numbers`: from 1.
double error_norm_bound(double squares, std::uint64_t counted, std::uint64_t numbers) noexcept;

/// The relative errors of samples. Used by one thread at a time.
class SampleErrors {
 public:
  SampleErrors() = default;
  /// One error, of samples of which there are enough.
  SampleErrors(double worst) noexcept : worst_(worst) {}  // NOLINT(google-explicit-constructor): the usual case

  /// That of a sample of so many numbers (from 1). One that is known to the last bit is the same sample once more, and says nothing of
  /// others. May throw std::bad_alloc.
  void add(std::uint64_t numbers, double error);
  void add(const SampleErrors& others);

  [[nodiscard]] std::size_t samples() const noexcept;
  /// Of all; NaN if one was.
  [[nodiscard]] double worst() const noexcept { return worst_; }
  /// What the worst of a thousand samples is expected to have. A sample of n numbers is smaller than x times the usual in about x^n of all
  /// cases, so its error is beyond x times an error that k of m samples exceeded in a share k / (m x^n) of them. Of the worst, and of the
  /// one that a sixteenth is beyond, what says more counts: the worst may be a lucky one. Of less than 64 samples it is taken for 64 / m of
  /// what it seems.
  [[nodiscard]] double worst_of_a_thousand() const;
  /// What that is going to be at least, however small the errors of further samples are, once there are so many times as many.
  [[nodiscard]] double at_least_with(double times_as_many) const;

 private:
  struct Kind {
    std::uint64_t numbers;
    std::vector<double> errors;
  };
  std::vector<Kind> kinds_;
  double worst_ = 0;
};

}  // namespace ipexrun::preload
