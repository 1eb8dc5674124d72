// One file, though long: watching a pass, its replay and the verdict are one class, and a thread's hold on it.
#include "preload/plugin/drift_check.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <dlfcn.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <new>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "configs/base/log.h"
#include "preload/memory/room.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/boxed_arguments.h"
#include "preload/plugin/choices.h"
#include "preload/plugin/dispatcher.h"
#include "preload/plugin/drift_switch.h"
#include "preload/plugin/shadows.h"
#include "preload/plugin/tier.h"

namespace ipexrun::preload {
namespace {

/// Meant for torch's own C++ tests of modes: above autograd and autocast, in no tensor's key set, off unless a thread includes it.
constexpr c10::DispatchKey kWatchKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

constexpr std::uint64_t kMostOpsACall = 500;  ///< ops of all kinds for each call that has candidates, after which a check is given up
constexpr std::size_t kMostState = 16;        ///< operands of a pass that come from the one before and are looked at
constexpr std::uint64_t kMostOpsBetween = 4 * kMostOpsACall;  ///< two such calls

bool fallback_registered = false;  // written once at start
ThreadPasses thread_passes;
std::atomic<bool> python_ready{false};
std::atomic<int (*)()> module_depth{nullptr};  ///< null: a program without Python

bool inside_module() {
  const auto depth = module_depth.load(std::memory_order_relaxed);
  return depth != nullptr && depth() > 0;
}

bool python_would_stumble() {
  if (python_ready.load(std::memory_order_relaxed)) return false;
  const auto initialized = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  return initialized != nullptr && initialized() != 0;
}

/// Somebody else looks at the ops of this thread: a mode in Python, a transform. What runs twice would be seen twice.
bool others_watch() {
  return c10::impl::TorchDispatchModeTLS::any_modes_set() ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

const std::unordered_set<std::string>& our_ops() {
  static const auto* names = [] {
    auto* made = new std::unordered_set<std::string>;
    for (std::size_t op = 0; op < kOpCount; ++op) made->insert(op_name(static_cast<Op>(op)));
    return made;
  }();
  return *names;
}

/// Kernels of stock's that call such ops, though torch does not say so: the fast path of nn.TransformerEncoder.
bool calls_ours(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name == "aten::_transformer_encoder_layer_fwd" || name == "aten::_native_multi_head_attention";
}

bool is_ours(const c10::OperatorHandle& op) {
  if (calls_ours(op)) return true;
  const c10::OperatorName& name = op.operator_name();
  const std::string plain = name.name.substr(name.name.find("::") + 2);
  return our_ops().count(name.overload_name.empty() ? plain : plain + '.' + name.overload_name) > 0;
}

/// Of a plain tensor of real numbers; 0 of others.
double rms_of(const at::Tensor& tensor) {
  if (!plain(tensor) || !tensor.is_floating_point() || tensor.numel() == 0) return 0;
  return tensor.detach().to(at::kDouble).norm().item<double>() / std::sqrt(static_cast<double>(tensor.numel()));
}

/// What they give is uninitialized, and no operand's.
bool fills_nothing(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> names = {"aten::new_empty", "aten::new_empty_strided", "aten::empty_like"};
  return names.contains(op.operator_name().name);
}

class DriftCheck {
 public:
  /// `mark`: what passes begin with. `tail`: calls of ops without weights at the end of a pass, those before the first weight of the next
  /// one included. `apart`: as for calls_of_check().
  DriftCheck(TierState& state, std::uint64_t mark, std::uint64_t pass_calls, std::uint64_t tail, bool apart)
      : state_(state),
        mark_(mark),
        pass_calls_(pass_calls),
        tail_(tail),
        apart_(apart && pass_calls < kLeastCalls),
        wanted_calls_(calls_of_check(pass_calls, apart)),
        shadows_(std::max(state.options.weights.hard_bytes, free_memory_bytes() / 4)) {}

  void op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
  void adopt(const Outputs& result, const Outputs& replayed);
  void used(DriftMark& mark, std::shared_ptr<Weight> keeps);
  [[nodiscard]] bool begins_with(std::uint64_t mark) const { return mark == mark_; }
  /// Nobody may come to go on with it.
  void free_memory() { shadows_.sweep(); }
  /// Another thread is to go on with the next pass, and did its first call already. False where something that was rounded is still held,
  /// which that call may have read.
  bool go_on_in_another_thread();
  void count_replayed(c10::function_ref<std::uint64_t()> mark, bool may_move);

  /// A program that went on to something else would be watched for ever.
  [[nodiscard]] bool gone_astray() const {
    return ops_ > kMostOpsACall * (wanted_calls_ + kLeastCalls) || ops_ - ops_at_call_ > kMostOpsBetween;
  }
  [[nodiscard]] bool complete() const { return judged_calls_ >= wanted_calls_; }
  /// Between the last call of a pass and the next one: what the program's own code makes of the results.
  [[nodiscard]] bool between_passes() const { return calls_ == judged_calls_ + pass_calls_; }
  /// All weights of the pass were used.
  [[nodiscard]] bool near_the_end() const { return calls_ + tail_ >= judged_calls_ + pass_calls_; }
  void judge();
  void left_modules();
  /// Where the program's own pass begins, if this check began elsewhere; else 0.
  [[nodiscard]] std::uint64_t better_begin() const {
    if (!moved_) return 0;
    const auto fresh = first_fresh();
    return (fresh != begins_.end() ? fresh : begins_.begin())->mark;
  }
  [[nodiscard]] bool failed() const { return failed_; }
  /// Two passes were to be apart, and are not.
  [[nodiscard]] bool hangs_together() const { return apart_ && came_through_ && complete() && !moved_; }
  void finish();

  std::int64_t explored_ns = 0;
  bool by_threads = false;  ///< its passes are lives of threads

 private:
  void end_pass(bool may_move);
  void look_at_growth();
  void look_at_state(const at::Tensor& carried);
  bool may_run_twice(const c10::OperatorHandle& op);
  void run_alone(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::vector<c10::IValue>& arguments);
  void run_twice(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::vector<c10::IValue>& arguments);
  void take_over(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments, const c10::IValue* results,
                 const torch::jit::Stack& replayed);
  void came_from(std::uint64_t since);
  /// What an op outside of modules made of results.
  enum class Made {
    kResult,      ///< another one
    kMeasure,     ///< of how they differ among each other: not judged as long as little of it is rounding
    kComparison,  ///< with something else, or of equals: followed no further
  };
  Made made_by(const std::string& name, const std::vector<c10::IValue>& arguments, const c10::IValue* results, std::size_t count);

  /// A call of an op with a weight, on memory that was not rounded.
  struct Begin {
    std::uint64_t at;  ///< in ops
    std::uint64_t mark;
    bool chosen;  ///< that memory comes from a choice of the same pass
  };
  [[nodiscard]] std::vector<Begin>::const_iterator first_fresh() const {
    return std::find_if(begins_.begin(), begins_.end(), [](const Begin& one) { return !one.chosen; });
  }

  TierState& state_;
  const std::uint64_t mark_;
  const std::uint64_t pass_calls_;
  const std::uint64_t tail_;
  const bool apart_;
  std::uint64_t wanted_calls_;
  Shadows shadows_;
  std::uint64_t ops_ = 0;
  std::uint64_t ops_at_call_ = 0;  ///< when a call with candidates came last
  std::uint64_t calls_ = 0;
  std::uint64_t judged_calls_ = 0;
  std::uint64_t pass_began_ = 0;                              ///< in ops
  bool came_through_ = false;                                 ///< something that was rounded, from the pass before
  SampleErrors errors_;                                       ///< of its results
  std::size_t state_at_ = 0;                                  ///< how many operands came from the pass before into this one
  std::array<std::vector<double>, kMostState> state_errors_;  ///< of the first of them, from pass to pass
  bool grows_ = false;                                        ///< from pass to pass, and does not come to an end
  bool failed_ = false;
  bool operands_rounded_ = false;   ///< of the op that runs now
  bool operands_chosen_ = false;    ///< likewise: they come from a choice
  bool operands_measured_ = false;  ///< likewise: one of them is a Made::kMeasure
  bool rounding_ = false;           ///< it computes from such operands, or rounds itself
  bool was_rounded_ = false;        ///< there was a call with such operands
  bool lengthened_ = false;
  bool moved_ = false;
  bool steered_ = false;     ///< in the middle of a pass a choice among rounded values was used
  bool saw_module_ = false;  ///< something ran inside a call of a module
  Choices choices_;
  std::unordered_map<c10::OperatorName, bool> stock_alone_;  ///< no kernel of the user's own
  std::vector<Begin> begins_;  ///< after the first call on rounded memory; nothing that was rounded before one was used after it
  std::vector<DriftUse> uses_;
  std::unordered_set<const DriftMark*> known_uses_;
};

constinit thread_local bool replaying_here = false;  // asked at every call: no lazily made thread state
constinit thread_local bool apart_here = false;
constinit thread_local bool compiled_here = false;
constinit thread_local bool checking_here = false;

struct ThreadState {
  PassFinder finder;
  std::uint64_t since_weight = 0;  ///< calls
  // The thread's life, as ThreadPasses wants it.
  bool began = false;            ///< there was a call that has a mark
  std::uint64_t began_with = 0;  ///< mark of the first such call; 0 where a check took part
  std::uint64_t calls = 0;       ///< from it on
  std::uint32_t epoch = 0;       ///< of the finder, at that call
  DriftCheck* check = nullptr;
};

/// A check whose thread ended between two passes, for the next thread that begins as passes do. Owned.
std::atomic<DriftCheck*> check_left{nullptr};
std::atomic<int> others_since{0};  ///< threads that began otherwise since then
constexpr int kMostOthers = 64;    ///< after which nobody waits for that one
std::atomic<int> threads_refused{0};
constexpr int kMostRefused = 3;  ///< checks of threads' lives that came to no end, after which no more are begun

void end_thread(ThreadState& state);

/// Destructors of the program's own thread_local objects may come here after ours: they find an empty state.
ThreadState& here() {
  alignas(ThreadState) constinit static thread_local std::array<std::byte, sizeof(ThreadState)> room{};
  struct Life {
    ThreadState* const state = new (room.data()) ThreadState;
    ~Life() { end_thread(*state); }
  };
  static thread_local const Life life;
  return *std::launder(reinterpret_cast<ThreadState*>(room.data()));
}

class Replaying {
 public:
  Replaying() : was_(std::exchange(replaying_here, true)), start_ns_(steady_clock().thread_cpu_ns()) {}
  ~Replaying() {
    replaying_here = was_;
    if (here().check != nullptr && !was_) here().check->explored_ns += steady_clock().thread_cpu_ns() - start_ns_;
  }
  Replaying(const Replaying&) = delete;
  Replaying& operator=(const Replaying&) = delete;

 private:
  bool was_;
  std::int64_t start_ns_;
  const c10::InferenceMode no_graph_;
  const at::DisableRecordFunctionGuard not_in_profiles_;
};

void stop_watching() {
  c10::impl::tls_set_dispatch_key_included(kWatchKey, false);
  checking_here = false;
  delete std::exchange(here().check, nullptr);
}

void charge(TierState& state, std::int64_t explored_ns) { state.selector.charge(state.drift.unearned(explored_ns)); }

/// What so many calls take once more, about.
std::int64_t price_of(const TierState& state, std::uint64_t more_calls) {
  const std::uint64_t calls = std::max<std::uint64_t>(state.calls.load(std::memory_order_relaxed), 1);
  return static_cast<std::int64_t>(static_cast<double>(state.selector.tier_ns()) / static_cast<double>(calls) *
                                   static_cast<double>(more_calls));
}

/// Another one is to begin, at another place or for longer.
void postpone_check() {
  const std::int64_t explored_ns = here().check->explored_ns;
  charge(*tier(), explored_ns);
  stop_watching();
  tier()->drift.postpone(explored_ns);
}

void abort_check(const char* why) {
  if (here().check->by_threads) {  // which says nothing of the passes of a thread that lives on
    threads_refused.fetch_add(1, std::memory_order_relaxed);
    postpone_check();
  } else {
    charge(*tier(), here().check->explored_ns);
    stop_watching();
    tier()->drift.abort();
  }
  log::debug(std::string("drift check given up: ") + why);
}

void end_thread(ThreadState& state) {
  if (state.check != nullptr && state.check->between_passes()) {
    state.check->free_memory();
    others_since.store(0, std::memory_order_relaxed);
    check_left.store(std::exchange(state.check, nullptr), std::memory_order_release);  // none is there: a check claims the ledger
  } else if (state.check != nullptr) {
    abort_check("its thread ended");
  } else if (TierState* process = tier(); process != nullptr && state.epoch == process->drift.finder_epoch()) {
    thread_passes.ended(state.began_with, state.calls);
  }
  state.~ThreadState();
  new (&state) ThreadState;
  apart_here = true;  // no check begins any more
}

void DriftCheck::used(DriftMark& mark, std::shared_ptr<Weight> keeps) {
  rounding_ = true;
  if (!known_uses_.insert(&mark).second) return;
  uses_.push_back({&mark, std::move(keeps)});
}

void DriftCheck::adopt(const Outputs& result, const Outputs& replayed) {
  shadows_.adopt(result.first, replayed.first, false);
  if (rounding_) shadows_.note_rounded(result.first, ops_ + 1);
  for (std::size_t i = 0; i < result.more.size() && i < replayed.more.size(); ++i) {
    if (result.more[i].defined() && replayed.more[i].defined()) shadows_.adopt(result.more[i], replayed.more[i], true);
  }
}

void DriftCheck::op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    // Made of other ops, which come here one by one.
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kWatchKey), stack);
    return;
  }
  ++ops_;
  saw_module_ = saw_module_ || inside_module();
  const c10::impl::ExcludeDispatchKeyGuard unwatched(kWatchKey);
  const std::size_t count = op.schema().arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  bool shadowed = false;
  bool odd = false;
  operands_rounded_ = false;
  operands_measured_ = false;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!plain(tensor)) {
        odd = true;
      } else if (shadows_.of(tensor).defined()) {
        shadowed = true;
        operands_measured_ = operands_measured_ || shadows_.is_measured(tensor);
        if (const std::uint64_t since = shadows_.rounded_since(tensor); since != 0) {
          operands_rounded_ = true;
          if (tensor.dim() > 0) came_from(since);
          if (tensor.dim() > 0 && (since <= pass_began_ || between_passes())) look_at_state(tensor);
        }
      }
    });
  }
  rounding_ = operands_rounded_;
  operands_chosen_ = choices_.made(arguments);
  choices_.before(op, arguments, [this](const at::Tensor& tensor) { return shadows_.rounded_since(tensor) != 0; });
  const bool again = !failed_ && !odd && !others_watch() && (shadowed || is_ours(op)) &&
                     op.schema().getNamespace() == std::string_view("aten") && !is_drawn_at_random(op, arguments) && !fills_nothing(op) &&
                     may_run_twice(op);
  if (again) {
    run_twice(op, stack, arguments);
  } else {
    run_alone(op, stack, arguments);
  }
  const std::size_t results = op.schema().returns().size();
  const TierOff stock;
  choices_.after(op, stack->data() + (stack->size() - results), results, operands_rounded_);
}

