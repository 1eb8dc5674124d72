// When bf16 leaves a training run: NaN or infinity in the gradients with which a backward pass begins or in a loss that the program reads,
// or checks that fail one after the other. Torch-free. From then on training steps compute in float32, for good: what a run that diverges
// needs is one cause less.
//
// And whether the process trains at all: backward passes between which no weight changes give gradients that are results of the program
// (forces, attributions), not steps on a way that forgives rounding. Those stay float32.
//
// Thread rule: all functions may be called from any thread; passes of several threads share one look.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ipexrun::preload {

inline constexpr int kFailedChecks = 3;  ///< kinds of call whose results failed when they were checked again
/// Calls of a kind after which its accuracy is checked again: when their number is a power of two from here on.
inline constexpr std::uint64_t kFirstRecheck = 256;
inline constexpr std::uint32_t kPassesOfAStep = 64;  ///< backward passes between two changes of a weight at most: a large batch in parts

class TrainingGuard {
 public:
  using Sample = std::array<float, 8>;  ///< some elements of a weight, from places of it that are always the same

  /// A backward pass that was not seen before began: its first product is looked at.
  void begin_backward() noexcept {
    look_.store(true, std::memory_order_relaxed);
    forward_.store(false, std::memory_order_relaxed);
    passes_.fetch_add(1, std::memory_order_relaxed);
  }

  /// A weight is used in a forward pass that is recorded; `tensor` only names it. Gives whether steps change it: it changed since its last
  /// use, or fewer backward passes ago than lay between two changes of it before. Some weights are watched, each in a place of its own; of
  /// one that finds its places taken by others, which were used lately, what is said is that of others of the pass.
  ///
  /// A step moves elements: of float32 weights `sample` is compared. It need not move the version (weight.data is written or replaced,
  /// torch's fused optimizers), but then moves elements by a part of their size: another weight in the same place has other ones. And a
  /// version alone says nothing where elements are given (values that were put back).
  bool saw_weight(const void* tensor, std::uint32_t version, const std::optional<Sample>& sample = std::nullopt) noexcept {
    const auto name = reinterpret_cast<std::uintptr_t>(tensor);
    const std::uint64_t now = static_cast<std::uint64_t>(name) << 16 | (version & 0xffff);  // user addresses have 47 bits
    const std::uint32_t pass = passes_.load(std::memory_order_relaxed);
    Place* found = place_of(name, pass);
    if (found == nullptr) return steps() && pass_.load(std::memory_order_relaxed) == pass;
    Place& place = *found;
    const std::uint64_t was = place.weight.load(std::memory_order_relaxed);
    const bool same = was >> 16 == now >> 16;
    if (was == now && place.pass.load(std::memory_order_relaxed) == pass) return steps_at(place, pass);
    const std::uint32_t told = told_.load(std::memory_order_relaxed);
    const bool stepped = place.told.exchange(told, std::memory_order_relaxed) != told || !tells_.load(std::memory_order_relaxed);
    const bool changed = place.moved(sample, was != now) && same && stepped;
    place.weight.store(now, std::memory_order_relaxed);
    place.pass.store(pass, std::memory_order_relaxed);
    if (!same) {
      place.gap.store(0, std::memory_order_relaxed);
      place.changed.store(pass, std::memory_order_relaxed);
    } else if (changed) {
      const std::uint32_t since = std::clamp(pass - place.changed.load(std::memory_order_relaxed), 1U, kPassesOfAStep);
      place.gap.store(std::max(since, place.gap.load(std::memory_order_relaxed)), std::memory_order_relaxed);
      place.changed.store(pass, std::memory_order_relaxed);
    }
    const bool steps = steps_at(place, pass);
    if (pass_.exchange(pass, std::memory_order_relaxed) != pass) {
      steps_.store(steps, std::memory_order_relaxed);
    } else if (steps) {
      steps_.store(true, std::memory_order_relaxed);
    }
    return steps;
  }
  /// Every step of an optimizer is told from now on, so that weights which change without one are changed by the program, or by a library
  /// that knows functions of numbers alone: such searches compare losses to more digits than bf16 gives.
  void steps_are_told() noexcept { tells_.store(true, std::memory_order_relaxed); }
  void stepped() noexcept { told_.fetch_add(1, std::memory_order_relaxed); }
  /// Whether steps change one of the weights that were used since the last backward pass began, or where none was, before it.
  [[nodiscard]] bool steps() const noexcept { return steps_.load(std::memory_order_relaxed); }

  [[nodiscard]] bool wants_look() noexcept {
    return look_.load(std::memory_order_relaxed) && look_.exchange(false, std::memory_order_relaxed);
  }
  void looked(bool finite) noexcept {
    if (!finite && used_.load(std::memory_order_relaxed)) leave("NaN or infinity in the gradients that a backward pass began with");
  }

