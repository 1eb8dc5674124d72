#include "preload/xpu/choose_kernel.h"

#include <ATen/Context.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <torch/version.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <ctime>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "configs/contract/env.h"
#include "preload/select/clock.h"
#include "preload/select/contest.h"
#include "preload/select/decision_cache.h"
#include "preload/xpu/place.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;

constexpr double kLeastOperations = 1 << 20;     ///< of smaller calls the launch is what takes time
constexpr std::int64_t kLeastNs = 50'000;        ///< likewise, as measured: a launch and waiting for it take about 20 us on an H200
constexpr long kCallsBefore = 3;                 ///< a kind that comes once or twice has nothing to gain
constexpr long kFirstRecheck = 256;              ///< and its doubles: numbers are compared again
constexpr std::size_t kMostSites = 1024;         ///< further kinds keep what is taken without measuring
constexpr std::int64_t kBudgetNs = 250'000'000;  ///< trials may take so much, and a twentieth of the time since the first call
constexpr std::int64_t kBudgetShare = 20;
constexpr std::int64_t kCompared = 1 << 23;  ///< results at either end that are compared one by one
constexpr std::int64_t kSampledRows = 16, kSampledColumns = 64;

struct Site {
  const char* op = "";
  std::vector<const char*> names;
  Contest contest{1};
  bool ran = false;     ///< the challenger's first run, in which programs are built, is over and its numbers were good
  bool checked = true;  ///< false: another process decided, the numbers were not compared in this one
  bool busy = false;    ///< a thread explores it; the others take the best so far
  long calls = 0, answered = 0;
  const char* reason = "not measured";
  Decision remembered;
};

struct State {
  bool timing = true;
  std::int64_t budget_ns = kBudgetNs, budget_share = kBudgetShare;
  std::mutex mutex;
  std::map<KernelKind, Site> sites;
  std::int64_t started_ns = 0, spent_ns = 0;
  DecisionCache decisions{cache_place()};
};
State& state() {
  static auto* made = [] {
    auto* out = new State;
    const std::string select = env::get(env::Id::kSelect).value_or("on");
    out->timing = select != "off";
    if (select == "thorough") {
      out->budget_ns *= 4;
      out->budget_share /= 4;
    }
    out->started_ns = steady_clock().now_ns();
    if (out->timing) out->decisions.load(std::time(nullptr));
    return out;
  }();
  return *made;
}

thread_local bool t_hold = false;

std::string text_of(const KernelKind& kind) {
  std::size_t used = kind.size();
  while (used > 0 && kind[used - 1] == 0) --used;
  std::string out;
  for (std::size_t i = 0; i < used; ++i) out += (i == 0 ? "" : ",") + std::to_string(kind[i]);
  return out;
}

/// Names of devices and drivers, without what separates fields of a decision.
std::string plain_text(std::string text) {
  for (char& letter : text)
    if (letter == '|' || letter == '\t' || letter == '"' || letter == '\\' || static_cast<unsigned char>(letter) < ' ') letter = ' ';
  return text;
}

/// As the cache of decisions knows it: kernels change with our version, which the cache's head names.
SiteKey key_of(const char* op, const KernelKind& kind, const ::ipexrun::xpu::DeviceFacts& facts) {
  return {std::string("xpu ") + op,
          "",
          facts.lanes ? "lanes" : "loops",
          text_of(kind),
          static_cast<int>(facts.compute_units),
          plain_text(facts.name + ", driver " + facts.driver_version),
          std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR)};
}

int index_of(const std::vector<const char*>& names, const std::string& name) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<int>(i);
  return -1;
}

/// A kind that is met for the first time. What another process decided saves the races, not the comparison of numbers.
void meet(State& all, Site& site, const KernelCall& call, const Tensor& out) {
  site.op = call.op;
  site.names.assign(call.candidates.begin(), call.candidates.end());
  site.contest = Contest(static_cast<int>(site.names.size()));
  const SiteKey key = key_of(call.op, call.kind, unit_of(out).device->facts());
  site.remembered.site = key;
  Decision found;
  bool pinned = false;
  if (!all.decisions.find(key.text(), "auto", &found, &pinned)) return;
  const int choice = found.choice == "stock" ? 0 : index_of(site.names, found.choice);
  if (choice < 0 || found.choice_ns <= 0) return;
  const double gain = static_cast<double>(found.choice_ns) / static_cast<double>(std::max<std::int64_t>(found.stock_ns, 1));
  site.contest.take(choice, choice == 0 ? 1 : gain);
  site.checked = choice == 0;
  site.reason = "remembered";
}

