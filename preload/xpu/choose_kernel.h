// Which of several kernels of ours answers a kind of call: decided by races on the program's own calls (docs/decisions/0032). What is taken
// without measuring answers meanwhile; another one takes its place where its numbers pass the accuracy rule and a race says that it is
// faster. In every process that uses the device; --select off (IPEXRUN_SELECT) and torch.use_deterministic_algorithms: no timing, no
// other kernel. No errors of its own: whatever fails leaves the call to the first kernel.
//
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "preload/select/accuracy.h"

namespace ipexrun::preload::xpu {

/// What calls of one kind have in common, in numbers, of which the first four are sizes for the report; unused ones are 0. Sizes that vary
/// from call to call are rounded up by bucket().
using KernelKind = std::array<std::int64_t, 24>;

/// Some results in float64, for the accuracy rule: of rows and columns 0, step, 2 * step, ...; of batches likewise.
struct SampleSteps {
  std::int64_t batch, row, column;
};

/// One call. Everything in it lives as long as the call.
struct KernelCall {
  const char* op;  ///< for the report and the cache of decisions
  KernelKind kind;
  c10::ArrayRef<const char*> candidates;  ///< their names, literals; the first one is what is taken without measuring
  double operations;                      ///< floating-point ones, about: small calls are not looked at
  c10::function_ref<void(int candidate, const at::Tensor& out)> compute;  ///< launches; changes nothing else
  /// float64, on the CPU; not given where all candidates add up in the same order.
  std::optional<c10::function_ref<at::Tensor(const SampleSteps& steps)>> truth;
  Precision precision;
};

/// The candidate that is to answer the call; -1: `out` holds the answer already.
int choose_kernel(const KernelCall& call, const at::Tensor& out);

/// While it lives, calls of this thread are not tried: somebody else is timing them.
class HoldTrials {
 public:
  HoldTrials();
  ~HoldTrials();
  HoldTrials(const HoldTrials&) = delete;
  HoldTrials& operator=(const HoldTrials&) = delete;

 private:
  bool before_;
};

/// JSON: [{"op", "sizes", "choice", "first", "reason", "decided", "gain", "pairs", "calls", "answered"}, ...], a row a kind of call.
/// `gain`: how many times as fast as the first candidate the choice is; `answered`: calls by another candidate than the first.
std::string kernel_choices_json();

}  // namespace ipexrun::preload::xpu