  /// bf16 answered a call of a training step: whatever goes wrong from here on may be its doing.
  void note_use(bool forward) noexcept {
    if (!used_.load(std::memory_order_relaxed)) used_.store(true, std::memory_order_relaxed);
    if (forward && !forward_.load(std::memory_order_relaxed)) forward_.store(true, std::memory_order_relaxed);
  }
  /// Whether bf16 answered in a forward pass whose backward pass did not begin: a number that the program reads now may be its loss.
  [[nodiscard]] bool expects_loss() const noexcept { return forward_.load(std::memory_order_relaxed) && !off(); }
  void saw_bad_loss() noexcept { leave("NaN or infinity in a loss that the program looked at"); }
  /// A kind of call that was accurate when it was chosen is not any more.
  void note_failure() noexcept {
    if (failed_.fetch_add(1, std::memory_order_relaxed) + 1 == kFailedChecks)
      leave("results that are no longer as accurate as when they were chosen");
  }

  /// What the program does with its gradients forgives no rounding (line searches, gradients of gradients). Nothing is said where bf16
  /// never answered.
  void needs_exact(const char* why) noexcept { leave(why, used_.load(std::memory_order_relaxed)); }

  /// Whether training steps keep to float32, and why.
  [[nodiscard]] bool off() const noexcept { return reason_.load(std::memory_order_relaxed) != nullptr; }
  [[nodiscard]] const char* reason() const noexcept {
    const char* why = reason_.load(std::memory_order_relaxed);
    return why == nullptr ? "" : why;
  }
  /// Says so when bf16 is given up; set once, before the first step.
  using OnLeave = void (*)(const char* reason);
  void on_leave(OnLeave tell) noexcept { tell_ = tell; }

  [[nodiscard]] static bool is_recheck(std::uint64_t call) noexcept { return call >= kFirstRecheck && (call & (call - 1)) == 0; }

 private:
  void leave(const char* why, bool aloud = true) noexcept {
    const char* none = nullptr;
    if (reason_.compare_exchange_strong(none, why, std::memory_order_relaxed) && aloud && tell_ != nullptr) tell_(why);
  }

  static constexpr std::size_t kWeights = 128;
  static constexpr std::size_t kTries = 4;
  static constexpr float kStepAtMost = 0.25F;

  struct Place {
    std::atomic<std::uint64_t> weight{0};   ///< tensor and version
    std::atomic<std::uint32_t> pass{0};     ///< in which it was used last
    std::atomic<std::uint32_t> changed{0};  ///< in which it was found changed last, or was seen first
    std::atomic<std::uint32_t> told{0};     ///< steps, at its last use
    std::atomic<std::uint32_t> gap{0};      ///< passes between two changes at most; 0: none was seen
    std::array<std::atomic<float>, std::tuple_size_v<Sample>> sample{};

    /// Keeps what is there now, and tells whether that is a step.
    bool moved(const std::optional<Sample>& elements, bool version_moved) noexcept {
      if (!elements) return version_moved;
      float by = 0;
      float size = 0;
      for (std::size_t i = 0; i < sample.size(); ++i) {
        const float before = sample[i].exchange((*elements)[i], std::memory_order_relaxed);
        by += std::fabs((*elements)[i] - before);
        size += std::fabs(before);
      }
      return version_moved ? !(by == 0) : by > 0 && by <= kStepAtMost * size;  // NaN is a change
    }
  };

  /// Where the weight is watched, or may be from now on.
  Place* place_of(std::uintptr_t name, std::uint32_t pass) noexcept {
    Place* free = nullptr;
    for (std::size_t i = 0; i < kTries; ++i) {
      Place& place = weights_[((name >> 4 ^ name >> 12) + i) % kWeights];
      const std::uint64_t was = place.weight.load(std::memory_order_relaxed);
      if (was >> 16 == (static_cast<std::uint64_t>(name) << 16) >> 16) return &place;
      const bool unused = was == 0 || pass - place.pass.load(std::memory_order_relaxed) > kPassesOfAStep;
      if (free == nullptr && unused) free = &place;
    }
    return free;
  }

  static bool steps_at(const Place& place, std::uint32_t pass) noexcept {
    return pass - place.changed.load(std::memory_order_relaxed) < place.gap.load(std::memory_order_relaxed);
  }

  std::array<Place, kWeights> weights_{};
  std::atomic<std::uint32_t> passes_{0};
  std::atomic<std::uint32_t> pass_{0};  ///< to which steps_ belongs
  std::atomic<bool> steps_{false};
  std::atomic<bool> tells_{false};
  std::atomic<std::uint32_t> told_{0};
  std::atomic<bool> look_{false};
  std::atomic<bool> used_{false};
  std::atomic<bool> forward_{false};
  std::atomic<int> failed_{0};
  std::atomic<const char*> reason_{nullptr};
  OnLeave tell_ = nullptr;
};

}  // namespace ipexrun::preload