void remember(State& all, Site& site) {
  if (site.contest.first_ns() == 0 || (site.contest.best() == 0 && site.contest.disturbed())) return;  // nothing was learnt
  Decision& decision = site.remembered;
  decision.choice = site.contest.best() == 0 ? "stock" : site.names[static_cast<std::size_t>(site.contest.best())];
  decision.stock_ns = site.contest.first_ns();
  const double choice_ns = static_cast<double>(site.contest.first_ns()) * site.contest.gain();  // by ratios of neighbours in time
  decision.choice_ns = std::max<std::int64_t>(static_cast<std::int64_t>(choice_ns), 1);
  decision.samples = site.contest.pairs();
  decision.reason = site.reason;
  decision.decided_at = std::time(nullptr);
  all.decisions.remember(decision);
}

Tensor on_host(const Tensor& tensor) { return tensor.cpu().to(at::kDouble).contiguous(); }
std::span<const double> values(const Tensor& tensor) { return {tensor.const_data_ptr<double>(), static_cast<std::size_t>(tensor.numel())}; }

/// The accuracy rule: results agree to rounding, or are as near to float64's as the first ones are. All are compared with the first ones
/// (very many: those at both ends), a sample with float64's.
bool near_enough(const KernelCall& call, const Tensor& first, const Tensor& other) {
  Agreement agreement;
  const Tensor a = first.reshape(-1), b = other.reshape(-1);
  const std::int64_t n = a.numel(), head = std::min(n, kCompared), tail = std::max(head, n - kCompared);
  for (const auto& [from, to] : {std::pair{std::int64_t{0}, head}, std::pair{tail, n}}) {
    if (from == to) continue;
    const Tensor left = on_host(a.slice(0, from, to)), right = on_host(b.slice(0, from, to));
    agreement.add_all(values(left).data(), values(right).data(), values(left).size());
  }
  if (agreement.holds(0, call.precision)) return true;
  if (!call.truth) return false;
  const std::int64_t dims = first.dim(), batches = dims == 3 ? first.size(0) : 1;
  const SampleSteps steps{std::max<std::int64_t>(batches - 1, 1), (first.size(-2) + kSampledRows - 1) / kSampledRows,
                          (first.size(-1) + kSampledColumns - 1) / kSampledColumns};
  const auto sample = [&](const Tensor& all) {
    const Tensor some = all.slice(-2, 0, all.size(-2), steps.row).slice(-1, 0, all.size(-1), steps.column);
    return on_host(dims == 3 ? some.slice(0, 0, batches, steps.batch) : some);
  };
  const Tensor exact = (*call.truth)(steps).contiguous(), mine = sample(first), theirs = sample(other);
  const auto rows = static_cast<std::size_t>(mine.numel() / mine.size(-1));
  const Accuracy accuracy = check_accuracy(values(exact), values(mine), values(theirs), rows, call.precision);
  return accuracy.pass && agreement.holds(accuracy.stock_error, call.precision);
}

/// One candidate beside another, each alone on its stream, into memory of their own.
struct Pair {
  Tensor one, other;
  std::int64_t one_ns = 0, other_ns = 0;
};
Pair run_pair(const KernelCall& call, const Tensor& out, int one, int other, bool other_first) {
  Pair pair;
  auto& device = *unit_of(out).device;
  pair.one = at::empty_strided(out.sizes(), out.strides(), out.options());
  pair.other = at::empty_strided(out.sizes(), out.strides(), out.options());
  const auto timed = [&](int candidate, const Tensor& to, std::int64_t& ns) {
    device.synchronize(stream_of(out));
    const std::int64_t start = steady_clock().now_ns();
    call.compute(candidate, to);
    device.synchronize(stream_of(out));
    ns = steady_clock().now_ns() - start;
  };
  if (other_first) timed(other, pair.other, pair.other_ns);
  timed(one, pair.one, pair.one_ns);
  if (!other_first) timed(other, pair.other, pair.other_ns);
  return pair;
}

enum class Task { kFirstRun, kRace, kCheck };
struct Trial {
  Task task = Task::kFirstRun;
  int one = 0, other = 0;
  bool other_first = false;
};

/// What the next call of the kind is good for besides its answer; nothing: it is answered by the best so far.
std::optional<Trial> next_trial(State& all, Site& site) {
  if (t_hold || site.busy) return std::nullopt;
  const Contest& contest = site.contest;
  if (contest.over()) {
    if (contest.best() == 0) return std::nullopt;
    const bool again = site.answered >= kFirstRecheck && std::has_single_bit(static_cast<std::uint64_t>(site.answered));
    if (site.checked && !again) return std::nullopt;
    return Trial{Task::kCheck, 0, contest.best(), false};
  }
  const std::int64_t allowed = all.budget_ns + (steady_clock().now_ns() - all.started_ns) / all.budget_share;
  if (site.calls <= kCallsBefore || all.spent_ns > allowed) return std::nullopt;
  if (!site.ran) return Trial{Task::kFirstRun, contest.best(), contest.challenger(), false};
  return Trial{Task::kRace, contest.best(), contest.challenger(), contest.challenger_first()};
}

