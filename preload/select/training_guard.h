// When bf16 leaves a training run: NaN or infinity in the gradients with which a backward pass begins or in a loss that the program reads,
// or checks that fail one after the other. Torch-free. From then on training steps compute in float32, for good: what a run that diverges
// needs is one cause less.
//
// And whether the process trains at all: backward passes between which no weight changes give gradients that are results of the program
// (forces, attributions), not steps on a way that forgives rounding. Those stay float32.
//
// Thread rule: all functions may be called from any thread; passes of several threads share one look.
#pragma once

#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace ipexrun::preload {

inline constexpr int kFailedChecks = 3;  ///< kinds of call whose results failed when they were checked again
/// Calls of a kind after which its accuracy is checked again: when their number is a power of two from here on.
inline constexpr std::uint64_t kFirstRecheck = 256;
inline constexpr std::uint32_t kPassesOfAStep =
    64;  ///< backward passes that may go by without a change of weights: gradients of a large batch in parts

class TrainingGuard {
 public:
  using Sample = std::array<float, 4>;  ///< some elements of a weight, from places of it that are always the same

  /// A backward pass that was not seen before began: its first product is looked at.
  void begin_backward() noexcept {
    look_.store(true, std::memory_order_relaxed);
    forward_.store(false, std::memory_order_relaxed);
    passes_seen_.fetch_add(1, std::memory_order_relaxed);
    if (steps()) passes_.fetch_add(1, std::memory_order_relaxed);
  }

  /// A weight is used in a forward pass that is recorded; `tensor` only names it. Some weights are watched, each in a place of its own: one
  /// that finds its place taken by another, which was used lately, is not. A step that writes or replaces `weight.data` moves no version,
  /// but some of the elements in `sample`, by a part of their size; another weight in the same place has other ones.
  void saw_weight(const void* tensor, std::uint32_t version, const Sample& sample = {}) noexcept {
    const auto name = reinterpret_cast<std::uintptr_t>(tensor);
    const std::uint64_t now = static_cast<std::uint64_t>(name) << 16 | (version & 0xffff);  // user addresses have 47 bits
    const std::uint32_t pass = passes_seen_.load(std::memory_order_relaxed);
    Place& place = weights_[(name >> 4 ^ name >> 12) % kWeights];
    const std::uint64_t was = place.weight.load(std::memory_order_relaxed);
    const std::uint32_t last = place.pass.load(std::memory_order_relaxed);
    if (was == now && last == pass) return;
    const bool stepped = stepped_to(&place, sample);
    const bool same = was >> 16 == now >> 16;
    if (!same && was != 0 && pass - last <= kPassesOfAStep) return;
    place.weight.store(now, std::memory_order_relaxed);
    place.pass.store(pass, std::memory_order_relaxed);
    if (same && (was != now || stepped)) passes_.store(0, std::memory_order_relaxed);
  }
  /// An operator that is nothing but an optimizer's step ran; torch's fused ones write weights whose versions stay.
  void saw_step() noexcept { passes_.store(0, std::memory_order_relaxed); }
  /// Whether a weight changed not long ago.
  [[nodiscard]] bool steps() const noexcept { return passes_.load(std::memory_order_relaxed) <= kPassesOfAStep; }

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

  static constexpr std::size_t kWeights = 64;
  static constexpr float kStepAtMost = 0.25F;

  struct Place {
    std::atomic<std::uint64_t> weight{0};  ///< memory and version
    std::atomic<std::uint32_t> pass{0};    ///< in which it was used last
    std::array<std::atomic<float>, 4> sample{};
  };

  /// Keeps what is there now. Whether it is near to what was there and not the same.
  static bool stepped_to(Place* place, const Sample& sample) noexcept {
    float moved = 0;
    float size = 0;
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const float before = place->sample[i].exchange(sample[i], std::memory_order_relaxed);
      moved += std::fabs(sample[i] - before);
      size += std::fabs(before);
    }
    return moved > 0 && moved <= kStepAtMost * size;
  }

  std::array<Place, kWeights> weights_{};
  std::atomic<std::uint32_t> passes_seen_{0};
  std::atomic<std::uint32_t> passes_{kPassesOfAStep + 1};  ///< backward passes since a weight changed
  std::atomic<bool> look_{false};
  std::atomic<bool> used_{false};
  std::atomic<bool> forward_{false};
  std::atomic<int> failed_{0};
  std::atomic<const char*> reason_{nullptr};
  OnLeave tell_ = nullptr;
};

}  // namespace ipexrun::preload
