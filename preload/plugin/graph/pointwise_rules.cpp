#include "preload/plugin/graph/pointwise_rules.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>

namespace ipexrun::preload::graph {
namespace {

using kernels::Point;

/// float32, bfloat16, bool, or a number in a tensor without dimensions.
bool operand_fits(const Facts& facts) {
  if (!facts.tensor) return false;
  if (facts.dtype == at::kFloat || facts.dtype == at::kBFloat16 || facts.dtype == at::kBool) return true;
  return facts.sizes.empty() && (facts.dtype == at::kDouble || facts.dtype == at::kLong || facts.dtype == at::kInt);
}

class Emitter {
 public:
  Emitter(const Node& node, const Match& match, PointwiseCode* code) : node_(node), match_(match), code_(*code) {}

  bool run() {
    if (!node_.op || node_.op->operator_name().name.compare(0, 6, "aten::") != 0) return false;
    name_ = std::string_view(node_.op->operator_name().name).substr(6);
    overload_ = node_.op->operator_name().overload_name;
    for (const Value value : Graph::reads(node_)) {
      if (code_.registers.count(value) == 0 && !operand_fits(match_.facts(value))) return false;
    }
    int result = emitted();
    if (!ok_ || result < 0) return false;
    if (match_.facts(node_.outputs[0]).dtype == at::kBFloat16)
      result = line(Point::kRoundBf16, {result});  // as stock's next operator finds it
    code_.registers[node_.outputs[0]] = result;
    return true;
  }

 private:
  [[nodiscard]] bool is(std::string_view name, std::initializer_list<std::string_view> overloads) const {
    return name_ == name && std::find(overloads.begin(), overloads.end(), overload_) != overloads.end();
  }

  int emitted() {
    if (const int result = plain(); result != kUnknown) return result;
    if (const int result = activations(); result != kUnknown) return result;
    return comparisons();
  }

  /// Arithmetic and functions of one number.
  int plain() {
    static constexpr std::pair<std::string_view, Point> kOfOne[] = {{"neg", Point::kNegative},
                                                                    {"abs", Point::kAbsolute},
                                                                    {"sqrt", Point::kRoot},
                                                                    {"rsqrt", Point::kReciprocalRoot},
                                                                    {"exp", Point::kExp},
                                                                    {"expm1", Point::kExpLess1},
                                                                    {"log", Point::kLog},
                                                                    {"log1p", Point::kLog1Plus},
                                                                    {"relu", Point::kRelu},
                                                                    {"tanh", Point::kTanh},
                                                                    {"sigmoid", Point::kSigmoid},
                                                                    {"silu", Point::kSilu},
                                                                    {"reciprocal", Point::kReciprocal}};
    for (const auto& [name, what] : kOfOne) {
      if (is(name, {""})) return real(0) ? line(what, {at(0)}) : kRefused;
    }
    if (is("square", {""})) return real(0) ? line(Point::kMultiply, {at(0), at(0)}) : kRefused;
    if (is("add", {"Tensor", "Scalar"})) return real_any() ? line(Point::kAdd, {at(0), scaled(1, 2)}) : kRefused;
    if (is("sub", {"Tensor", "Scalar"})) return real_any() ? line(Point::kSubtract, {at(0), scaled(1, 2)}) : kRefused;
    if (is("rsub", {"Tensor", "Scalar"})) return real_any() ? line(Point::kSubtract, {at(1), scaled(0, 2)}) : kRefused;
    if (is("mul", {"Tensor", "Scalar"})) return real_any() ? line(Point::kMultiply, {at(0), at(1)}) : kRefused;
    if (is("div", {"Tensor", "Scalar"})) return real_any() ? line(Point::kDivide, {at(0), at(1)}) : kRefused;
    if (is("maximum", {""})) return real_any() ? line(Point::kMaximum, {at(0), at(1)}) : kRefused;
    if (is("minimum", {""})) return real_any() ? line(Point::kMinimum, {at(0), at(1)}) : kRefused;
    if (is("pow", {"Tensor_Scalar"})) return power();
    if (is("addcmul", {""}))
      return real_any() ? line(Point::kAdd, {at(0), scaled_by(3, line(Point::kMultiply, {at(1), at(2)}))}) : kRefused;
    if (is("addcdiv", {""})) return real_any() ? line(Point::kAdd, {at(0), scaled_by(3, line(Point::kDivide, {at(1), at(2)}))}) : kRefused;
    if (is("_to_copy", {""})) return cast();
    return kUnknown;
  }