bool DriftCheck::may_run_twice(const c10::OperatorHandle& op) {
  const auto [known, unknown] = stock_alone_.try_emplace(op.operator_name(), false);
  if (unknown) known->second = only_stock_answers(op);
  return known->second;
}

void DriftCheck::run_alone(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::vector<c10::IValue>& arguments) {
  {
    const TierOff stock;
    op.callBoxed(stack);
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (writes(op.schema(), arguments, i)) for_each_tensor(arguments[i], [&](const at::Tensor& tensor) { shadows_.forget(tensor); });
  }
}

void DriftCheck::run_twice(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::vector<c10::IValue>& arguments) {
  torch::jit::Stack replayed;
  try {
    const Replaying on_shadows;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const bool written = writes(op.schema(), arguments, i);
      replayed.push_back(with_tensors(arguments[i], [&](const at::Tensor& tensor) {
        const at::Tensor shadow = written ? shadows_.of_or_copy(tensor) : shadows_.of(tensor);
        return shadow.defined() ? shadow : tensor;
      }));
    }
  } catch (const std::exception&) {
    failed_ = true;
  }
  {
    const TierOff stock;
    op.callBoxed(stack);
  }
  if (failed_) return;
  try {
    const Replaying on_shadows;
    const NoWarnings said_already;
    op.callBoxed(&replayed);
    const std::size_t results = op.schema().returns().size();
    take_over(op.schema(), arguments, stack->data() + (stack->size() - results), replayed);
  } catch (const std::exception&) {
    failed_ = true;  // no memory, or values for which the op raises
  }
}

