// One class behind one small header, though long: compiling, racing and answering a region share its state.
#include "preload/plugin/graph/scripted_region.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <pthread.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "configs/base/log.h"
#include "preload/memory/room.h"
#include "preload/plugin/answer.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/dispatcher.h"
#include "preload/plugin/drift_switch.h"
#include "preload/plugin/graph/constant_room.h"
#include "preload/plugin/graph/duel.h"
#include "preload/plugin/graph/margins.h"
#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/recorder.h"
#include "preload/plugin/graph/remembered.h"
#include "preload/plugin/graph/scripted_double.h"
#include "preload/select/trial_bounds.h"

namespace ipexrun::preload::graph {
namespace {

constexpr int kChecks = 3;                 ///< calls whose results are judged, besides the one that ends the race
constexpr int kChecksAgain = 1;            ///< likewise where an earlier process found the form right and faster
constexpr std::size_t kHopelessForms = 3;  ///< that cannot be held or have nothing to fuse, before the region is given up
constexpr int kMostRepeats = 2;            ///< races that were lost while something else ran on the machine
constexpr int kMostMistakes = 16;          ///< calls that could not be recorded because they threw
constexpr int kMostDisturbed = 32;         ///< pairs that are left out
constexpr int kSmallShare = 8;             ///< one call of so many may have results too small for bf16
constexpr int kSmallAtFirst = 32;          ///< such calls after which that is asked
constexpr int kUnderAutocast = 100;        ///< more than any number of bits: what is raced there is another program
constexpr std::size_t kMostNotes = 512;
constexpr double kNear = 1e-4;                   ///< results so near stock's may be as near the truth as those: float64 tells
constexpr std::uint64_t kShareOfFreeMemory = 4;  ///< the part of it that it may take

constexpr const char* kRemembered = "region";  // the operator of its decisions
constexpr const char* kStockWord = "stock";

constexpr int kUndecided = -2;
constexpr int kStockAnswers = -1;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Notes {
  std::mutex mutex;
  std::vector<std::shared_ptr<RegionNote>> all;
};
Notes& notes() {
  static auto* made = new Notes;
  return *made;
}

/// How one argument looked; what was recorded holds for those that look the same.
struct Look {
  c10::IValue value;  ///< not of tensors
  bool tensor = false;
  at::ScalarType dtype = at::ScalarType::Undefined;
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;

  explicit Look(const c10::IValue& of) {
    if (of.isTensor() && of.toTensor().defined()) {
      const at::Tensor& given = of.toTensor();
      tensor = true;
      dtype = given.scalar_type();
      sizes.assign(given.sizes().begin(), given.sizes().end());
      strides.assign(given.strides().begin(), given.strides().end());
    } else {
      value = of.isList() ? of.deepcopy() : of;
    }
  }
  [[nodiscard]] bool fits(const c10::IValue& other) const {
    if (!tensor) return same(value, other);
    if (!other.isTensor() || !other.toTensor().defined()) return false;
    const at::Tensor& given = other.toTensor();
    return given.scalar_type() == dtype && plain(given) && given.sizes() == at::IntArrayRef(sizes) &&
           given.strides() == at::IntArrayRef(strides);
  }
  static bool same(const c10::IValue& a, const c10::IValue& b) {
    if (a.isInt()) return b.isInt() && a.toInt() == b.toInt();
    if (a.isBool()) return b.isBool() && a.toBool() == b.toBool();
    if (a.isDouble()) return b.isDouble() && std::bit_cast<std::uint64_t>(a.toDouble()) == std::bit_cast<std::uint64_t>(b.toDouble());
    if (a.isNone()) return b.isNone();
    if (a.isIntList()) return b.isIntList() && a.toIntVector() == b.toIntVector();
    return false;
  }
};

/// What a constant without dimensions held: a number in what was recorded, though others may write into it.
struct Number {
  at::ScalarType dtype;
  std::string bytes;