  int activations() {
    if (is("gelu", {""})) {
      if (!real(0) || !argument(1).constant.isString()) return kRefused;
      return line(argument(1).constant.toStringRef() == "tanh" ? Point::kGeluTanh : Point::kGelu, {at(0)});
    }
    if (is("softplus", {""})) return real(0) && number(1) == 1 && number(2) == 20 ? line(Point::kSoftplus, {at(0)}) : kRefused;
    if (is("mish", {""})) {
      return real(0) ? line(Point::kMultiply, {at(0), line(Point::kTanh, {line(Point::kSoftplus, {at(0)})})}) : kRefused;
    }
    if (is("elu", {""})) {
      if (!real(0)) return kRefused;
      const int low = times(line(Point::kExpLess1, {times(at(0), number(3))}), number(1) * number(2));
      return line(Point::kWhere, {line(Point::kGreater, {at(0), constant(0)}), times(at(0), number(2)), low});
    }
    if (is("celu", {""})) {
      if (!real(0) || number(1) == 0) return kRefused;
      const int low = times(line(Point::kExpLess1, {times(at(0), 1 / number(1))}), number(1));
      return line(Point::kWhere, {line(Point::kGreater, {at(0), constant(0)}), at(0), low});
    }
    if (is("leaky_relu", {""})) {
      return real(0) ? line(Point::kWhere, {line(Point::kGreater, {at(0), constant(0)}), at(0), times(at(0), number(1))}) : kRefused;
    }
    if (is("_prelu_kernel", {""})) {
      if (!real_any()) return kRefused;
      return line(Point::kWhere, {line(Point::kGreater, {at(0), constant(0)}), at(0), line(Point::kMultiply, {at(0), at(1)})});
    }
    if (is("hardtanh", {""})) return real(0) ? between(at(0), number(1), number(2)) : kRefused;
    if (is("clamp", {""})) {
      if (!real(0)) return kRefused;
      const double inf = std::numeric_limits<double>::infinity();
      return between(at(0), absent(1) ? -inf : number(1), absent(2) ? inf : number(2));
    }
    if (is("clamp_min", {""})) return real(0) ? between(at(0), number(1), std::numeric_limits<double>::infinity()) : kRefused;
    if (is("clamp_max", {""})) return real(0) ? between(at(0), -std::numeric_limits<double>::infinity(), number(1)) : kRefused;
    if (is("hardsigmoid", {""})) return real(0) ? hard_sigmoid() : kRefused;
    if (is("hardswish", {""})) return real(0) ? line(Point::kMultiply, {at(0), hard_sigmoid()}) : kRefused;
    return kUnknown;
  }

  int comparisons() {
    static constexpr std::tuple<std::string_view, Point, bool> kOfTwo[] = {
        {"gt", Point::kGreater, false},     {"ge", Point::kGreaterEqual, false}, {"lt", Point::kGreater, true},
        {"le", Point::kGreaterEqual, true}, {"eq", Point::kEqual, false},        {"ne", Point::kUnequal, false}};
    for (const auto& [name, what, turned] : kOfTwo) {
      if (is(name, {"Tensor", "Scalar"})) return turned ? line(what, {compared(1), compared(0)}) : line(what, {compared(0), compared(1)});
    }
    if (is("logical_not", {""}) || (is("bitwise_not", {""}) && boolean(0))) return line(Point::kNot, {at(0)});
    const bool both = boolean(0) && node_.arguments.size() > 1 && boolean(1);
    if (both && (is("logical_and", {""}) || is("bitwise_and", {"Tensor"}))) return line(Point::kMultiply, {at(0), at(1)});
    if (both && (is("logical_or", {""}) || is("bitwise_or", {"Tensor"}))) return line(Point::kMaximum, {at(0), at(1)});
    if (is("where", {"self"})) return boolean(0) ? line(Point::kWhere, {at(0), at(1), at(2)}) : kRefused;
    if (is("masked_fill", {"Scalar"})) {  // its result is contiguous, however the operand lies
      const Value x = value_of(argument(0));
      const bool lies_as_result = x != kNone && match_.facts(x).contiguous && match_.facts(x).sizes == match_.facts(node_.outputs[0]).sizes;
      return real(0) && boolean(1) && lies_as_result ? line(Point::kWhere, {at(1), at(2), at(0)}) : kRefused;
    }
    return kUnknown;
  }