void DriftCheck::take_over(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments, const c10::IValue* results,
                           const torch::jit::Stack& replayed) {
  std::unordered_set<const c10::StorageImpl*> made;
  bool numbers_only = true;
  const auto note = [&](const at::Tensor& tensor) {
    if (!shadows_.of(tensor).defined()) return;
    if (rounding_) shadows_.note_rounded(tensor, ops_ + 1);
    shadows_.note_place(tensor, !inside_module());
    numbers_only = numbers_only && tensor.dim() == 0;
    made.insert(tensor.storage().unsafeGetStorageImpl());
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!writes(schema, arguments, i)) continue;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      shadows_.rewritten(tensor);
      note(tensor);
    });
  }
  for (std::size_t i = 0; i < replayed.size(); ++i) {
    std::vector<at::Tensor> shadows;
    for_each_tensor(replayed[i], [&](const at::Tensor& tensor) { shadows.push_back(tensor); });
    std::size_t next = 0;
    for_each_tensor(results[i], [&](const at::Tensor& tensor) {
      const std::size_t at = next++;
      if (at >= shadows.size() || !plain(tensor) || !plain(shadows[at])) return;
      // Integers (indices, tokens) steer what comes next: the shadow follows the user's.
      if (!tensor.is_floating_point() || tensor.numel() == 0) return;
      shadows_.adopt(tensor, shadows[at], i > 0);
      note(tensor);
    });
  }
  if (made.empty() || numbers_only) return;  // a loss, say: what it was computed from is still a result
  const Made kind = near_the_end() ? made_by(schema.name(), arguments, results, replayed.size()) : Made::kResult;
  if (kind != Made::kResult) {
    for (std::size_t i = 0; i < replayed.size(); ++i) {
      for_each_tensor(results[i], [&](const at::Tensor& tensor) {
        if (kind == Made::kMeasure) {
          shadows_.note_measured(tensor);
        } else {
          shadows_.forget(tensor);
        }
      });
    }
    return;
  }
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
      if (made.size() > made.count(storage)) shadows_.consumed(tensor);
    });
  }
}