  explicit Number(const at::Tensor& of) : dtype(of.scalar_type()), bytes(static_cast<const char*>(of.const_data_ptr()), of.itemsize()) {}
  [[nodiscard]] bool fits(const at::Tensor& now) const {
    return now.scalar_type() == dtype && now.dim() == 0 && plain(now) && std::memcmp(now.const_data_ptr(), bytes.data(), bytes.size()) == 0;
  }
};

std::atomic<std::uint64_t> trials{0};
thread_local int expected_here = -1;

/// FNV-1a, 64 bits.
std::string digest(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  char words[17];
  std::snprintf(words, sizeof words, "%016llx", static_cast<unsigned long long>(hash));
  return words;
}

std::string name_of(int candidate) { return candidate == 1 ? "bf16" : "float32"; }

std::string times_text(double ratio) {
  char text[40];
  std::snprintf(text, sizeof text, "%.2f times stock's speed", ratio > 0 ? 1 / ratio : 0);
  return text;
}

/// The type to which the program's autocast rounds around the call; what a region calls and gives depends on it.
std::optional<at::ScalarType> autocast_here() {
  if (!at::autocast::is_autocast_enabled(at::kCPU)) return std::nullopt;
  return at::autocast::get_autocast_dtype(at::kCPU);
}

bool wants_grad(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined() && value.toTensor().requires_grad(); }

/// Nobody but an optimizer gives such a tensor away: a function that gets it as an argument gets the same one again.
bool is_parameter(const at::Tensor& tensor) { return tensor.requires_grad() && tensor.is_leaf(); }

std::vector<std::optional<at::Tensor>> tensors_of(const c10::IValue* values, std::size_t count) {
  std::vector<std::optional<at::Tensor>> tensors;
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i].isTensor()) tensors.emplace_back(values[i].toTensor());
  }
  return tensors;
}

}  // namespace

bool scripted_here() {
  TierState* state = tier();
  if (state == nullptr || !tier_enabled() || !allowed_here()) return false;
  if (torch::autograd::get_current_graph_task_id() != -1) return false;
  if (c10::impl::TorchDispatchModeTLS::any_modes_set()) return false;
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr) return false;  // tangents, which torch.no_grad() leaves alone
  // Nobody else looks at the operators of this thread: a transform, a mode, our own check for drift.
  constexpr c10::DispatchKeySet kUsual({c10::DispatchKey::BackendSelect, c10::DispatchKey::ADInplaceOrView});
  return (c10::impl::tls_local_dispatch_key_set().included_.raw_repr() & ~kUsual.raw_repr()) == 0;
}

/// Which candidate answers calls of about these sizes: the power of two of the elements read counts.
struct Region::Choice {
  int bucket = 0;
  std::vector<int> open;  ///< candidates still to be tried: 1 with bf16 inside float32, 0 without
  std::atomic<int> choice{kUndecided};
  ProgramTrial trial;
  TrialBounds bounds;
  std::array<Margins, 2> margins;  ///< of each candidate's results
  int small = 0;                   ///< calls whose results were too small for it, of those that were tried
  std::atomic<int> too_small{0};   ///< likewise, of those that it was to answer
  int checks = 0;
  int calls = 0;
  int disturbed = 0;
  int repeats = 0;
  bool remembered = false;  ///< raced in an earlier process: results are judged again, times are not
  bool expected = false;    ///< likewise, by a graph of the same calls in this one
  bool exact = false;       ///< kernels that are less exact than others took its results too far away
  std::string lost;         ///< which did, and why
};

/// The program for calls that look like the first one of its kind.
struct Region::Form {
  std::optional<at::ScalarType> autocast = autocast_here();
  at::ScalarType floats = c10::get_default_dtype_as_scalartype();  ///< of tensors that the region makes of numbers alone
  std::vector<Look> looks;
  std::vector<Look> constants;  ///< of the body: `tensor.data = ..` of a variable that was traced gives one other sizes
  std::vector<Number> numbers;
  std::vector<std::size_t> tensors;  ///< which inputs are
  std::array<std::unique_ptr<const Program>, 2> programs;
  std::array<std::string, 2> fused;
  Choice* choice = nullptr;
  int runs = 0;  ///< of the one who explores
  std::atomic<bool> left_alone{false};
  std::atomic<bool> checked{false};  ///< its results were judged once
};

/// One call of which both forms run. A value of torch's interpreter, so that it goes with the call where stock's form throws.
class Region::Exploring final : public torch::CustomClassHolder {
 public:
  /// Nobody else explores `of`.
  Exploring(c10::intrusive_ptr<Region> of, Form* in_form, const c10::IValue* given)
      : region(std::move(of)), form(in_form), inputs(given, given + region->weights_.size()) {
    trials.fetch_add(1, std::memory_order_relaxed);
  }
  ~Exploring() override { region->busy_.store(false, std::memory_order_release); }
  Exploring(const Exploring&) = delete;
  Exploring& operator=(const Exploring&) = delete;

