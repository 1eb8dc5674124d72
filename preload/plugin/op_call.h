// One call of the user's program to an op that has candidates, as its adapter found it: the interface between what all ops share
// (sites, selection, weights, accuracy checks: answer.h, op_trial.h) and what is one op's own (adapters/).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "preload/plugin/tier_state.h"
#include "preload/select/accuracy.h"
#include "preload/select/weights.h"

namespace ipexrun::preload {

enum class Op : int {
#define IPEXRUN_OP(id, name, overload, kind, adapter, dtypes, weight) id,
#include "preload/plugin/ops.def"
#undef IPEXRUN_OP
};
/// The schema's name without the namespace, the overload after a dot.
const char* op_name(Op op) noexcept;

/// Of SiteId::form: what its lowest bits are, and the one that tells training steps from other calls.
inline constexpr std::uint32_t kFormDtypeBits = 0xff;
inline constexpr std::uint32_t kFormTraining = 1u << 31;
inline constexpr std::uint32_t kFormExact = 1u << 30;  ///< the site of those calls that drift kept from another one's bf16

/// Why a call never came to selection; words for people in decline_word().
enum class Declined : int {
  kDtype,     ///< no candidate computes in it, or the operands differ in it
  kLayout,    ///< strides that candidates do not read
  kSmall,     ///< too little work to pay for looking it up
  kForm,      ///< arguments that candidates do not do, or that stock raises for
  kKind,      ///< not a plain dense CPU tensor: a subclass, functorch, a mode, conjugate or negative bit
  kBackward,  ///< inside a backward pass
  kSettings,  ///< deterministic algorithms, oneDNN switched off, or inside a parallel region
};
inline constexpr std::size_t kDeclinedCount = 7;
const char* decline_word(Declined why) noexcept;

inline constexpr std::size_t kOpCount = 0
#define IPEXRUN_OP(id, name, overload, kind, adapter, dtypes, weight) +1
#include "preload/plugin/ops.def"
#undef IPEXRUN_OP
    ;

/// Counts of one op since the start of the process.
struct OpCounts {
  std::atomic<std::uint64_t> looked_at{0};                            ///< calls but for `small`
  std::atomic<std::uint64_t> small{0};                                ///< declined by their sizes before anything else was asked (answer.h)
  std::array<std::atomic<std::uint64_t>, kDeclinedCount> declined{};  ///< of those looked at

  [[nodiscard]] std::uint64_t calls() const noexcept {
    return looked_at.load(std::memory_order_relaxed) + small.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t declined_for(Declined why) const noexcept {
    const std::uint64_t found = declined[static_cast<std::size_t>(why)].load(std::memory_order_relaxed);
    return why == Declined::kSmall ? found + small.load(std::memory_order_relaxed) : found;
  }
};
OpCounts& counts_of(Op op) noexcept;

/// What an op returns. `more` is empty for all but a few ops; an empty vector allocates nothing.
struct Outputs {
  at::Tensor first;
  std::vector<at::Tensor> more;

  Outputs() = default;
  Outputs(at::Tensor only) : first(std::move(only)) {}  // NOLINT(google-explicit-constructor): most ops return one tensor
  [[nodiscard]] bool defined() const { return first.defined(); }
};

/// A packed weight in the layout of one candidate.
class TensorPack : public Pack {
 public:
  explicit TensorPack(at::Tensor packed, std::size_t bytes) : packed_(std::move(packed)), bytes_(bytes) {}
  [[nodiscard]] std::size_t size_bytes() const noexcept override { return bytes_; }
  [[nodiscard]] const at::Tensor& packed() const { return packed_; }

 private:
  at::Tensor packed_;
  std::size_t bytes_;
};

inline constexpr int kMaxWeights = 2;
using Packs = std::array<const TensorPack*, kMaxWeights>;

/// Holds pointers to the user's tensors and outlives none of them. Used by one thread.
class OpCall {
 public:
  Op op{};
  Declined declined = Declined::kForm;  ///< why an adapter found that the call does not fit
  bool backward = false;                ///< inside a backward pass
  std::optional<bool> steps;  ///< whether the weight of a recorded forward call changes with the program's steps, where that is known
  bool training = false;      ///< part of a training step: operands change with each, so nothing of them is kept (training_guard.h)

  virtual ~OpCall() = default;

  /// `holds`, and the reason for the report if it does not.
  bool is(Declined otherwise, bool holds) {
    if (!holds) declined = otherwise;
    return holds;
  }

  [[nodiscard]] virtual SiteId site_id() const = 0;
  /// The same as text, and the numbers of the candidates that fit such a call in racing order: asked once a site.
  [[nodiscard]] virtual SiteKey site_key(const SiteId& id, const TierOptions& options) const = 0;
  [[nodiscard]] virtual std::vector<int> candidates(const TierOptions& options) const = 0;

  /// Whether candidates may compute in another dtype than asked for by the call: where --dtype bfloat16 wants them even if slower.
  [[nodiscard]] virtual bool changes_dtype() const { return true; }

  /// How many operands may be weights with packs, at most kMaxWeights, and which.
  [[nodiscard]] virtual int weight_count() const { return 0; }
  [[nodiscard]] virtual const at::Tensor* weight(int i) const {
    static_cast<void>(i);
    return nullptr;
  }
  /// How it is viewed, as {sizes, strides}; the same for every call that may share its packs. The sizes are {k, n} of the site's id.
  virtual void weight_view(int i, WeightKey* key) const {
    static_cast<void>(i);
    static_cast<void>(key);
  }
  /// Packs it for `candidate`; may throw.
  [[nodiscard]] virtual std::shared_ptr<const TensorPack> pack(int i, int candidate) const {
    static_cast<void>(i);
    static_cast<void>(candidate);
    return nullptr;
  }

  /// Computes the call; results have the dtype, shape and strides of stock's. `packs` are those of the weights, null for a call without.
  /// May throw; nothing defined means that the candidate could not.
  [[nodiscard]] virtual Outputs run(int candidate, const Packs& packs, IsaSet isa) const = 0;

  /// The accuracy rule, with fp64 truth at sampled places. Both have stock's dtype, shape and strides.
  [[nodiscard]] virtual bool accurate(const Outputs& stock, const Outputs& result, int candidate) const = 0;

  /// Whether one of its operands holds nothing but whole numbers at sampled places: ones and zeros that pick, counts, tables. Their product
  /// is exact in float32, and may be in bf16 in one call and not in the next.
  [[nodiscard]] virtual bool counts() const { return false; }

  /// In a backward pass: whether the edges of gradients among the operands are finite. NaN in a loss is there in a whole row or column.
  [[nodiscard]] virtual bool gradients_finite() const { return true; }

  /// In-place and out= overloads: moves results that were computed aside to where the user wants them. Their own cost is part of a
  /// candidate's time, so it is asked for a spare place while exploring.
  [[nodiscard]] virtual bool delivers() const { return false; }
  virtual void deliver(Outputs* results) const { static_cast<void>(results); }
  virtual void deliver_aside(const Outputs& results) const { static_cast<void>(results); }
};

}  // namespace ipexrun::preload