/// What was rounded in one pass is not used in the next one, so no pass begins in between.
void DriftCheck::came_from(std::uint64_t since) {
  while (!begins_.empty() && begins_.back().at >= since) begins_.pop_back();
  came_through_ = came_through_ || since <= pass_began_;
}

/// What a program makes of results and something else (their distance from what was wanted) magnifies rounding: what it was made from is to
/// be judged instead. What a module computes is none: its results are held to the rule, near zero as they may be (the products of two
/// embeddings). Nor is what a program without modules computes, or what is made of results alone and is rounding for a good part (a
/// derivative from differences, a variance from squares, the error of a step of an integrator), unless that is what stock's is as well:
/// results beside those of another run.
DriftCheck::Made DriftCheck::made_by(const std::string& name, const std::vector<c10::IValue>& arguments, const c10::IValue* results,
                                     std::size_t count) {
  if (inside_module()) return Made::kResult;
  constexpr double kMostGrowth = 4;  // of the relative error in one op that ends a model: a norm, a softmax, a sum with a residual
  constexpr double kMostOfMeasure = 0.1;
  constexpr double kAsGoodAsEqual = 1e-5;  // stock's results beside others, as far as float32 goes in a whole model
  static const std::unordered_set<std::string> comparisons = {
      "aten::sub",      "aten::rsub",           "aten::sub_",      "aten::_cdist_forward", "aten::_euclidean_dist",
      "aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss"};
  double before = 0;
  double after = 0;
  double read = 0;
  double made = 0;
  bool beside_others = false;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      before = std::max(before, shadows_.error_of(tensor));
      read = std::max(read, rms_of(tensor));
      beside_others = beside_others || (tensor.dim() > 0 && tensor.is_floating_point() && shadows_.rounded_since(tensor) == 0);
    });
  }
  for (std::size_t i = 0; i < count; ++i) {
    for_each_tensor(results[i], [&](const at::Tensor& tensor) {
      after = std::max(after, shadows_.error_of(tensor));
      made = std::max(made, rms_of(tensor));
    });
  }
  const bool grew = after > kMostGrowth * before;
  if (!(after > kMaxDrift) || !(grew || operands_measured_)) return Made::kResult;
  if (grew && made <= kAsGoodAsEqual * read) return Made::kComparison;
  if (!saw_module_ && module_depth.load(std::memory_order_relaxed) != nullptr) return Made::kResult;
  if (grew && beside_others && comparisons.contains(name)) return Made::kComparison;
  return after <= kMostOfMeasure ? Made::kMeasure : Made::kResult;
}