  c10::intrusive_ptr<Region> region;
  Form* form;  ///< null: of a kind that was not seen before
  std::vector<c10::IValue> inputs;
  int candidate = 0;
  bool deciding = true;  ///< else only a look at whether it is right
  bool mine_first = false;
  bool failed = false;
  bool postponed = false;  ///< float64 was not asked yet whether it is right
  Values mine;
  torch::jit::Stack truth;  ///< results of torch's own kernels, where the call was recorded
  std::int64_t mine_ns = 0;
  std::int64_t started_ns = 0;
  std::int64_t stock_ns = 0;
  std::uint64_t explorations = exploration_count() + duel_runs();
  std::uint64_t choosing = duel_runs();
  std::uint64_t exploration_ns = preload::exploration_ns();

  void attempt() {
    const NoWarnings said_by_stock;
    const std::int64_t begun = now_ns();
    try {
      mine = region->run(*form, candidate, inputs.data());
    } catch (const std::exception&) {
      failed = true;
    }
    mine_ns = now_ns() - begun;
  }
};

Region::Region(std::shared_ptr<torch::jit::Graph> body, std::vector<bool> weights, RegionOf of, std::string where, std::size_t nodes)
    : body_(std::move(body)),
      weights_(std::move(weights)),
      of_(of),
      code_(body_, "ipexrun"),
      outputs_(body_->outputs().size()),
      note_(std::make_shared<RegionNote>()) {
  for (const torch::jit::Node* node : body_->nodes()) {
    if (node->kind() != torch::jit::prim::Constant) continue;
    const auto value = torch::jit::toIValue(node->output());
    if (!value) continue;
    value->visit([&](const c10::IValue& inside) {
      if (inside.isTensor() && plain(inside.toTensor())) (inside.toTensor().dim() > 0 ? constants_ : numbers_).push_back(inside.toTensor());
      return false;
    });
  }
  note_->where = std::move(where);
  note_->nodes = nodes;
  std::string text = body_->toString(false);
  for (const bool weight : weights_) text += weight ? 'w' : 'v';
  name_ = digest(text);
  Notes& known = notes();
  const std::lock_guard lock(known.mutex);
  if (known.all.size() < kMostNotes) known.all.push_back(note_);
}

Region::~Region() {
  for (auto& form : forms_) delete form.load(std::memory_order_relaxed);
}

void Region::ask(torch::jit::Stack* stack) noexcept {
  const std::size_t count = weights_.size();
  Values results;
  c10::intrusive_ptr<Exploring> exploring;
  bool mine = false;
  try {
    if (!hopeless_.load(std::memory_order_relaxed)) mine = answer(stack->data() + (stack->size() - count), &results, &exploring);
  } catch (const std::exception& problem) {
    log::debug(std::string("a scripted region is left to stock: ") + problem.what());
    exploring.reset();
  }
  if (mine) note_->taken.fetch_add(1, std::memory_order_relaxed);
  stack->resize(stack->size() - count);
  stack->emplace_back(mine);
  for (std::size_t i = 0; i < outputs_; ++i) {
    if (mine) {
      stack->push_back(std::move(results[i]));
    } else {
      stack->emplace_back(at::Tensor());
    }
  }
  if (exploring) {
    exploring->started_ns = now_ns();
    stack->push_back(c10::IValue::make_capsule(std::move(exploring)));
  } else {
    stack->emplace_back();
  }
}

void Region::tell(torch::jit::Stack* stack) noexcept {
  const c10::IValue left = torch::jit::pop(*stack);
  if (left.isNone()) return;
  const auto run = c10::static_intrusive_pointer_cast<Exploring>(left.toCapsule());
  run->stock_ns = now_ns() - run->started_ns;
  const NoWarnings said_by_stock;
  try {
    if (run->form != nullptr || make_form(run.get())) explored(*run);
  } catch (const std::exception& problem) {
    if (run->form != nullptr) run->form->left_alone.store(true, std::memory_order_relaxed);
    log::debug(std::string("a scripted region is left to stock: ") + problem.what());
  }
}

bool Region::in_training(const c10::IValue* inputs) const {
  return c10::GradMode::is_enabled() && (!of_.method || std::any_of(inputs, inputs + weights_.size(), wants_grad));
}

