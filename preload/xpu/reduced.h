// Products and convolutions of float32 in unedited programs that compute with 16 bits inside: `ipexrun xpu --dtype`
// (docs/xpu.md#unedited-programs). Results stay float32, and lie as they would. What autocast does to a program is done to each such
// operator by itself, so nothing that the program sees changes its type.
//
// auto: bfloat16, on devices with matrix units, where a kind of call was measured to be faster. bfloat16, float16: as asked. Either only
// where the first call of the kind, and later ones, came near enough to float32 (rules.md's bound of one operator, float32's own result
// being the truth, each row or image by itself). float16 leaves training alone: its range wants a loss scale, which is the program's to
// bring.
//
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace ipexrun::preload::xpu {

/// One call of an operator.
struct ReducedCall {
  const char* op;                  ///< for the report
  std::vector<std::int64_t> kind;  ///< what calls of one kind have in common
  /// The results with `inside` (float32, bfloat16, float16), float32 and in memory of their own. Changes no argument.
  std::function<std::vector<at::Tensor>(at::ScalarType inside)> compute;
  std::vector<std::int64_t>
      leading;  ///< by result: so many of its first dimensions count what is compared by itself (0: all of it together)
};

/// What the call computes with inside: float32 where `results` is empty and nothing else was decided. Where `results` is not empty the call
/// is answered by them. `inputs`: the operator's tensors, some may be undefined.
at::ScalarType choose_inside(const ReducedCall& call, std::initializer_list<at::Tensor> inputs, std::vector<at::Tensor>& results);

/// Whether choose_inside() could say anything but float32; false also inside a compute() of this thread.
bool may_reduce(const at::Tensor& on);

/// A size as kinds of calls have it: the next power of two.
std::int64_t bucket(std::int64_t size);

/// While it lives, operators of this thread stay as they are: a convolution's products are the convolution's business.
class KeepInside {
 public:
  KeepInside();
  ~KeepInside();
  KeepInside(const KeepInside&) = delete;
  KeepInside& operator=(const KeepInside&) = delete;

 private:
  bool before_;
};

/// JSON: [{"op", "inside", "choice", "reason", "calls", "answered"}, ...], a row a kind.
std::string reduced_json();
void register_reduced();

}  // namespace ipexrun::preload::xpu