/// What a pass begins with was computed in the pass before: the check began in the middle of the program's own pass, or the program goes on
/// from state. In the first case it is to begin where the program does (`may_move`: this was not tried), as where the pass is too far off
/// and may hold the program's measuring of the one before. In the second, and after such a move, what was rounded has to come through one
/// pass more.
///
/// Layers after a choice compute something else when it turns out otherwise. A choice at the end (the next token) is the program's result.
/// What lies behind a choice looks like a pass of its own, since nothing that was rounded comes through (a decoder of a codebook's
/// entries): one begins there only if it does so nowhere else (the token before).
void DriftCheck::count_replayed(c10::function_ref<std::uint64_t()> mark, bool may_move) {
  const bool chose = choices_.were_used();
  if (between_passes()) {
    end_pass(may_move);
  } else if (chose || (was_rounded_ && !operands_rounded_)) {
    const std::uint64_t here = mark();
    const bool has_weight = here != 0 && here < kAfterWeights;
    steered_ = steered_ || (chose && has_weight);
    if (has_weight && was_rounded_ && !operands_rounded_) begins_.push_back({ops_, here, operands_chosen_});
  }
  was_rounded_ = was_rounded_ || operands_rounded_;
  ops_at_call_ = ops_;
  ++calls_;
}

void DriftCheck::end_pass(bool may_move) {
  judge();
  if (judged_calls_ >= wanted_calls_ && !lengthened_) {
    const bool fresh = first_fresh() != begins_.end();
    const bool by_choice = fresh && (steered_ || operands_chosen_);
    const bool too_far = errors_.worst() > kMaxDrift && (fresh || !steered_);
    moved_ = may_move && !begins_.empty() && (operands_rounded_ || by_choice || too_far);
    lengthened_ = moved_ || (!apart_ && (operands_rounded_ || !may_move));
    if (lengthened_) wanted_calls_ += pass_calls_;
  }
  came_through_ = came_through_ || operands_rounded_;
  look_at_growth();
  pass_began_ = ops_;
}

