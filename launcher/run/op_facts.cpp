#include "launcher/run/op_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kMaxKinds = 3;  // named in one line

/// The part of an event's text before tab number `n` and after the one before it; "" when it was cut off.
std::string part(const IpexrunEvent& event, int n) {
  std::string_view rest(event.text, ::strnlen(event.text, sizeof event.text));
  for (; n > 0; --n) {
    const std::size_t tab = rest.find('\t');
    if (tab == std::string_view::npos) return "";
    rest.remove_prefix(tab + 1);
  }
  return std::string(rest.substr(0, rest.find('\t')));
}

/// "layout=12,small=3"; a last word that was cut off is left out.
std::vector<std::pair<std::string, std::int64_t>> reasons_of(const std::string& text) {
  std::vector<std::pair<std::string, std::int64_t>> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const std::size_t equals = word.find('=');
    const auto count = equals == std::string::npos ? std::nullopt : parse_number<std::int64_t>(word.substr(equals + 1));
    if (count) out.emplace_back(word.substr(0, equals), *count);
    at = end + 1;
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

OpFact op_of(const IpexrunEvent& event) {
  OpFact out;
  out.op = part(event, 0);
  out.calls = event.value[0];
  out.taken = event.value[1];
  out.declined = event.value[2];
  out.stock_ns = event.value[3];
  out.saved_ns = event.value[4];
  out.sites = event.value[5];
  out.reasons = reasons_of(part(event, 1));
  return out;
}

SiteFact site_of(const IpexrunEvent& event) {
  SiteFact out;
  out.key = part(event, 0);
  out.choice = part(event, 1);
  out.reason = part(event, 2);
  out.calls = event.value[0];
  out.taken = event.value[1];
  out.stock_ns = event.value[3];
  out.choice_ns = event.value[4];
  out.samples = event.value[5];
  return out;
}

DriftFact drift_of(const IpexrunEvent& event) {
  DriftFact out;
  out.checks = event.value[0];
  out.failed = event.value[1];
  out.unfinished = event.value[2];
  out.let_through = event.value[3];
  out.left_in_float32 = event.value[4];
  out.waiting = event.value[5];
  out.largest = parse_number<double>(part(event, 0));
  return out;
}

RegionFact region_of(const IpexrunEvent& event) {
  RegionFact out;
  out.where = part(event, 0);
  out.form = part(event, 1);
  out.nodes = event.value[1];
  out.calls = event.value[2];
  out.taken = event.value[3];
  out.speed = static_cast<double>(event.value[4]) / 1e3;
  out.error = static_cast<double>(event.value[5]) / 1e9;
  return out;
}

void add_site(OpFact& op, const SiteFact& site) {
  op.op = site.op();
  op.calls += site.calls;
  op.taken += site.taken;
  op.stock_ns += site.taken * site.stock_ns;
  op.saved_ns += site.taken * (site.stock_ns - site.choice_ns);
  ++op.sites;
}

/// Ops that a person counts together. Overloads (mm.out, addmm_) belong to their op.
struct Kind {
  std::string_view op;
  std::string_view many;
};
constexpr std::array<Kind, 27> kKinds{{{"addmm", "linear calls"},
                                       {"mm", "linear calls"},
                                       {"bmm", "linear calls"},
                                       {"baddbmm", "linear calls"},
                                       {"_weight_int8pack_mm", "linear calls"},
                                       {"_weight_int4pack_mm_for_cpu", "linear calls"},
                                       {"_int_mm", "linear calls"},
                                       {"gelu", "activations"},
                                       {"silu", "activations"},
                                       {"tanh", "activations"},
                                       {"sigmoid", "activations"},
                                       {"_softmax", "softmaxes and norms"},
                                       {"native_layer_norm", "softmaxes and norms"},
                                       {"_scaled_dot_product_flash_attention_for_cpu", "attentions"},
                                       {"max_pool2d_with_indices", "poolings"},
                                       {"avg_pool2d", "poolings"},
                                       {"_adaptive_avg_pool2d", "poolings"},
                                       {"upsample_nearest2d", "interpolations"},
                                       {"_upsample_nearest_exact2d", "interpolations"},
                                       {"upsample_bilinear2d", "interpolations"},
                                       {"upsample_bicubic2d", "interpolations"},
                                       {"native_batch_norm", "softmaxes and norms"},
                                       {"native_group_norm", "softmaxes and norms"},
                                       {"topk", "selections"},
                                       {"_embedding_bag_forward_only", "embedding bags"},
                                       {"_embedding_bag", "embedding bags"},
                                       {"mkldnn_rnn_layer", "LSTM layers"}}};

std::string kind_of(const std::string& op) {
  std::string base = op.substr(0, op.find('.'));
  if (base.ends_with('_')) base.pop_back();
  if (base.starts_with("convolution")) return "convolutions";  // a site says convolution2d
  const auto known = std::find_if(kKinds.begin(), kKinds.end(), [&base](const Kind& kind) { return kind.op == base; });
  return known != kKinds.end() ? std::string(known->many) : base + " calls";
}

/// Over all graphs, each as often as it was answered by a program.
std::vector<OpTimeFact> sum_of_times(const std::map<std::pair<std::int64_t, std::string>, OpTimeFact>& times,
                                     const std::map<std::int64_t, RegionFact>& regions) {
  std::map<std::string, OpTimeFact> by_op;
  for (const auto& [key, time] : times) {
    const auto region = regions.find(key.first);
    if (region == regions.end() || region->second.taken == 0) continue;
    OpTimeFact& all = by_op[time.op];
    all.op = time.op;
    all.before += time.before;
    all.after += time.after;
    all.before_ns += region->second.taken * time.before_ns;
    all.after_ns += region->second.taken * time.after_ns;
  }
  std::vector<OpTimeFact> out;
  for (auto& [op, time] : by_op) out.push_back(std::move(time));
  std::stable_sort(out.begin(), out.end(), [](const OpTimeFact& a, const OpTimeFact& b) {
    return std::max(a.before_ns, a.after_ns) > std::max(b.before_ns, b.after_ns);
  });
  return out;
}

std::int64_t sum(const std::vector<OpFact>& ops, std::int64_t OpFact::*field) {
  std::int64_t out = 0;
  for (const OpFact& op : ops) out += op.*field;
  return out;
}

}  // namespace