  int power() {
    if (!real(0)) return kRefused;
    const double exponent = number(1);
    if (exponent == 1) return line(Point::kCopy, {at(0)});
    if (exponent == 2) return line(Point::kMultiply, {at(0), at(0)});
    if (exponent == 3) return line(Point::kMultiply, {line(Point::kMultiply, {at(0), at(0)}), at(0)});
    if (exponent == -1) return line(Point::kReciprocal, {at(0)});
    if (exponent == 0.5) return line(Point::kRoot, {at(0)});
    if (exponent == -0.5) return line(Point::kReciprocalRoot, {at(0)});
    return kRefused;
  }

  /// To another dtype where nothing else is asked for.
  int cast() {
    const bool only = absent(2) && absent(4) && (absent(6) || argument(6).constant.toInt() == static_cast<int>(at::MemoryFormat::Preserve));
    if (!only || !device_stays()) return kRefused;
    if (!real_any() && !boolean(0)) return line(Point::kUnequal, {at(0), constant(0)});  // whoever reads a bool finds 0 or 1
    return line(Point::kCopy, {at(0)});
  }
  [[nodiscard]] bool device_stays() const {
    const Argument& device = argument(3);
    return device.kind == Argument::Kind::kConstant &&
           (device.constant.isNone() || (device.constant.isDevice() && device.constant.toDevice().is_cpu()));
  }

  int hard_sigmoid() { return line(Point::kDivide, {between(line(Point::kAdd, {at(0), constant(3)}), 0, 6), constant(6)}); }
  /// NaN stays; where low is above high, high.
  int between(int x, double low, double high) {
    if (std::isnan(low) || std::isnan(high)) return kRefused;
    const int raised = std::isinf(low) && low < 0 ? x : line(Point::kMaximum, {x, constant(low)});
    return std::isinf(high) && high > 0 ? raised : line(Point::kMinimum, {raised, constant(high)});
  }
  int times(int x, double factor) { return factor == 1 ? x : line(Point::kMultiply, {x, constant(factor)}); }
  int scaled_by(std::size_t which, int x) { return times(x, number(which)); }
  /// Operand `which` times the number `by`.
  int scaled(std::size_t which, std::size_t by) {
    const double factor = number(by);
    return factor == 1 ? at(which) : line(Point::kMultiply, {at(which), constant(factor)});
  }

  [[nodiscard]] const Argument& argument(std::size_t which) const {
    static const Argument none;
    return which < node_.arguments.size() ? node_.arguments[which] : none;
  }
  [[nodiscard]] bool absent(std::size_t which) const {
    return argument(which).kind == Argument::Kind::kConstant && argument(which).constant.isNone();
  }
  double number(std::size_t which) {
    const auto found = number_of(argument(which));
    if (!found) ok_ = false;
    return found.value_or(1);
  }
  [[nodiscard]] at::ScalarType dtype(std::size_t which) const {
    const Value value = value_of(argument(which));
    return value == kNone ? at::ScalarType::Undefined : match_.facts(value).dtype;
  }
  [[nodiscard]] bool boolean(std::size_t which) const { return dtype(which) == at::kBool; }
  /// The result is float32 or bf16, and so is the operand: functions of bools are those of the numbers 0 and 1 in float32, too, but rare.
  [[nodiscard]] bool real(std::size_t which) const { return real_any() && !boolean(which); }
  [[nodiscard]] bool real_any() const { return match_.facts(node_.outputs[0]).dtype != at::kBool; }