void DriftCheck::look_at_state(const at::Tensor& carried) {
  if (apart_ || pass_calls_ >= kLeastCalls || state_at_ == kMostState) return;
  const c10::impl::ExcludeDispatchKeyGuard unwatched(kWatchKey);
  const TierOff stock;
  state_errors_[state_at_++].push_back(shadows_.error_of(carried));
}

/// State that is carried through the same product thousands of times (a step of an integrator, a filter, a walk) is off by more after each,
/// where nothing lets it forget: weights are rounded alike each time. A few dozen steps within the bound say nothing of the run.
void DriftCheck::look_at_growth() {
  state_at_ = 0;
  if (apart_ || moved_ || pass_calls_ >= kLeastCalls || !complete() || errors_.worst() > kMaxDrift) return;
  if (std::none_of(state_errors_.begin(), state_errors_.end(), grows_from_pass_to_pass)) return;
  if (judged_calls_ < kMostCallsOfGrowth && explored_ns < kMostNsOfGrowth) {
    wanted_calls_ = 2 * judged_calls_;
  } else {
    grows_ = true;
  }
}

/// A thread's first call begins the program's own pass, so there is no better place to move to.
bool DriftCheck::go_on_in_another_thread() {
  operands_rounded_ = operands_chosen_ = false;
  end_pass(false);
  was_rounded_ = false;
  return complete() || !shadows_.hold_rounded();
}

void DriftCheck::judge() {
  judged_calls_ = calls_;
  choices_.forget();
  const c10::impl::ExcludeDispatchKeyGuard unwatched(kWatchKey);
  const TierOff stock;
  errors_.add(shadows_.judge_results());
}

/// What a module returns is a result of its own, even where something else was computed from it (a pooler from hidden states) and the
/// program drops it before the pass ends.
void DriftCheck::left_modules() {
  const c10::impl::ExcludeDispatchKeyGuard unwatched(kWatchKey);
  const TierOff stock;
  errors_.add(shadows_.judge_held());
}

