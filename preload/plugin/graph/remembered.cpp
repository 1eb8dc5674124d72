#include "preload/plugin/graph/remembered.h"

#include <ATen/Parallel.h>
#include <torch/custom_class.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "configs/base/isa.h"
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