bool Region::answer(const c10::IValue* inputs, Values* results, c10::intrusive_ptr<Exploring>* exploring) {
  if (!scripted_here() || in_training(inputs)) return false;
  note_->calls.fetch_add(1, std::memory_order_relaxed);
  const bool may_explore = !tier()->weights.read_only();
  Form* form = form_of(inputs);
  if (form == nullptr) {
    if (!may_explore || form_count_.load(std::memory_order_relaxed) == kMostForms || mistakes_ >= kMostMistakes ||
        busy_.exchange(true, std::memory_order_acquire))
      return false;
    *exploring = c10::make_intrusive<Exploring>(c10::intrusive_ptr<Region>::reclaim_copy(this), nullptr, inputs);
    return false;
  }
  if (form->left_alone.load(std::memory_order_relaxed)) return false;
  const int choice = choice_for(*form);
  if (choice == kStockAnswers) return false;
  bool failed = false;
  if (choice >= 0 && form->checked.load(std::memory_order_relaxed)) {
    try {
      *results = run(*form, choice, inputs);
      if (large_enough(*form->choice, choice, *results)) return true;
      answered_too_small(*form->choice);
      const TierOff stock;
      const NoWarnings said_by_ours;
      *results = run_body(inputs);
      return true;
    } catch (const std::exception& problem) {  // stock raises it, if it is the user's own fault
      failed = true;
    }
  }
  if (choice == kUndecided && form->choice->bounds.rests(now_ns())) return false;
  if (!may_explore || busy_.exchange(true, std::memory_order_acquire)) return false;
  auto run = c10::make_intrusive<Exploring>(c10::intrusive_ptr<Region>::reclaim_copy(this), form, inputs);
  if (failed) {
    run->failed = true;
    run->deciding = false;
  } else if (!choose(run.get())) {
    return false;
  }
  if (run->mine_first) run->attempt();
  *exploring = std::move(run);
  return false;
}

bool Region::choose(Exploring* run) {
  Form& form = *run->form;
  const int choice = choice_for(form);
  if (form.left_alone.load(std::memory_order_relaxed) || choice == kStockAnswers) return false;
  run->candidate = choice;
  run->deciding = choice == kUndecided;
  if (run->deciding) {
    drop_missing(*form.choice, form);
    if (form.choice->open.empty()) return false;
    run->candidate = form.choice->open.front();
    run->mine_first = form.choice->calls % 2 == 1;
  }
  return run->candidate >= 0 && form.programs[static_cast<std::size_t>(run->candidate)] != nullptr;
}

bool Region::make_form(Exploring* run) {
  const std::int64_t begun = now_ns();
  const c10::IValue* inputs = run->inputs.data();
  run->form = form_of(inputs);  // another thread's
  if (run->form == nullptr) {
    const std::size_t at = form_count_.load(std::memory_order_relaxed);
    if (at == kMostForms) return false;
    try {
      run->form = made(inputs, &run->truth).release();
    } catch (...) {
      if (++mistakes_ == kMostMistakes) hopeless_.store(at == 0, std::memory_order_relaxed);
      throw;
    }
    forms_[at].store(run->form, std::memory_order_release);
    form_count_.store(at + 1, std::memory_order_release);
  }
  const bool tried = choose(run);
  run->mine_first = false;
  run->started_ns += now_ns() - begun;  // bounds are about what is tried
  return tried;
}

/// A forced candidate is not raced.
int Region::choice_for(const Form& form) {
  const int forced = tier()->forced.load(std::memory_order_relaxed);
  if (forced != kStock && candidate_is_bf16(forced) && form.programs[1] != nullptr) return 1;
  if (forced == kOwnF32 && form.programs[0] != nullptr) return 0;
  return form.choice->choice.load(std::memory_order_acquire);
}

Region::Form* Region::form_of(const c10::IValue* inputs) {
  const std::size_t count = form_count_.load(std::memory_order_acquire);
  const std::optional<at::ScalarType> autocast = autocast_here();
  const at::ScalarType floats = c10::get_default_dtype_as_scalartype();
  for (std::size_t i = 0; i < count; ++i) {
    Form* form = forms_[i].load(std::memory_order_acquire);
    bool fits = form->autocast == autocast && form->floats == floats;
    for (std::size_t k = 0; fits && k < weights_.size(); ++k) fits = form->looks[k].fits(inputs[k]);
    for (std::size_t k = 0; fits && k < constants_.size(); ++k) fits = form->constants[k].fits(constants_[k]);
    for (std::size_t k = 0; fits && k < numbers_.size(); ++k) fits = form->numbers[k].fits(numbers_[k]);
    if (fits) return form;
  }
  return nullptr;
}

