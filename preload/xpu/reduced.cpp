#include "preload/xpu/reduced.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>

#include "configs/base/log.h"
#include "configs/contract/env.h"
#include "preload/select/race.h"
#include "preload/xpu/choose_kernel.h"
#include "preload/xpu/place.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;
using List = std::vector<Tensor>;

constexpr double kBfloatBound = 8e-3, kHalfBound = 1e-3;  ///< t of one operator (rules.md)
constexpr std::int64_t kRows = 256;                       ///< of a result that are compared
constexpr long kFirstRecheck = 256;                       ///< and its doubles
constexpr std::size_t kMostSites = 2048;  ///< of other kinds of calls nothing is kept: attention over a growing cache has ever new ones

enum class Wish { kFloat, kAuto, kBFloat16, kHalf };
enum class Phase { kFirst, kRacing, kReduced, kFloat };

struct Site {
  std::string op;
  at::ScalarType inside = at::kFloat;
  Phase phase = Phase::kFirst;
  long calls = 0, answered = 0;
  bool busy = false;  ///< a thread explores it; the others compute in float32 meanwhile
  Race race;
  std::string reason;
};

struct State {
  Wish wish = Wish::kFloat;
  bool timing = true;
  std::mutex mutex;
  std::map<std::vector<std::int64_t>, Site> sites;
};
State& state() {
  static auto* made = [] {
    auto* out = new State;
    if (!env::get_flag(env::Id::kXpuStart)) return out;  // only `ipexrun xpu` changes what a program computes with
    const std::string word = env::get(env::Id::kDtype).value_or("auto");
    out->wish = word == "bfloat16" ? Wish::kBFloat16 : word == "float16" ? Wish::kHalf : word == "auto" ? Wish::kAuto : Wish::kFloat;
    out->timing = env::get(env::Id::kSelect).value_or("on") != "off";
    return out;
  }();
  return *made;
}

thread_local bool t_keep = false;

bool trains(std::initializer_list<Tensor> inputs) {
  if (torch::autograd::get_current_graph_task_id() >= 0) return true;
  if (!c10::GradMode::is_enabled()) return false;
  for (const Tensor& one : inputs)
    if (one.defined() && one.requires_grad()) return true;
  return false;  // what functorch wraps, and forwards of custom functions, cannot be told from inference here (docs/xpu.md)
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The accuracy rule with float32's result as the truth, on the CPU: comparing there needs no kernels that would have to be built.
bool near_enough(const Tensor& exact, const Tensor& mine, double bound, std::int64_t leading) {
  if (exact.numel() == 0) return true;
  std::int64_t rows = 1;
  for (std::int64_t d = 0; d < leading; ++d) rows *= exact.size(d);
  const std::int64_t step = std::max<std::int64_t>((rows + kRows - 1) / kRows, 1);
  const auto sample = [&](const Tensor& all) { return all.reshape({rows, -1}).slice(0, 0, rows, step).cpu().to(at::kDouble); };
  const Tensor a = sample(exact), b = sample(mine), finite = at::isfinite(a);
  if (!finite.equal(at::isfinite(b)) || !at::isnan(a).equal(at::isnan(b)) ||
      !at::isinf(a).logical_and(a.ne(b)).logical_not().all().item<bool>())
    return false;
  const Tensor none = at::zeros({}, a.options());
  const Tensor truth = at::where(finite, a, none), apart = at::where(finite, b - a, none);
  return ((apart * apart).sum(1) <= (truth * truth).sum(1) * (bound * bound)).all().item<bool>();
}
bool near_enough(const ReducedCall& call, const List& exact, const List& mine, at::ScalarType inside) {
  const double bound = inside == at::kHalf ? kHalfBound : kBfloatBound;
  for (std::size_t i = 0; i < exact.size(); ++i)
    if (exact[i].defined() && !near_enough(exact[i], mine[i], bound, call.leading[i])) return false;
  return true;
}

void say_refused(Wish wish, const std::string& op) {
  if (wish == Wish::kAuto) return;
  log::once(log::Level::kWarn, "reduced",
            "xpu: " + op + " and others like it stay float32: too far from it with --dtype " +
                (wish == Wish::kHalf ? "float16" : "bfloat16") + " (--report counts them)");
}

struct Pair {
  List exact, mine;
  std::int64_t exact_ns = 0, mine_ns = 0;
};
/// Both forms, one after the other, each alone on its stream.
Pair run_pair(const ReducedCall& call, const Tensor& on, at::ScalarType inside, bool reduced_first) {
  Pair out;
  const HoldTrials hold;
  auto& device = *unit_of(on).device;
  const auto timed = [&](at::ScalarType type, List& results, std::int64_t& ns) {
    device.synchronize(stream_of(on));
    const std::int64_t start = now_ns();
    results = call.compute(type);
    device.synchronize(stream_of(on));
    ns = now_ns() - start;
  };
  if (reduced_first) timed(inside, out.mine, out.mine_ns);
  timed(at::kFloat, out.exact, out.exact_ns);
  if (!reduced_first) timed(inside, out.mine, out.mine_ns);
  return out;
}

/// The site's next phase after a pair; false: float32 from now on.
void judge(Site& site, const State& all, const Pair& pair, bool accurate) {
  if (!accurate) {
    site.reason = site.phase == Phase::kReduced ? "too far from float32 when looked at again" : "too far from float32";
    site.phase = Phase::kFloat;
  } else if (site.phase == Phase::kFirst) {
    site.phase = all.wish == Wish::kAuto ? Phase::kRacing : Phase::kReduced;
    site.reason = all.wish == Wish::kAuto ? "not measured long enough" : "as asked";
  } else if (site.phase == Phase::kRacing) {
    site.race.add(pair.exact_ns, pair.mine_ns);
    const RaceResult result = site.race.result();
    if (result == RaceResult::kUndecided) return;
    site.phase = result == RaceResult::kWon ? Phase::kReduced : Phase::kFloat;
    char text[48];
    std::snprintf(text, sizeof text, "%.2f of float32's speed", 1 / site.race.ratio());
    site.reason = text;
  }
}

}  // namespace

