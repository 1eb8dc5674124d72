// Side tables of packed weights: which tensors are weights, which packs they have, and whether those are still true.
//
// Torch-free: a weight is {key, version, bytes, liveness}. Rules.md "Packs" is the specification; docs/limits-op-tier.md says what
// the sampled check can miss. All functions may be called from any thread. No lock is held while bytes are hashed or packed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/parallel.h"
#include "preload/select/clock.h"
#include "preload/select/drift.h"

namespace ipexrun::preload {

/// Where a weight lies and how it is viewed. Never the tensor object: `linear` hands its op a temporary view.
struct WeightKey {
  const void* storage = nullptr;
  const void* data = nullptr;
  std::int64_t offset = 0;
  std::array<std::int64_t, 2> sizes{};
  std::array<std::int64_t, 2> strides{};
  int dtype = 0;
  friend bool operator==(const WeightKey&, const WeightKey&) = default;
};

struct WeightKeyHash {
  std::size_t operator()(const WeightKey& key) const noexcept;
};

/// Whether the storage of a key still belongs to somebody. Holding one keeps the storage's address from being reused.
class Liveness {
 public:
  virtual ~Liveness() = default;
  [[nodiscard]] virtual bool alive() const noexcept = 0;
};

inline constexpr std::int64_t kNoVersion = -1;  ///< tensors made under inference_mode count no versions

/// One use of a weight, as the call sees it.
struct WeightUse {
  WeightKey key;
  std::int64_t version = kNoVersion;
  std::size_t size_bytes = 0;  ///< of the region from key.data that holds the view
  bool wants_grad = false;     ///< grad mode is on and the weight requires grad
  bool blind = false;          ///< its version does not move with the weight's: only the bytes tell
  std::int64_t op_ns = 0;      ///< what the op takes, 0 = not known yet; decides whether a full hash is cheap
};

/// A copy of a weight in a kernel's own layout; immutable.
class Pack {
 public:
  virtual ~Pack() = default;
  [[nodiscard]] virtual std::size_t size_bytes() const noexcept = 0;
};

inline constexpr int kMaxCandidates = 9;  ///< candidates are numbered 1..8 in verdicts and packs
inline constexpr int kSightings = 2;      ///< earlier uses with the same bytes before a weight may be packed
/// A weight is checked beside stock, and packed, which takes as long as some four calls: one that dies before so many uses gains nothing.
/// Programs that make models all the time teach patience: once so many weights died, each next one waits for twice as many uses as these
/// had in the mean.
inline constexpr int kUsesThatPay = 16;
inline constexpr int kDeathsThatTeach = 64;
inline constexpr int kForwardCalls = 16;    ///< earlier uses without any backward pass before a weight that wants grad may be
inline constexpr int kUnstableAfter = 2;    ///< value changes that cost a pack, after which the weight stays stock
inline constexpr int kMaxRoomBackoff = 20;  ///< a weight without room waits for at most 2^20 of its own calls
inline constexpr std::int64_t kFullHashEveryNs = 1'000'000'000;
inline constexpr std::int64_t kFullHashAtLeastEveryNs = 60'000'000'000;
inline constexpr std::int64_t kFullHashShare = 100;  ///< between these two so seldom that hashing all weights takes about 1/100 of the time
inline constexpr int kCheapHashDivisor = 50;         ///< a full hash is cheap below 1/50 (2%) of the op

/// Everything known about one weight. All but `id` and `key` is guarded by the table's mutex.
struct Weight {
  std::uint64_t id = 0;  ///< never 0, never reused
  WeightKey key;
  std::unique_ptr<Liveness> liveness;
  std::size_t size_bytes = 0;
  std::int64_t version = kNoVersion;
  std::uint64_t sampled = 0;        ///< sampled_hash at the last use
  std::uint64_t full = 0;           ///< full_hash that the packs stand for
  std::int64_t full_at_ns = 0;      ///< when it was last compared
  std::uint64_t backward_seen = 0;  ///< backward passes of the process when it was last compared
  int sightings = 0;                ///< uses with these bytes
  int forward_calls = 0;            ///< uses that wanted grad
  int value_changes = 0;            ///< times that a change of bytes cost a pack
  bool wanted_grad = false;
  std::uint64_t last_use = 0;
  std::uint64_t calls = 0;      ///< uses of this weight
  std::uint64_t pack_from = 0;  ///< value of `calls` before which no pack is made again: one had no room
  int rooms_lost = 0;           ///< times that a pack of it had no room or was evicted
  std::array<std::shared_ptr<const Pack>, kMaxCandidates> packs;
  DriftMark drift;                                       ///< not guarded
  std::vector<std::pair<std::uint64_t, bool>> verdicts;  ///< site number * kMaxCandidates + candidate -> accurate