std::string DriftFact::text() const {
  if (left_in_float32 > 0)
    return fmt::format("{} of {} weights and sites left in float32 (drift)", left_in_float32, left_in_float32 + let_through + waiting);
  if (checks == 0 && unfinished > 0 && waiting > 0) return "no bf16: no whole pass could be checked for drift";
  return "";
}

std::int64_t OpFacts::calls() const { return sum(ops, &OpFact::calls); }
std::int64_t OpFacts::taken() const { return sum(ops, &OpFact::taken); }

OpFacts op_facts_of(const std::vector<IpexrunEvent>& events) {
  OpFacts out;
  std::map<std::string, OpFact> ops;
  std::map<std::string, SiteFact> sites;
  std::map<std::int64_t, RegionFact> regions;
  std::map<std::pair<std::int64_t, std::string>, OpTimeFact> times;  // of one call of one graph
  for (const IpexrunEvent& event : events) {
    if (event.kind == IPEXRUN_EVENT_OP) {
      ops[part(event, 0)] = op_of(event);
    } else if (event.kind == IPEXRUN_EVENT_SITE) {
      sites[part(event, 0)] = site_of(event);
    } else if (event.kind == IPEXRUN_EVENT_DRIFT) {
      out.drift = drift_of(event);
    } else if (event.kind == IPEXRUN_EVENT_REGION) {
      regions[event.value[0]] = region_of(event);
    } else if (event.kind == IPEXRUN_EVENT_OP_TIME) {
      times[{event.value[0], part(event, 0)}] = {part(event, 0), event.value[1], event.value[2], event.value[3], event.value[4]};
    } else if (event.kind == IPEXRUN_EVENT_TOTALS) {
      out.pack_bytes = event.value[4];
    }
  }
  for (auto& [key, site] : sites) {
    if (key.starts_with("module:") || key.starts_with("optimizer:")) {
      out.modules.push_back({std::move(site)});
    } else {
      out.sites.push_back(std::move(site));
    }
  }
  std::stable_sort(out.modules.begin(), out.modules.end(), [](const ModuleFact& a, const ModuleFact& b) {
    return std::make_pair(a.taken, a.calls) > std::make_pair(b.taken, b.calls);
  });
  std::stable_sort(out.sites.begin(), out.sites.end(), [](const SiteFact& a, const SiteFact& b) { return a.saved_ns() > b.saved_ns(); });
  out.times = sum_of_times(times, regions);
  for (auto& [number, region] : regions) out.regions.push_back(std::move(region));
  std::stable_sort(out.regions.begin(), out.regions.end(), [](const RegionFact& a, const RegionFact& b) { return a.taken > b.taken; });
  if (ops.empty()) {
    for (const SiteFact& site : out.sites) add_site(ops[site.op()], site);
  }
  for (auto& [name, op] : ops) out.ops.push_back(std::move(op));
  std::stable_sort(out.ops.begin(), out.ops.end(), [](const OpFact& a, const OpFact& b) { return a.saved_ns > b.saved_ns; });
  return out;
}

