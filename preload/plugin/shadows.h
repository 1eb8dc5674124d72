// What memory would hold if the program had computed with candidates: a shadow for each storage whose contents would differ.
//
// Keyed by storage, so that views, in-place writes and aliases need no bookkeeping. Used by one thread, while no dispatch of torch is
// watched.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/DimVector.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <unordered_map>

#include "preload/select/small_samples.h"

namespace ipexrun::preload {

class Shadows {
 public:
  /// Throws std::bad_alloc once all shadows together would need more than this.
  explicit Shadows(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  /// The shadow of a plain tensor, viewed as it is; undefined where there is none, or where the tensor's memory was written by something
  /// that did not go through the dispatcher.
  at::Tensor of(const at::Tensor& tensor);
  /// The same, made as a copy of the tensor's whole storage where there is none yet.
  at::Tensor of_or_copy(const at::Tensor& tensor);

  /// `tensor` was just made, and would have been `shadow`. `aside`: not the first thing that its op returns (the mean that a norm hands to
  /// its backward pass, say): a result of the pass only if somebody else still holds it at the end.
  void adopt(const at::Tensor& tensor, const at::Tensor& shadow, bool aside);
  /// Its memory was just written, and its shadow's likewise.
  void rewritten(const at::Tensor& tensor);
  void forget(const at::Tensor& tensor);
  /// A candidate that rounds had a part in it, since `now` (from 1) if not before. Other shadows differ from the user's memory by the last
  /// bits, or not at all.
  void note_rounded(const at::Tensor& tensor, std::uint64_t now);
  /// Since when; 0 where no candidate had a part.
  [[nodiscard]] std::uint64_t rounded_since(const at::Tensor& tensor) const;
  /// Somebody holds memory in which a candidate had a part.
  [[nodiscard]] bool hold_rounded() const;
  /// The program measures its results with it: it is not judged, unless it is written again.
  void note_measured(const at::Tensor& tensor);
  [[nodiscard]] bool is_measured(const at::Tensor& tensor) const;
  /// It was made outside of modules, or inside of one.
  void note_place(const at::Tensor& tensor, bool outside);
  /// The worst error judged so far of what was made outside of modules, or inside.
  [[nodiscard]] double worst(bool outside) const noexcept { return worst_[outside ? 1 : 0]; }
  /// Something else was computed from it: it is no result of the pass.
  void consumed(const at::Tensor& tensor);

  /// Relative RMS errors of the samples (rows of dimension 0) of the results so far: of what nothing was computed from, and of
  /// what somebody else still holds; 0/0 = 0; infinite where NaN or infinities lie elsewhere. Of tensors with a dimension: single numbers
  /// are what programs measure. The results are let go.
  SampleErrors judge_results();
  /// The same errors of what somebody holds now that a candidate had a part in, each once unless it is written again; nothing is let go.
  SampleErrors judge_held();
  /// Frees the shadows of memory that is gone.
  void sweep();
  /// The relative RMS error of the whole of one tensor; 0 without a shadow.
  double error_of(const at::Tensor& tensor);

 private:
  struct View {
    c10::DimVector sizes;
    c10::DimVector strides;
    std::int64_t offset = 0;
    caffe2::TypeMeta dtype;
  };
  struct Shadow {
    c10::weak_intrusive_ptr<c10::StorageImpl> of;  ///< keeps the address from being reused
    c10::Storage storage;
    std::uint64_t seen = 0;  ///< sampled hash of the user's bytes
    std::uint64_t rounded_since = 0;
    View view;              ///< the user's tensor when it was made
    c10::Storage result;    ///< keeps what nothing was computed from yet
    bool judged = false;    ///< as it is now, by judge_held
    bool measured = false;  ///< no result
    bool outside = false;   ///< made outside of modules
  };
  Shadow* find(const at::Tensor& tensor);
  Shadow& insert(const at::Tensor& tensor, c10::Storage storage);
  static at::Tensor viewed(const c10::Storage& storage, const View& view);
  static View view_of(const at::Tensor& tensor);
  static void add_errors(const Shadow& shadow, const c10::Storage& users, SampleErrors& errors);
  void judge(const Shadow& shadow, const c10::Storage& users, SampleErrors& errors);
  void erase(const c10::StorageImpl* storage);

  const std::uint64_t limit_bytes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t inserted_ = 0;
  double worst_[2] = {0, 0};
  std::unordered_map<const c10::StorageImpl*, Shadow> shadows_;
};

}  // namespace ipexrun::preload
