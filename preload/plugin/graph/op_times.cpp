#include "preload/plugin/graph/op_times.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "preload/plugin/tier.h"
#include "preload/select/clock.h"

namespace ipexrun::preload::graph {
namespace {

constexpr std::size_t kMostNames = 15;
constexpr int kRuns = 3;                         // the shortest of so many runs of a step counts: others were disturbed
constexpr std::int64_t kEnoughNs = 100'000'000;  // after which there are no more

const char* word(kernels::Unary unary) {
  switch (unary) {
    case kernels::Unary::kRelu:
      return " + relu";
    case kernels::Unary::kGelu:
    case kernels::Unary::kGeluTanh:
      return " + gelu";
    case kernels::Unary::kTanh:
      return " + tanh";
    case kernels::Unary::kSigmoid:
      return " + sigmoid";
    case kernels::Unary::kSilu:
      return " + silu";
    case kernels::Unary::kNone:
      break;
  }
  return "";
}

std::string name_of(const Linear& linear) {
  const std::string binary = linear.binary == kernels::Binary::kNone ? "" : linear.binary == kernels::Binary::kAdd ? " + add" : " + mul";
  const std::string unary = word(linear.unary);
  return "linear" + (linear.binary_first ? binary + unary : unary + binary);
}

std::string name_of(const Convolution& convolution) {
  const std::string sum = convolution.other == kNone ? "" : " + add";
  const std::string activation = convolution.activation == kernels::ConvActivation::kNone ? "" : " + activation";
  return std::string("convolution") + (convolution.mean == kNone ? "" : " + batch norm") +
         (convolution.other_after ? activation + sum : sum + activation);
}

/// Its results share memory with an argument that it does not write.
bool is_view(const c10::FunctionSchema& schema) {
  return !schema.returns().empty() && std::all_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

using ByName = std::map<std::string, OpTime>;

void add(const Program& program, const Values& inputs, std::int64_t OpTime::*count, std::int64_t OpTime::*ns, ByName* to) {
  std::vector<std::int64_t> shortest;
  const std::int64_t started_ns = steady_clock().now_ns();
  for (int run = 0; run < kRuns && (run == 0 || steady_clock().now_ns() - started_ns < kEnoughNs); ++run) {
    std::vector<std::int64_t> step_ns;
    program.run(inputs, &step_ns);
    if (run == 0) shortest = step_ns;
    for (std::size_t i = 0; i < step_ns.size(); ++i) shortest[i] = std::min(shortest[i], step_ns[i]);
  }
  for (std::size_t i = 0; i < shortest.size(); ++i) {
    OpTime& time = (*to)[program.step_names()[i]];
    ++(time.*count);
    time.*ns += shortest[i];
  }
}

}  // namespace

std::string operator_name(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kLinear:
      return name_of(node.linear);
    case Node::Kind::kConvolution:
      return name_of(node.convolution);
    case Node::Kind::kAttention:
      return "attention";
    case Node::Kind::kReorder:
      return "reorder";
    case Node::Kind::kOwn:
      return node.own_name;
    case Node::Kind::kItem:
    case Node::Kind::kNumber:
      return "sizes and items";
    case Node::Kind::kOperator:
      break;
  }
  if (is_view(node.op->schema())) return "views";
  const std::string& name = node.op->schema().name();
  return name.substr(name.rfind(':') + 1);
}

std::vector<OpTime> op_times(const Graph& captured, const Program& program, const Values& inputs) {
  ByName times;
  {
    const TierOff stock;
    const Program plain(captured, Program::Steps::kOperators);
    add(plain, inputs, &OpTime::before, &OpTime::before_ns, &times);
  }
  add(program, inputs, &OpTime::after, &OpTime::after_ns, &times);
  std::vector<OpTime> sorted;
  for (auto& [name, time] : times) {
    sorted.push_back(time);
    sorted.back().op = name;
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const OpTime& a, const OpTime& b) { return std::max(a.before_ns, a.after_ns) > std::max(b.before_ns, b.after_ns); });
  if (sorted.size() <= kMostNames) return sorted;
  OpTime others{"others"};
  for (std::size_t i = kMostNames; i < sorted.size(); ++i) {
    for (const auto field : {&OpTime::before, &OpTime::before_ns, &OpTime::after, &OpTime::after_ns}) others.*field += sorted[i].*field;
  }
  sorted.resize(kMostNames);
  sorted.push_back(std::move(others));
  return sorted;
}

std::vector<OpTimeRow> rows_of(const std::vector<OpTime>& times) {
  std::vector<OpTimeRow> rows;
  for (const OpTime& time : times) rows.emplace_back(time.op, std::vector{time.before, time.before_ns, time.after, time.after_ns});
  return rows;
}

std::vector<OpTime> times_of(const std::vector<OpTimeRow>& rows) {
  std::vector<OpTime> times;
  for (const auto& [op, n] : rows) times.push_back({op, n.at(0), n.at(1), n.at(2), n.at(3)});
  return times;
}

std::string op_times_json(const std::vector<OpTime>& times) {
  std::string json;
  for (const OpTime& time : times) {
    char numbers[160];
    std::snprintf(numbers, sizeof numbers, "\"before\": %lld, \"before_us\": %.1f, \"after\": %lld, \"after_us\": %.1f",
                  static_cast<long long>(time.before), static_cast<double>(time.before_ns) / 1e3, static_cast<long long>(time.after),
                  static_cast<double>(time.after_ns) / 1e3);
    json += (json.empty() ? "{\"op\": \"" : ", {\"op\": \"") + time.op + "\", " + numbers + '}';  // an op's name needs no escapes
  }
  return '[' + json + ']';
}

void write_op_times(std::int64_t graph_number, const std::vector<OpTime>& times) {
  if (!events().active()) return;
  for (const OpTime& time : times) {
    IpexrunEvent event = event_of(IPEXRUN_EVENT_OP_TIME);
    event.value[0] = graph_number;
    event.value[1] = time.before;
    event.value[2] = time.before_ns;
    event.value[3] = time.after;
    event.value[4] = time.after_ns;
    events().write(event, time.op);
  }
}

}  // namespace ipexrun::preload::graph
