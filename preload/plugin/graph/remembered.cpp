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
constexpr std::int64_t kWorthNs = 100'000;         // of the way that is taken without a duel: shorter ones are over soon in each process
constexpr int kMostDuelsRemembered = 256;          // by a process: a program of ever new sizes would fill the file
constexpr std::size_t kMostDecisions = 4096;       // of all, likewise

std::string text_of(const DuelKey& key) {
  char text[96];
  std::snprintf(text, sizeof text, "kind=%lld,m=%lld,n=%lld,k=%lld,detail=%llx", static_cast<long long>(key.kind), static_cast<long long>(key.m),
                static_cast<long long>(key.n), static_cast<long long>(key.k), static_cast<unsigned long long>(key.detail));
  return text;
}

DuelResult recall_duel(const DuelKey& key) noexcept {
  DuelResult known;
  try {
    const std::string choice = recalled(kDuelOp, text_of(key), false);
    if (std::sscanf(choice.c_str(), "way %d of %d", &known.way, &known.ways) != 2) return {};
  } catch (const std::exception&) {
    return {};
  }
  return known;
}

void remember_duel(const DuelKey& key, const DuelResult& result) noexcept {
  static std::atomic<int> remembered{0};
  const TierState* state = tier();
  if (state == nullptr || std::max(result.first_ns, result.ns) < kWorthNs || state->decisions.count() >= kMostDecisions ||
      remembered.fetch_add(1, std::memory_order_relaxed) >= kMostDuelsRemembered) {
    return;
  }
  try {
    remember(kDuelOp, text_of(key), {"way " + std::to_string(result.way) + " of " + std::to_string(result.ways), "faster", result.first_ns, result.ns, 4});
  } catch (const std::exception&) {  // the next process finds out for itself
  }
}

}  // namespace

std::string recalled(const std::string& op, const std::string& key, bool only_pinned) {
  TierState* state = tier();
  if (state == nullptr) return "";
  state->decisions.load(std::time(nullptr));
  Decision decision;
  bool pinned = false;
  if (!state->decisions.find(key_of(*state, op, key).text(), dtype_name(state->options.dtype), &decision, &pinned)) return "";
  return pinned || !only_pinned ? decision.choice : "";
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