/// bf16 inside a float32 program, unless what follows chooses by the values, or no module computes this, and nobody asked for it.
bool Region::may_round() const {
  const TierOptions& options = tier()->options;
  return bf16_inside_allowed(options) &&
         (options.dtype == DtypePolicy::kBfloat16 || (!of_.chooses && !asks_for_ieee() && !drift_outside_modules()));
}

Region::Choice* Region::choice_of(const c10::IValue* inputs) {
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (!weights_[i] && inputs[i].isTensor() && inputs[i].toTensor().defined())
      elements += static_cast<std::uint64_t>(inputs[i].toTensor().numel());
  }
  const int bucket = static_cast<int>(std::bit_width(elements)) + (autocast_here() ? kUnderAutocast : 0);
  for (const auto& choice : choices_) {
    if (choice->bucket == bucket) return choice.get();
  }
  auto choice = std::make_unique<Choice>();
  choice->bucket = bucket;
  choice->open = {0};
  if (may_round()) choice->open.insert(choice->open.begin(), 1);
  const std::string known = recalled(kRemembered, key_of(*choice), false);
  for (const int candidate : {0, 1}) {
    if (known != name_of(candidate) || std::ranges::find(choice->open, candidate) == choice->open.end()) continue;
    choice->open = {candidate};
    choice->remembered = true;
  }
  if (known.empty() && std::ranges::find(choice->open, expected_here) != choice->open.end()) {
    choice->open = {expected_here};
    choice->remembered = choice->expected = true;
  }
  if (known == kStockWord) choice->choice.store(kStockAnswers, std::memory_order_release);
  choices_.push_back(std::move(choice));
  return choices_.back().get();
}

torch::jit::Stack Region::run_body(const c10::IValue* inputs) const {
  torch::jit::Stack stack(inputs, inputs + weights_.size());
  torch::jit::InterpreterState(code_).run(stack);
  return stack;
}

std::unique_ptr<Region::Form> Region::made(const c10::IValue* inputs, torch::jit::Stack* truth) {
  auto form = std::make_unique<Form>();
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    form->looks.emplace_back(inputs[i]);
    if (form->looks.back().tensor) form->tensors.push_back(i);
  }
  for (const at::Tensor& constant : constants_) form->constants.emplace_back(constant);
  for (const at::Tensor& number : numbers_) form->numbers.emplace_back(number);
  form->choice = choice_of(inputs);
  try {
    const Graph graph = recorded(*form, inputs, truth);
    const ConstantRoom room(&constant_room_);
    for (const int bf16 : {1, 0}) {
      if (bf16 == 1 && !may_round()) continue;
      Graph mine = graph;
      const std::string fused = words(optimize(&mine, bf16 == 1));
      if (fused == words(Fused{})) continue;
      form->programs[static_cast<std::size_t>(bf16)] = std::make_unique<const Program>(mine);
      if (bf16 == 1 || form->choice->exact) form->programs[static_cast<std::size_t>(bf16)]->be_exact();
      form->fused[static_cast<std::size_t>(bf16)] = fused;
    }
    if (form->programs[0] == nullptr && form->programs[1] == nullptr) throw std::invalid_argument("nothing to fuse");
    const std::lock_guard lock(notes().mutex);
    if (note_->fused.empty()) note_->fused = form->fused[form->programs[1] != nullptr ? 1 : 0];
  } catch (const std::invalid_argument& problem) {
    form->left_alone = true;
    {
      const std::lock_guard lock(notes().mutex);
      if (note_->left_alone.empty()) note_->left_alone = problem.what();
    }
    const std::size_t count = form_count_.load(std::memory_order_relaxed);
    std::size_t left = 0;
    for (std::size_t i = 0; i < count; ++i) left += forms_[i].load()->left_alone.load() ? 1 : 0;
    if (left == count && left + 1 >= kHopelessForms) hopeless_.store(true, std::memory_order_relaxed);
  }
  return form;
}