void DriftCheck::finish() {
  if (between_passes()) judge();
  charge(state_, explored_ns);
  if (by_threads) thread_passes.forget(mark_);
  // Each module is as near as it has to be, and what the program makes of them is mostly rounding: so it is of captured ones.
  // (Probabilities of logits are a few hundredths off, as a softmax makes them.)
  constexpr double kSenseless = 0.15;
  const bool senseless = !steered_ && shadows_.worst(true) > kSenseless && shadows_.worst(false) <= kMaxDrift;
  if (saw_module_ && (senseless || grows_)) state_.drift.note_beyond_modules();
  const bool hopeless = steered_ || grows_;
  const double worst = hopeless ? std::numeric_limits<double>::infinity() : errors_.worst();
  state_.drift.finish(uses_, hopeless ? SampleErrors(worst) : errors_, state_.calls.load(std::memory_order_relaxed));
  const DriftCounts counts = state_.drift.counts();
  char text[240];
  std::snprintf(text, sizeof text,
                "drift check: %zu uses of bf16 move the results of a pass by %.1e (at most %.0e), of a thousand samples by %.1e; so far "
                "%lu may run, %lu stay with stock",
                uses_.size(), worst, kMaxDrift, errors_.worst_of_a_thousand(), counts.fine, counts.too_far);
  const log::Level level = worst > kMaxDrift ? log::Level::kInfo : log::Level::kDebug;
  const char* why = steered_ ? "; in the middle of it a choice (topk, argmax, sort or a comparison) was made among them"
                    : grows_ ? "; what is carried on is further off after each"
                             : "";
  log::line(level, std::string(text) + why);
}

void finish_check() {
  try {
    here().check->finish();
    stop_watching();
  } catch (const std::exception& problem) {
    abort_check(problem.what());
  }
}

void watched_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  ThreadState& thread = here();
  if (thread.check == nullptr) {
    // torch hands a thread's dispatch keys to the threads that work for it, and guards that hold all of a thread's keys bring back what
    // they found when a check ended within them.
    c10::impl::tls_set_dispatch_key_included(kWatchKey, false);
    op.callBoxed(stack);
    return;
  }
  thread.check->op(op, keys, stack);
  if (thread.check == nullptr) return;  // ended by an op inside a composite one
  if (thread.check->failed()) {
    abort_check("an operator could not be computed twice");
  } else if (thread.check->gone_astray()) {
    abort_check("the program went on to something else");
  } else if (const std::uint64_t begin = thread.check->better_begin(); begin != 0) {
    thread.finder.prefer(begin);
    postpone_check();
  } else if (thread.check->hangs_together()) {
    tier()->drift.note_hang_together();
    postpone_check();
  } else if (thread.check->complete()) {
    finish_check();
  }
}

/// Not under anything that wants to see ops itself, nor where a graph for a backward pass would be recorded.
bool plain_surroundings() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  return !others_watch() && !python_would_stumble() && !keys.included_.has(c10::DispatchKey::PythonTLSSnapshot) &&
         !keys.included_.has(c10::DispatchKey::PythonDispatcher) && !keys.included_.has(c10::DispatchKey::PreDispatch);
}

/// The first call of this thread's that may begin a pass was made. A check that another thread left goes on here, if that thread's passes
/// began so. Returns whether one does: its claim is this thread's then.
bool take_check_that_was_left(std::uint64_t mark) {
  if (check_left.load(std::memory_order_relaxed) == nullptr) return false;
  DriftCheck* left = check_left.exchange(nullptr, std::memory_order_acquire);
  if (left == nullptr) return false;
  if (!left->begins_with(mark) || !plain_surroundings()) {
    const bool too_many = others_since.fetch_add(1, std::memory_order_relaxed) + 1 >= kMostOthers;
    if (!too_many) {
      check_left.store(left, std::memory_order_release);
      return false;
    }
    here().check = left;
    abort_check("no other thread began as its own did");
    return false;
  }
  here().check = left;
  left->by_threads = true;
  if (!left->go_on_in_another_thread()) {
    abort_check("what its thread computed may be used by the next one");
  } else if (left->complete()) {
    finish_check();
  }
  return here().check != nullptr;
}

}  // namespace

bool register_drift_fallback() {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kWatchKey)) return false;
  // Never destroyed, like our kernels.
  static auto* library = new torch::Library(torch::Library::IMPL, "_", kWatchKey, "ipexrun", 0);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&watched_op>());
  fallback_registered = true;
  return true;
}

void drift_python_is_ready() noexcept { python_ready.store(true, std::memory_order_relaxed); }

void drift_tell_depth(int (*depth)()) noexcept { module_depth.store(depth, std::memory_order_relaxed); }

void drift_left_modules() noexcept {
  if (!checking_here || here().check == nullptr) return;
  try {
    here().check->left_modules();
  } catch (const std::exception& problem) {
    abort_check(problem.what());
  }
}