  [[nodiscard]] bool packed() const;
  [[nodiscard]] std::uint64_t largest_pack_bytes() const;
};

enum class Verdict { kUnknown, kAccurate, kInaccurate };

/// What a call may do with the weight it met.
struct WeightState {
  std::shared_ptr<Weight> weight;                                 ///< null: not (yet) a weight, or one that stays stock
  std::array<std::shared_ptr<const Pack>, kMaxCandidates> packs;  ///< those that are valid for this call
};

struct WeightLimits {
  std::uint64_t hard_bytes = 0;  ///< never more packs than this
  /// Nor more than the original bytes of the weights met (twice that while a race runs). A pack that is larger than its weight by nature
  /// (tiles of a convolution take 16/9 or 4 times as much) counts as it is.
  bool bounded_by_weights = true;
  bool always_full_check = false;         ///< IPEXRUN_PACK_CHECK=full
  kernels::Parallel (*pool)() = nullptr;  ///< threads for hashing all bytes of a weight; null: the caller's alone
};

class WeightTable {
 public:
  WeightTable(Clock& clock, WeightLimits limits);

  /// Registers a use and says what is valid now. `make_liveness` is called when the key is new. `at_once` (a forced candidate)
  /// skips the waiting for earlier uses. Throws std::bad_alloc only.
  template <typename MakeLiveness>
  WeightState use(const WeightUse& use, MakeLiveness make_liveness, bool at_once) {
    std::shared_ptr<Weight> weight = find(use.key);
    const bool is_new = weight == nullptr;
    if (is_new) weight = insert(use, make_liveness());
    if (is_new && !at_once) return {};
    return check(weight, use, at_once);
  }

  /// Hashes the bytes that the next pack will be made from. Call right before packing: a write that comes between is noticed,
  /// because the pack then stands for a hash that the weight no longer has.
  void pin_bytes(Weight& weight, const WeightUse& use);
  /// Whether making a pack is worth it: false for a while, doubled each time, after one of this weight's packs had no room or made
  /// room for another's. A model larger than the memory for packs would otherwise pack every weight at every call.
  [[nodiscard]] bool may_pack(const Weight& weight) const;
  /// Stores a pack; false when there is no room for it. `racing`: a race needs it beside the winner so far.
  bool put(Weight& weight, int candidate, std::shared_ptr<const Pack> pack, bool racing);

  [[nodiscard]] Verdict verdict(const Weight& weight, std::uint32_t site, int candidate) const;
  void set_verdict(Weight& weight, std::uint32_t site, int candidate, bool accurate);

  /// Frees the packs of every candidate but `keep` of the weights with these sizes: a race over such a weight ended.
  void drop_losers(std::int64_t size0, std::int64_t size1, int dtype, std::uint32_t keep_mask);
  void drop_storage(const void* storage);
  /// One pack of a weight, which stays known.
  void drop_pack_of(Weight& weight, int candidate) noexcept;
  /// A weight that was met before, however often; null for others. Says nothing about its bytes.
  [[nodiscard]] std::shared_ptr<Weight> find(const WeightKey& key) const;
  /// Its number; 0 for others.
  [[nodiscard]] std::uint64_t id_of(const WeightKey& key) const;
  void drop_all() noexcept;
  /// A backward pass runs in this process: packs of weights that want grad go, the others are checked in full at their next use.
  void saw_backward() noexcept;
  /// Frees what belongs to freed storages.
  void sweep() noexcept;

  /// Bytes of all packs now.
  [[nodiscard]] std::uint64_t pack_bytes() const noexcept { return pack_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t weights() const;
  [[nodiscard]] bool read_only() const noexcept { return read_only_.load(std::memory_order_relaxed); }

  /// pthread_atfork: lock, and unlock in parent and child. The child keeps what there is and adds nothing.
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }
  void become_read_only() noexcept { read_only_.store(true, std::memory_order_relaxed); }

 private:
  std::shared_ptr<Weight> insert(const WeightUse& use, std::unique_ptr<Liveness> liveness);
  WeightState check(const std::shared_ptr<Weight>& weight, const WeightUse& use, bool at_once);
  std::uint64_t timed_full_hash(const WeightUse& use) noexcept;
  [[nodiscard]] std::int64_t full_hash_every_ns() const noexcept;
  [[nodiscard]] bool full_check_due(const Weight& weight, const WeightUse& use, std::int64_t now_ns) const;
  void drop_packs(Weight& weight) noexcept;
  void drop_pack(std::shared_ptr<const Pack>& pack) noexcept;
  static void wait_for_room(Weight& weight) noexcept;
  bool make_room(std::uint64_t needed_bytes, const Weight& keep, bool racing);
  void sweep_locked() noexcept;
  void note_death(const Weight& weight) noexcept;
  [[nodiscard]] int sightings_needed() const noexcept;
  [[nodiscard]] std::uint64_t bound_bytes(std::uint64_t needed_bytes, const Weight& keep, bool racing) const;

  Clock& clock_;
  const WeightLimits limits_;
  mutable std::mutex mutex_;
  std::unordered_map<WeightKey, std::shared_ptr<Weight>, WeightKeyHash> by_key_;
  std::uint64_t next_id_ = 1;
  std::uint64_t uses_ = 0;
  int deaths_ = 0;             ///< of weights that had been seen often enough
  double uses_at_death_ = 0;   ///< of these, the last ones counting most
  std::size_t sweep_at_ = 64;  ///< table size at which freed storages are looked for
  std::atomic<std::uint64_t> pack_bytes_{0};
  std::atomic<std::uint64_t> backward_seen_{0};
  std::atomic<std::int64_t> hash_ps_per_byte_{100};  ///< measured cost of full_hash, picoseconds a byte
  std::atomic<bool> read_only_{false};
};

}  // namespace ipexrun::preload