/// Runs the region once more, by torch's own kernels, and notes what it calls. It has no effects, so nobody sees that. Throws what stock
/// will throw where the user's own call is wrong.
Graph Region::recorded(const Form& form, const c10::IValue* inputs, torch::jit::Stack* results) const {
  const TierOff stock;
  const at::DisableRecordFunctionGuard not_in_profiles;
  Recorder recorder;
  std::vector<c10::IValue> given(inputs, inputs + weights_.size());
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& constant : constants_) seen.insert(constant.unsafeGetTensorImpl());
  for (const std::size_t i : form.tensors) {
    at::Tensor tensor = given[i].toTensor();
    const bool weight = weights_[i] || is_parameter(tensor);
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) tensor = tensor.detach();  // the same tensor twice: told apart as arguments
    seen.insert(tensor.unsafeGetTensorImpl());
    recorder.input(tensor, weight);
    given[i] = std::move(tensor);
  }
  for (const at::Tensor& constant : constants_) recorder.input(constant, true);
  return recorder.record([&] {
    *results = run_body(given.data());
    return *results;
  });
}

Values Region::program_inputs(const Form& form, const c10::IValue* inputs) const {
  Values values;
  values.reserve(form.tensors.size() + constants_.size());
  for (const std::size_t i : form.tensors) values.push_back(inputs[i]);
  for (const at::Tensor& constant : constants_) values.emplace_back(constant);
  return values;
}

Values Region::run(const Form& form, int candidate, const c10::IValue* inputs) const {
  const c10::impl::ExcludeDispatchKeyGuard cast_already(c10::autocast_dispatch_keyset);
  return form.programs[static_cast<std::size_t>(candidate)]->run(program_inputs(form, inputs));
}

/// Beside results of torch's own kernels, in dtype, sizes, strides and numbers.
bool Region::right(Exploring& run, ProgramTrial* trial, bool may_wait) const {
  run.postponed = false;
  torch::jit::Stack truth = std::move(run.truth);
  if (truth.empty()) {
    const TierOff stock;
    const at::DisableRecordFunctionGuard not_in_profiles;
    truth = run_body(run.inputs.data());
  }
  for (std::size_t i = 0; i < outputs_; ++i) {
    if (!truth[i].isTensor() && !Look::same(truth[i], run.mine[i])) return false;
  }
  // Where bf16 is allowed the op tier may answer in it inside our float32 form, too.
  const bool bf16 = bf16_inside_allowed(tier()->options);
  const Results theirs = tensors_of(truth.data(), outputs_);
  const Results ours = tensors_of(run.mine.data(), outputs_);
  Results exact;
  if (ProgramTrial beside; !bf16 && !beside.check(theirs, ours, false) && beside.error() <= kNear) {
    run.postponed = may_wait;
    if (may_wait) return true;
    const torch::jit::Stack wide = in_double(*body_, run.inputs.data(), run.inputs.size(), free_memory_bytes() / kShareOfFreeMemory);
    if (!wide.empty()) exact = tensors_of(wide.data(), outputs_);
  }
  if (run.candidate == 1 && std::ranges::any_of(theirs, counts)) return false;
  const bool right = trial->check(theirs, ours, bf16, exact, true);
  if (right && bf16) run.form->choice->margins[static_cast<std::size_t>(run.candidate)].note(theirs, ours);
  return right;
}

bool Region::be_exact(const Exploring& run) {
  Choice& choice = *run.form->choice;
  if (run.candidate != 0 || !run.form->programs[0]->be_exact()) return false;
  choice.exact = true;
  const std::size_t count = form_count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    const Form& form = *forms_[i].load(std::memory_order_acquire);
    if (form.choice == &choice && form.programs[0] != nullptr) form.programs[0]->be_exact();
  }
  if (!run.deciding) return true;
  choice.trial = ProgramTrial();
  choice.bounds.restart();
  choice.checks = choice.calls = choice.small = 0;
  run.form->runs = 0;
  return true;
}

void Region::answered_too_small(Choice& choice) {
  const int small = choice.too_small.fetch_add(1, std::memory_order_relaxed) + 1;
  if (small < kSmallAtFirst || static_cast<std::uint64_t>(small) * kSmallShare < note_->taken.load(std::memory_order_relaxed)) return;
  choice.choice.store(kStockAnswers, std::memory_order_release);
  say("stock: too many results are small beside what bf16 rounds", choice.trial);
}