void drift_forget_after_fork() noexcept {
  // Not freed: its tensors may have Python objects, and the child's interpreter is not ready for their end.
  here().check = nullptr;
  check_left.store(nullptr, std::memory_order_relaxed);
  checking_here = false;
  if (fallback_registered) c10::impl::tls_set_dispatch_key_included(kWatchKey, false);
}

bool drift_outside_modules() noexcept {
  const auto depth = module_depth.load(std::memory_order_relaxed);
  return depth != nullptr && depth() == 0;
}

bool drift_is_open() noexcept { return here().check != nullptr; }

void drift_leave() noexcept {
  if (!fallback_registered) return;
  ThreadState& thread = here();
  if (thread.check != nullptr && thread.check->between_passes()) {
    finish_check();
  } else if (thread.check != nullptr) {
    postpone_check();
  }
  c10::impl::tls_set_dispatch_key_included(kWatchKey, false);
}

bool drift_set_apart(bool apart) noexcept {
  if (apart && !apart_here) drift_leave();
  return std::exchange(apart_here, apart);
}

void drift_in_compiled_code(bool inside) noexcept {
  if (inside && !compiled_here) drift_leave();
  compiled_here = inside;
}

DriftApart::DriftApart() noexcept : was_(drift_set_apart(true)) {}

DriftApart::~DriftApart() { drift_set_apart(was_); }

bool drifts(const TierState& state, const Site& site, int candidate) noexcept {
  constexpr std::uint32_t kDtypeBits = 0xff;
  return fallback_registered && state.options.dtype == DtypePolicy::kAuto && candidate_is_bf16(candidate) &&
         static_cast<at::ScalarType>(site.id.form & kDtypeBits) == at::kFloat;
}

bool drift_replaying() noexcept { return replaying_here; }

void drift_used(DriftMark& mark, std::shared_ptr<Weight> keeps) {
  if (DriftCheck* check = here().check) check->used(mark, std::move(keeps));
}

void drift_count_replayed(c10::function_ref<std::uint64_t()> mark) {
  ThreadState& thread = here();
  if (thread.check != nullptr) thread.check->count_replayed(mark, !thread.finder.prefers() && !thread.check->by_threads);
}

void drift_watch(TierState& state, std::uint64_t mark, bool pinned, const Outputs& result, c10::function_ref<Outputs()> replay) {
  if (apart_here || compiled_here) return;
  ThreadState& thread = here();
  if (thread.check != nullptr) {
    // A watched thread's ops do not come this way: a guard of the user's took the key away.
    if (thread.check->between_passes()) {
      finish_check();
    } else {
      abort_check("the program reset its dispatch keys in the middle of a pass");
      if (mark != 0) thread.finder.prefer(mark);  // a block of the program's began here
    }
  }
  std::uint64_t pass_calls = thread.finder.call(mark, state.drift.finder_epoch(), state.drift.span());
  const bool has_weight = mark != 0 && mark < kAfterWeights;
  const std::uint64_t tail = has_weight ? std::exchange(thread.since_weight, 0) : ++thread.since_weight;
  const bool first = !thread.began && mark != 0;
  if (first) {
    thread.began = true;
    thread.began_with = mark;
    thread.epoch = state.drift.finder_epoch();
    if (threads_refused.load(std::memory_order_relaxed) < kMostRefused) pass_calls = thread_passes.length(mark);
  }
  if (thread.began_with != 0) ++thread.calls;
  try {
    if (!first || !take_check_that_was_left(mark)) {
      if (pass_calls == 0 || !plain_surroundings()) return;
      const bool apart = !state.drift.hang_together() && price_of(state, pass_calls) >= kShortCheckNs;
      if (!state.drift.begin(price_of(state, calls_of_check(pass_calls, apart)), state.selector.can_afford(0), pinned)) return;
      thread.check = new DriftCheck(state, mark, pass_calls, has_weight ? tail : 0, apart);
      thread.check->by_threads = first;
    }
    thread.began_with = 0;
    {
      const c10::impl::ExcludeDispatchKeyGuard unwatched(kWatchKey);
      const Replaying on_shadows;
      thread.check->adopt(result, replay());
    }
    c10::impl::tls_set_dispatch_key_included(kWatchKey, true);
    checking_here = true;
  } catch (const std::exception& problem) {
    if (thread.check != nullptr) {
      abort_check(problem.what());
    } else {
      state.drift.abort();
    }
  }
}

}  // namespace ipexrun::preload