/// Decided: said and remembered.
void conclude(State& all, Site& site, const char* reason_to_stay) {
  site.reason = site.contest.best() == 0 ? reason_to_stay : "faster";
  if (site.contest.over()) remember(all, site);
}

void refuse(State& all, Site& site, const Trial& trial, const char* reason) {
  site.ran = false;
  if (trial.task == Task::kCheck) {
    site.contest.give_up();
    site.checked = true;
    site.reason = reason;
  } else {
    site.contest.refuse();
    conclude(all, site, reason);
  }
}

void judge(State& all, Site& site, const Trial& trial, const Pair& pair, bool accurate) {
  if (!accurate) return refuse(all, site, trial, "the other's numbers are not near enough");
  if (trial.task == Task::kCheck) {
    site.checked = true;
  } else if (trial.task == Task::kFirstRun) {
    site.ran = true;
    if (site.contest.best() == 0) site.reason = "not measured long enough";
  } else if (pair.one_ns < kLeastNs) {
    site.contest.end();
    conclude(all, site, "too short to gain");
  } else {
    const int challenger = site.contest.challenger();
    site.contest.add(pair.one_ns, pair.other_ns);
    if (site.contest.challenger() != challenger) site.ran = false;
    if (site.contest.over()) conclude(all, site, "the others are slower");
  }
}

}  // namespace

HoldTrials::HoldTrials() : before_(t_hold) { t_hold = true; }
HoldTrials::~HoldTrials() { t_hold = before_; }

int choose_kernel(const KernelCall& call, const Tensor& out) {
  if (call.candidates.size() <= 1 || call.operations < kLeastOperations) return 0;
  State& all = state();
  if (!all.timing || at::globalContext().deterministicAlgorithms()) return 0;
  Site* site = nullptr;
  Trial trial;
  {
    const std::lock_guard lock(all.mutex);
    auto found = all.sites.find(call.kind);
    if (found == all.sites.end()) {
      if (all.sites.size() >= kMostSites) return 0;
      found = all.sites.emplace(call.kind, Site{}).first;  // stays where it is
      meet(all, found->second, call, out);
    }
    site = &found->second;
    ++site->calls;
    const std::optional<Trial> next = next_trial(all, *site);
    if (!next) {
      // Until its numbers were compared, which another thread is at, a remembered choice answers nothing.
      const int best = site->checked ? site->contest.best() : 0;
      site->answered += best != 0;
      return best;
    }
    trial = *next;
    site->busy = true;
  }
  const c10::AutoGradMode no_grad(false);
  const std::int64_t start = steady_clock().now_ns();
  Pair pair;
  const char* problem = nullptr;
  bool accurate = true;
  try {
    pair = run_pair(call, out, trial.one, trial.other, trial.other_first);
    if (trial.task != Task::kRace) accurate = near_enough(call, pair.one, pair.other);
    out.copy_(trial.task == Task::kCheck && accurate ? pair.other : pair.one);
  } catch (const std::exception&) {  // out of memory, a kernel that does not build: the call is made as if nothing had been tried
    problem = "the other does not run";
  }
  const std::lock_guard lock(all.mutex);
  site->busy = false;
  all.spent_ns += steady_clock().now_ns() - start - pair.one_ns;
  if (problem != nullptr) {
    refuse(all, *site, trial, problem);
    return trial.task == Task::kCheck ? 0 : trial.one;
  }
  if (trial.task == Task::kCheck || trial.one != 0) ++site->answered;
  judge(all, *site, trial, pair, accurate);
  return -1;
}

std::string kernel_choices_json() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  std::string out = "[";
  for (const auto& [kind, site] : all.sites) {
    std::string sizes;
    for (std::size_t i = 0; i < 4; ++i) sizes += (i == 0 ? "" : " x ") + std::to_string(kind[i]);
    char gain[32];
    std::snprintf(gain, sizeof gain, "%.3f", 1 / site.contest.gain());
    out += std::string(out.size() > 1 ? ", " : "") + R"({"op": ")" + site.op + R"(", "sizes": ")" + sizes + R"(", "choice": ")" +
           site.names[static_cast<std::size_t>(site.contest.best())] + R"(", "first": ")" + site.names[0] + R"(", "reason": ")" +
           site.reason + R"(", "decided": )" + (site.contest.over() ? "true" : "false") + R"(, "gain": )" + gain + R"(, "pairs": )" +
           std::to_string(site.contest.pairs()) + R"(, "calls": )" + std::to_string(site.calls) + R"(, "answered": )" +
           std::to_string(site.answered) + "}";
  }
  return out + "]";
}

}  // namespace ipexrun::preload::xpu