/// For what bf16 inside adds to them.
bool Region::large_enough(const Choice& choice, int candidate, const Values& results) const {
  return choice.margins[static_cast<std::size_t>(candidate)].cover(tensors_of(results.data(), outputs_));
}

void Region::explored(Exploring& run) {
  const std::int64_t stock_ns = run.stock_ns;
  Form& form = *run.form;
  Choice& choice = *form.choice;
  if (!run.deciding) {
    if (!run.failed) run.attempt();
    ProgramTrial once;
    if (run.failed || !right(run, &once, false)) {
      if (!run.failed && be_exact(run)) return;  // judged anew in the next call
      form.left_alone.store(true, std::memory_order_relaxed);
      log::debug("a scripted region: a form of it is left to stock");
    }
    form.checked.store(true, std::memory_order_relaxed);
    return;
  }
  if (!run.mine_first) run.attempt();
  ++choice.calls;
  if (run.failed) {
    lose(choice, run, "failed");
    return;
  }
  int decided = 0;
  bool accurate = true;
  // The first call packs. While the op tier tries its own candidates inside of either form, times say nothing.
  const bool disturbed = (exploration_count() + duel_runs() != run.explorations) && choice.disturbed++ < kMostDisturbed;
  const bool first = form.runs++ == 0;
  if (choice.remembered) {
    decided = static_cast<int>(choice.checks + 1 >= kChecksAgain);
  } else if (!first && !disturbed) {
    choice.trial.add(stock_ns, run.mine_ns);
    decided = static_cast<int>(choice.trial.result());
  } else if (!first) {
    choice.trial.add_unsettled(stock_ns - static_cast<std::int64_t>(exploration_ns() - run.exploration_ns), run.mine_ns);
    decided = static_cast<int>(choice.trial.result());
  }
  choice.small += large_enough(choice, run.candidate, run.mine) ? 0 : 1;
  if (choice.checks < kChecks || decided == 1) {
    ++choice.checks;
    if (right(run, &choice.trial, decided != 1)) {
      if (!run.postponed) form.checked.store(true, std::memory_order_relaxed);
    } else if (be_exact(run)) {
      return;
    } else {
      decided = -1;
      accurate = false;
    }
  }
  const double small = static_cast<double>(choice.small) / choice.calls;  // such calls cost stock's time besides
  if (decided == 1 && choice.small > 0 && (small * kSmallShare > 1 || small + choice.trial.ratio() >= 1)) {
    decided = -1;
    accurate = false;
  }
  if (decided == 1) {
    say(name_of(run.candidate) + ": " + form.fused[static_cast<std::size_t>(run.candidate)] + (choice.remembered ? " (remembered)" : ""),
        choice.trial);
    if (!choice.remembered) note_times(run);  // else the program has its best form at once, and its reports no times of operators
    if (!choice.remembered || choice.expected) remember(choice, name_of(run.candidate));
    choice.choice.store(run.candidate, std::memory_order_release);
  } else if (decided == -1 && accurate && choice.trial.disturbed() && choice.repeats++ < kMostRepeats) {
    choice.trial = ProgramTrial();
    choice.checks = 0;
  } else if (decided == -1) {
    lose(choice, run, accurate ? times_text(choice.trial.ratio()) : "not as exact as it has to be");
    if (accurate && choice.choice.load(std::memory_order_relaxed) == kStockAnswers) remember(choice, kStockWord);
  } else if (!choice.remembered) {
    const std::int64_t now = now_ns();
    const std::int64_t before_ns = run.mine_first ? run.mine_ns : 0;
    choice.bounds.tried(stock_ns, first ? 0 : run.mine_ns, before_ns + now - run.started_ns - stock_ns, duel_runs() != run.choosing, now);
  }
}

std::string Region::key_of(const Choice& choice) const { return "key=" + name_ + ",elements=" + std::to_string(choice.bucket); }

void Region::remember(const Choice& choice, const std::string& word) const {
  graph::remember(kRemembered, key_of(choice), {word, word == kStockWord ? "slower" : "faster", 0, 0, 0});
}

