#include "preload/plugin/graph/remembered.h"

#include <ATen/Parallel.h>
#include <torch/custom_class.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <string>

#include "configs/base/isa.h"
#include "preload/plugin/graph/duel.h"
#include "preload/plugin/graph/op_times.h"
#include "preload/plugin/tier.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload::graph {
namespace {

constexpr int kFirstNumber = 1 << 20;    // rows of TorchScript graphs are counted from 0
constexpr std::size_t kMostReason = 72;  // what is left of an event's text beside the key

SiteKey key_of(const TierState& state, const std::string& op, const std::string& key) {
  return {op, "-", "-", key, at::get_num_threads(), std::string(level_name(state.options.isa)), state.options.torch_minor};
}

/// False where nothing is known. May throw std::bad_alloc.
bool find(const std::string& op, const std::string& key, Decision* decision, bool* pinned) {
  TierState* state = tier();
  if (state == nullptr) return false;
  state->decisions.load(std::time(nullptr));
  return state->decisions.find(key_of(*state, op, key).text(), dtype_name(state->options.dtype), decision, pinned);
}

/// Events are lines of fields.
std::string one_field(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text.substr(0, kMostReason);
}

class Decisions final : public torch::CustomClassHolder {
 public:
  static bool any(const std::string& op) {
    TierState* state = tier();
    if (state == nullptr) return false;
    state->decisions.load(std::time(nullptr));
    return state->decisions.knows(op);
  }

  static void tell(const std::string& op, const std::string& key, const std::string& choice, const std::string& reason,
                   const std::vector<std::int64_t>& values) {
    const TierState* state = tier();
    if (state == nullptr || !events().active()) return;
    IpexrunEvent event = event_of(IPEXRUN_EVENT_SITE);
    std::copy_n(values.begin(), std::min<std::size_t>(values.size(), 6), event.value);
    events().write(event, key_of(*state, op, key).text() + '\t' + choice + '\t' + one_field(reason));
  }

  static void tell_graph(const std::string& where, const std::string& form, const std::vector<std::int64_t>& values) {
    if (!events().active()) return;
    IpexrunEvent event = event_of(IPEXRUN_EVENT_REGION);
    std::copy_n(values.begin(), std::min<std::size_t>(values.size(), 6), event.value);
    event.value[0] += kFirstNumber;
    events().write(event, one_field(where) + '\t' + one_field(form));
  }

  static void tell_times(std::int64_t number, const std::vector<OpTimeRow>& rows) { write_op_times(kFirstNumber + number, times_of(rows)); }
};

using Self = c10::intrusive_ptr<Decisions>;

constexpr const char* kDuelOp = "graph kernel";
constexpr std::int64_t kWorthNs = 100'000;    // of the way that is taken without a duel: shorter ones are over soon in each process
constexpr int kMostDuelsRemembered = 256;     // by a process: a program of ever new sizes would fill the file
constexpr std::size_t kMostDecisions = 4096;  // of all, likewise
constexpr std::int64_t kSamplesOfDuel = 4;    // runs of each way

std::string text_of(const DuelKey& key) {
  char text[96];
  std::snprintf(text, sizeof text, "kind=%lld,m=%lld,n=%lld,k=%lld,detail=%llx", static_cast<long long>(key.kind),
                static_cast<long long>(key.m), static_cast<long long>(key.n), static_cast<long long>(key.k),
                static_cast<unsigned long long>(key.detail));
  return text;
}

/// What was found out last; `times` in a row.
struct KnownDuel {
  DuelResult result;
  std::int64_t times = 0;
  std::int64_t seconds_old = 0;
  bool pinned = false;
};

/// May throw std::bad_alloc.
KnownDuel known_duel(const DuelKey& key) {
  Decision decision;
  KnownDuel known;
  if (!find(kDuelOp, text_of(key), &decision, &known.pinned)) return {};
  if (std::sscanf(decision.choice.c_str(), "way %d of %d", &known.result.way, &known.result.ways) != 2) return {};
  known.times = decision.samples / kSamplesOfDuel;
  known.seconds_old = std::time(nullptr) - decision.decided_at;
  return known;
}

DuelResult recall_duel(const DuelKey& key) noexcept {
  try {
    const KnownDuel known = known_duel(key);
    const bool trusted = known.pinned || (known.seconds_old >= 0 && known.seconds_old < duel_trust_seconds(known.times));
    return trusted ? known.result : DuelResult{};
  } catch (const std::exception&) {
    return {};
  }
}

void remember_duel(const DuelKey& key, const DuelResult& result) noexcept {
  static std::atomic<int> remembered{0};
  const TierState* state = tier();
  if (state == nullptr || std::max(result.first_ns, result.ns) < kWorthNs || state->decisions.count() >= kMostDecisions ||
      remembered.fetch_add(1, std::memory_order_relaxed) >= kMostDuelsRemembered) {
    return;
  }
  try {
    const KnownDuel known = known_duel(key);
    if (known.pinned) return;
    const std::int64_t times = known.result.way == result.way && known.result.ways == result.ways ? known.times + 1 : 1;
    remember(kDuelOp, text_of(key),
             {"way " + std::to_string(result.way) + " of " + std::to_string(result.ways), "faster", result.first_ns, result.ns,
              times * kSamplesOfDuel});
  } catch (const std::exception&) {  // the next process finds out for itself
  }
}

}  // namespace

std::string recalled(const std::string& op, const std::string& key, bool only_pinned) {
  Decision decision;
  bool pinned = false;
  return find(op, key, &decision, &pinned) && (pinned || !only_pinned) ? decision.choice : "";
}

void remember(const std::string& op, const std::string& key, const Found& found) {
  TierState* state = tier();
  if (state == nullptr) return;
  Decision decision;
  decision.site = key_of(*state, op, key);
  decision.choice = found.choice;
  decision.stock_ns = found.stock_ns;
  decision.choice_ns = found.choice_ns;
  decision.samples = static_cast<int>(found.samples);
  decision.reason = one_field(found.reason);
  decision.dtype = dtype_name(state->options.dtype);
  decision.decided_at = std::time(nullptr);
  state->decisions.remember(decision);
}

void register_remembered() {
  set_duel_memory({recall_duel, remember_duel});
  static auto decisions =
      torch::class_<Decisions>("ipexrun", "Decisions")
          .def(torch::init<>())
          .def("recall", [](const Self&, const std::string& op, const std::string& key) { return recalled(op, key, false); })
          .def("pinned", [](const Self&, const std::string& op, const std::string& key) { return recalled(op, key, true); })
          .def("path", [](const Self&) { return tier() == nullptr ? std::string() : tier()->decisions.path(); })
          .def("any", [](const Self&, const std::string& op) { return Decisions::any(op); })
          .def("remember",
               [](const Self&, const std::string& op, const std::string& key, const std::string& choice, std::int64_t stock_ns,
                  std::int64_t choice_ns, std::int64_t samples, const std::string& reason) {
                 graph::remember(op, key, {choice, reason, stock_ns, choice_ns, samples});
               })
          .def("tell", [](const Self&, const std::string& op, const std::string& key, const std::string& choice, const std::string& reason,
                          const std::vector<std::int64_t>& values) { Decisions::tell(op, key, choice, reason, values); })
          .def("tell_graph", [](const Self&, const std::string& where, const std::string& form,
                                const std::vector<std::int64_t>& values) { Decisions::tell_graph(where, form, values); })
          .def("tell_times",
               [](const Self&, std::int64_t number, const std::vector<OpTimeRow>& rows) { Decisions::tell_times(number, rows); });
}

}  // namespace ipexrun::preload::graph