KeepInside::KeepInside() : before_(t_keep) { t_keep = true; }
KeepInside::~KeepInside() { t_keep = before_; }

std::int64_t bucket(std::int64_t size) {
  return size <= 1 ? size : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(size)));
}

bool may_reduce(const Tensor& on) {
  const State& all = state();
  if (all.wish == Wish::kFloat || t_keep) return false;
  // A timing decides: where none may, and where 16 bits have no units of their own, there is nothing to try.
  return all.wish != Wish::kAuto ||
         (all.timing && unit_of(on).device->matrix_lanes() > 0 && !at::globalContext().deterministicAlgorithms());
}

at::ScalarType choose_inside(const ReducedCall& call, std::initializer_list<Tensor> inputs, List& results) {
  State& all = state();
  const at::ScalarType inside = all.wish == Wish::kHalf ? at::kHalf : at::kBFloat16;
  if (inside == at::kHalf && trains(inputs)) return at::kFloat;
  const Tensor& on = *inputs.begin();
  std::vector<std::int64_t> key = call.kind;
  key.push_back(on.device().index());
  Site* site = nullptr;
  bool recheck = false;
  {
    const std::lock_guard lock(all.mutex);
    if (all.sites.size() >= kMostSites && all.sites.count(key) == 0) return at::kFloat;
    site = &all.sites[key];  // stays where it is
    if (site->calls++ == 0) site->op = call.op, site->inside = inside;
    if (site->phase == Phase::kFloat || site->busy) return at::kFloat;
    if (site->phase == Phase::kReduced) {
      ++site->answered;
      recheck = site->answered >= kFirstRecheck && std::has_single_bit(static_cast<std::uint64_t>(site->answered));
      if (!recheck) return inside;
    }
    site->busy = true;
  }
  const KeepInside keep;
  const c10::AutoGradMode no_grad(false);
  std::string problem;
  Pair pair;
  bool accurate = false;
  try {
    pair = run_pair(call, on, inside, site->race.pairs() % 2 == 1);
    accurate = near_enough(call, pair.exact, pair.mine, inside);
  } catch (const std::exception& error) {  // out of memory, a kernel that does not build: the call is made as if nothing had been tried
    problem = error.what();
    pair.exact.clear();
  }
  const std::lock_guard lock(all.mutex);
  site->busy = false;
  if (!problem.empty()) {
    site->phase = Phase::kFloat;
    site->reason = problem.substr(0, problem.find('\n'));
    return at::kFloat;
  }
  judge(*site, all, pair, accurate);
  if (!accurate) say_refused(all.wish, site->op);
  results = recheck && accurate ? std::move(pair.mine) : std::move(pair.exact);
  return at::kFloat;
}

std::string reduced_json() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  std::string out = "[";
  for (const auto& [key, site] : all.sites) {
    std::string reason;
    for (const char letter : site.reason)
      if (letter != '"' && letter != '\\' && static_cast<unsigned char>(letter) >= ' ') reason += letter;
    const char* choice = site.phase == Phase::kReduced ? "reduced" : site.phase == Phase::kFloat ? "float32" : "undecided";
    out += std::string(out.size() > 1 ? ", " : "") + R"({"op": ")" + site.op + R"(", "inside": ")" +
           (site.inside == at::kHalf ? "float16" : "bfloat16") + R"(", "choice": ")" + choice + R"(", "reason": ")" + reason +
           R"(", "calls": )" + std::to_string(site.calls) + R"(, "answered": )" + std::to_string(site.answered) + "}";
  }
  return out + "]";
}

namespace {
/// The race of optimizers' steps, for xpu_optimizers.py: `result` 0 undecided, 1 won, -1 lost.
struct StepRace final : torch::CustomClassHolder {
  Race race;
};
}  // namespace

void register_reduced() {
  static auto made = torch::class_<StepRace>("ipexrun_xpu", "Race")
                         .def(torch::init<>())
                         .def("add", [](const c10::intrusive_ptr<StepRace>& self, std::int64_t stock_ns,
                                        std::int64_t mine_ns) { self->race.add(stock_ns, mine_ns); })
                         .def("result",
                              [](const c10::intrusive_ptr<StepRace>& self) {
                                const RaceResult result = self->race.result();
                                return static_cast<std::int64_t>(result == RaceResult::kWon ? 1 : result == RaceResult::kLost ? -1 : 0);
                              })
                         .def("ratio", [](const c10::intrusive_ptr<StepRace>& self) { return self->race.ratio(); });
}

}  // namespace ipexrun::preload::xpu
