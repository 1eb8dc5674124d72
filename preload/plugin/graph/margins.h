// Whether results computed with bf16 inside are large enough for what its rounding adds to them: the accuracy rule is relative and holds
// for each sample, and one of few numbers comes out near zero now and then (preload/select/small_samples.h,
// docs/decisions/0038-small-samples.md).
//
// Thread rule: any number of threads at once; a fork may happen at any moment.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace ipexrun::preload::graph {

using Results = std::vector<std::optional<at::Tensor>>;

class Margins {
 public:
  /// Numbers of a sample up to which it is asked: larger ones are as large as others.
  static constexpr std::int64_t kMostNumbers = 4096;

  /// How far ours were from torch's in one call; both are alike in all else. A sample is what has one index in the first dimension. Does
  /// nothing while another thread does the same, and after some hundred calls. May throw std::bad_alloc.
  void note(const Results& stock, const Results& mine);

  /// False where the errors that were seen would be too large for a sample of these results. Results that were never noted or differed by
  /// float32's rounding only, of other types than float32 and float64, with samples of zeros alone or of more than kMostNumbers pass.
  [[nodiscard]] bool cover(const Results& mine) const;

 private:
  struct Errors {
    double squares = 0;  ///< their sum
    double truth = 0;    ///< that of the results themselves
    double worst = 0;    ///< mean square of a sample
    std::uint64_t counted = 0;
  };
  using ByResult = std::vector<Errors>;

  std::mutex mutex_;                                   ///< of who notes; never waited for, so a fork leaves nobody waiting
  std::vector<std::unique_ptr<const ByResult>> made_;  ///< those of before as well: somebody may read them
  std::atomic<const ByResult*> now_{nullptr};
};

}  // namespace ipexrun::preload::graph