  int constant(double value) {
    const auto narrow = static_cast<float>(value);
    if (std::isnan(narrow)) {  // would not be found again
      ok_ = false;
      return 0;
    }
    const auto [found, added] = code_.constants.emplace(narrow, code_.count);
    if (added) ++code_.count;
    return found->second;
  }
  int at(std::size_t which) {
    const Value value = value_of(argument(which));
    if (value == kNone) return constant(number(which));
    const auto [found, added] = code_.registers.emplace(value, code_.count);
    if (added) {
      ++code_.count;
      code_.inputs.push_back(value);
    }
    return found->second;
  }
  /// A number beside a tensor of bf16 is compared as bf16 has it.
  int compared(std::size_t which) {
    const Value value = value_of(argument(which));
    const Value beside = value_of(argument(1 - which));
    const auto has_sizes = [&](Value one) { return one != kNone && !match_.facts(one).sizes.empty(); };
    if (has_sizes(value) || !has_sizes(beside) || match_.facts(beside).dtype != at::kBFloat16) return at(which);
    return value == kNone ? constant(static_cast<float>(c10::BFloat16(static_cast<float>(number(which)))))
                          : line(Point::kRoundBf16, {at(which)});
  }
  int line(Point what, std::initializer_list<int> operands) {
    if (std::any_of(operands.begin(), operands.end(), [](int one) { return one < 0; })) return kRefused;
    PointwiseCode::Line made{what, code_.count++, {}};
    for (std::size_t i = 0; i < 3; ++i) made.operands[i] = *(operands.begin() + std::min(i, operands.size() - 1));
    code_.lines.push_back(made);
    return made.to;
  }

  static constexpr int kUnknown = -2;
  static constexpr int kRefused = -1;
  const Node& node_;
  const Match& match_;
  PointwiseCode& code_;
  std::string_view name_;
  std::string_view overload_;
  bool ok_ = true;
};

}  // namespace

bool pointwise_result(const Facts& facts) {
  return facts.tensor && (facts.dtype == at::kFloat || facts.dtype == at::kBFloat16 || facts.dtype == at::kBool) && !facts.sizes.empty();
}

bool alone_pays(const Node& node) { return node.is("softplus", "") || node.is("mish", "") || node.is("elu", ""); }

bool emit_pointwise(const Node& node, const Match& match, PointwiseCode* code) { return Emitter(node, match, code).run(); }

bool assign_slots(const PointwiseCode& code, Pointwise* made) {
  std::vector<int> slots(static_cast<std::size_t>(code.count), -1);
  std::vector<int> last_read(static_cast<std::size_t>(code.count), -1);
  const auto of = [](auto& all, int which) -> auto& { return all[static_cast<std::size_t>(which)]; };
  int used = 0;
  for (const Value value : made->inputs) of(slots, code.registers.at(value)) = used++;
  made->constants.clear();
  for (const auto& [value, where] : code.constants) {
    made->constants.push_back(value);
    of(slots, where) = used++;
  }
  const int fixed = used;
  for (std::size_t i = 0; i < code.lines.size(); ++i) {
    for (const int operand : code.lines[i].operands) of(last_read, operand) = static_cast<int>(i);
  }
  for (Pointwise::Result& result : made->results) {
    int& slot = of(slots, code.registers.at(result.value));
    if (slot == -1) slot = used++;
    if (slot < fixed) return false;  // an operand, unchanged
    result.slot = slot;
  }
  std::vector<int> free;
  for (std::size_t i = 0; i < code.lines.size(); ++i) {
    const PointwiseCode::Line& line = code.lines[i];
    int& to = of(slots, line.to);
    const bool of_result = to != -1;
    if (!of_result) {
      if (free.empty()) {
        to = used++;
      } else {
        to = free.back();
        free.pop_back();
      }
    }
    if (used > kernels::kPointSlots) return false;
    made->instructions.push_back({line.what, static_cast<std::uint8_t>(to), static_cast<std::uint8_t>(of(slots, line.operands[0])),
                                  static_cast<std::uint8_t>(of(slots, line.operands[1])),
                                  static_cast<std::uint8_t>(of(slots, line.operands[2]))});
    std::vector<int> ended(line.operands, line.operands + 3);
    std::sort(ended.begin(), ended.end());
    ended.erase(std::unique(ended.begin(), ended.end()), ended.end());
    for (const int operand : ended) {
      const int slot = of(slots, operand);
      const bool result = std::any_of(made->results.begin(), made->results.end(), [&](const auto& one) { return one.slot == slot; });
      if (of(last_read, operand) == static_cast<int>(i) && slot >= fixed && !result) free.push_back(slot);
    }
  }
  made->slots = used;
  return static_cast<int>(made->results.size()) <= kernels::kPointSlots;
}

}  // namespace ipexrun::preload::graph