void Region::lose(Choice& choice, const Exploring& run, const std::string& why) {
  bool ours = false;
  for (const auto& other : choices_) ours = ours || other->choice.load(std::memory_order_relaxed) >= 0;
  if (!ours) {
    choice.lost += (choice.lost.empty() ? "" : ", ") + name_of(run.candidate) + ' ' + why;
    say("stock: " + choice.lost, choice.trial);
  }
  choice.open.erase(choice.open.begin());
  choice.trial = ProgramTrial();
  choice.bounds.restart();
  choice.checks = choice.calls = choice.small = 0;
  run.form->runs = 0;
  bool bf16_elsewhere = false;
  for (const auto& other : choices_) bf16_elsewhere = bf16_elsewhere || other->choice.load(std::memory_order_relaxed) == 1;
  if (run.candidate == 1 && !bf16_elsewhere) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] && run.inputs[i].isTensor() && run.inputs[i].toTensor().has_storage())
        tier()->weights.drop_storage(run.inputs[i].toTensor().storage().unsafeGetStorageImpl());
    }
    for (const at::Tensor& constant : constants_) tier()->weights.drop_storage(constant.storage().unsafeGetStorageImpl());
  }
  drop_missing(choice, *run.form);
}

/// Candidates with nothing fused are no rivals.
void Region::drop_missing(Choice& choice, const Form& form) {
  while (!choice.open.empty() && form.programs[static_cast<std::size_t>(choice.open.front())] == nullptr)
    choice.open.erase(choice.open.begin());
  if (choice.open.empty()) choice.choice.store(kStockAnswers, std::memory_order_release);
}

void Region::say(const std::string& choice, const ProgramTrial& trial) {
  const std::lock_guard lock(notes().mutex);
  note_->choice = choice;
  note_->left_alone.clear();
  note_->speed = trial.ratio() > 0 ? 1 / trial.ratio() : 0;
  note_->error = trial.error();
}

void Region::note_times(const Exploring& run) noexcept {
  try {
    const at::DisableRecordFunctionGuard not_in_profiles;
    const auto& program = run.form->programs[static_cast<std::size_t>(run.candidate)];
    torch::jit::Stack results;
    auto times = op_times(recorded(*run.form, run.inputs.data(), &results), *program, program_inputs(*run.form, run.inputs.data()));
    const std::lock_guard lock(notes().mutex);
    note_->times = std::move(times);
  } catch (const std::exception& problem) {
    log::debug("a scripted region: no times of its operators");
  }
}

namespace {

std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

}  // namespace

void scripted_watch_forks() {
  constexpr auto kUnlock = [] { notes().mutex.unlock(); };
  ::pthread_atfork([] { notes().mutex.lock(); }, kUnlock, kUnlock);
}

void scripted_expect(int form) noexcept { expected_here = form; }

std::uint64_t scripted_trials() noexcept { return trials.load(std::memory_order_relaxed); }

std::vector<RegionFacts> scripted_facts() {
  Notes& known = notes();
  const std::lock_guard lock(known.mutex);
  std::vector<RegionFacts> facts;
  for (std::size_t i = 0; i < known.all.size(); ++i) {
    const RegionNote& note = *known.all[i];
    const std::uint64_t calls = note.calls.load(std::memory_order_relaxed);
    if (calls == 0) continue;
    facts.push_back({static_cast<std::int64_t>(i), note.where, note.choice, note.fused, note.left_alone, note.nodes, calls,
                     note.taken.load(std::memory_order_relaxed), note.speed, note.error, note.times});
  }
  return facts;
}

std::string scripted_report_json() {
  std::string json;
  for (const RegionFacts& region : scripted_facts()) {
    json += std::string(json.empty() ? "" : ", ") + "{\"of\": \"TorchScript\", \"where\": " + in_quotes(region.where) +
            ", \"nodes\": " + std::to_string(region.nodes) + ", \"calls\": " + std::to_string(region.calls) +
            ", \"taken\": " + std::to_string(region.taken);
    if (!region.left_alone.empty()) {
      json += ", \"left_alone\": " + in_quotes(region.left_alone);
    } else {
      json += ", \"choice\": " + in_quotes(region.choice) + ", \"fused\": " + in_quotes(region.fused);
    }
    if (region.speed > 0) {
      char numbers[80];
      std::snprintf(numbers, sizeof numbers, ", \"speed\": %.2f, \"error\": %.3e", region.speed, region.error);
      json += numbers;
    }
    if (!region.times.empty()) json += ", \"time_by_op\": " + op_times_json(region.times);
    json += '}';
  }
  return json;
}

}  // namespace ipexrun::preload::graph