std::string calls_by_kind(const std::vector<OpFact>& ops, bool kept) {
  struct Count {
    std::string kind;
    std::int64_t calls = 0;
    std::int64_t taken = 0;
  };
  std::vector<Count> counts;
  for (const OpFact& op : ops) {
    const std::string kind = kind_of(op.op);
    auto found = std::find_if(counts.begin(), counts.end(), [&kind](const Count& count) { return count.kind == kind; });
    if (found == counts.end()) found = counts.insert(counts.end(), Count{kind});
    found->calls += op.calls;
    found->taken += op.taken;
  }
  std::erase_if(counts, [](const Count& count) { return count.calls == 0; });
  std::stable_sort(counts.begin(), counts.end(),
                   [](const Count& a, const Count& b) { return std::make_pair(a.taken, a.calls) > std::make_pair(b.taken, b.calls); });
  if (counts.size() > kMaxKinds) {
    Count rest{"other calls"};
    for (std::size_t i = kMaxKinds; i < counts.size(); ++i) {
      rest.calls += counts[i].calls;
      rest.taken += counts[i].taken;
    }
    counts.resize(kMaxKinds);
    counts.push_back(rest);
  }
  std::string out;
  for (const Count& count : counts) {
    out += out.empty() ? "" : ", ";
    out += kept ? fmt::format("{} {}", count.calls, count.kind) : fmt::format("{} of {} {}", count.taken, count.calls, count.kind);
  }
  return out;
}

std::string modules_text(const std::vector<ModuleFact>& modules) {
  std::string out;
  for (std::size_t i = 0; i < modules.size() && i < kMaxKinds; ++i) {
    const ModuleFact& module = modules[i];
    out += (i == 0 ? "" : ", ") + module.name() + ' ' + module.choice;
    if (module.choice != "stock" && module.speed() > 0) out += fmt::format(" ({:.1f}x)", module.speed());
  }
  return out + (modules.size() > kMaxKinds ? fmt::format(" and {} more modules", modules.size() - kMaxKinds) : "");
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes >= 10'000'000'000) return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
  if (bytes >= 1'000'000) return fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.0f} kB", static_cast<double>(bytes) / 1e3);
}

}  // namespace ipexrun::launcher
