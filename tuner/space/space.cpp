#include "tuner/space/space.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

namespace ipexrun::tuner {
namespace {

constexpr int kFloatPoints = 5;
constexpr int kMostPoints = 10000;  // a longer range is gridded as if it had `points: 10000`

bool same(const Value& a, const Value& b) {
  const auto x = number_of(a);
  const auto y = number_of(b);
  return x && y ? *x == *y : text_of(a) == text_of(b);
}

Value value_of_range(const Parameter& p, double x) {
  x = std::clamp(x, p.low, p.high);
  if (p.step > 0 && !p.log) x = std::min(p.high, p.low + std::round((x - p.low) / p.step) * p.step);
  if (p.kind == Kind::kInt) return static_cast<std::int64_t>(std::llround(x));
  return x;
}

/// 64 bits as a number in [0, 1): distribution objects differ between standard libraries.
double unit(Random& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

}  // namespace

bool Condition::holds(const Point& point) const {
  const auto found = point.find(parameter);
  if (found == point.end()) return false;
  const auto any = std::any_of(values.begin(), values.end(), [&](const Value& v) { return same(v, found->second); });
  // Not a number: no comparison holds.
  const double number = number_of(found->second).value_or(std::nan(""));
  const double bound = values.empty() ? std::nan("") : number_of(values.front()).value_or(std::nan(""));
  switch (op) {
    case Op::kIn:
      return any;
    case Op::kNotIn:
      return !any;
    case Op::kLess:
      return number < bound;
    case Op::kLessEqual:
      return number <= bound;
    case Op::kGreater:
      return number > bound;
    case Op::kGreaterEqual:
      return number >= bound;
  }
  return false;
}

std::string Condition::text() const {
  static constexpr const char* kWords[] = {"is", "is not", "<", "<=", ">", ">="};
  std::string out = parameter + " " + kWords[static_cast<int>(op)] + " ";
  for (const Value& value : values) out += (&value == &values.front() ? "" : " or ") + text_of(value);
  return out;
}

const Parameter* Space::find(const std::string& name) const {
  for (const Parameter& one : parameters)
    if (one.name == name) return &one;
  return nullptr;
}

bool is_active(const Parameter& parameter, const Point& point) {
  return std::all_of(parameter.when.begin(), parameter.when.end(), [&](const Condition& one) { return one.holds(point); });
}

std::vector<Value> grid_values(const Parameter& p) {
  if (p.kind == Kind::kCategory) return p.values;
  std::vector<Value> out;
  const auto add = [&](double x) {
    const Value value = value_of_range(p, x);
    if (out.empty() || !same(out.back(), value)) out.push_back(value);
  };
  if (p.log && p.kind == Kind::kInt && p.points == 0) {
    for (double x = p.low; x < p.high; x *= 2) add(x);
    add(p.high);
    return out;
  }
  const double step = p.step > 0 ? p.step : 1;
  const bool long_one = (p.high - p.low) / step >= kMostPoints;
  const bool smooth = p.log || (p.kind == Kind::kFloat && p.step == 0);
  if (smooth || p.points > 0 || long_one) {
    const int points = p.points > 0 ? p.points : smooth ? kFloatPoints : kMostPoints;
    for (int i = 0; i < points; ++i) {
      const double share = points == 1 ? 0 : static_cast<double>(i) / (points - 1);
      add(p.log ? p.low * std::pow(p.high / p.low, share) : p.low + share * (p.high - p.low));
    }
    return out;
  }
  const auto count = static_cast<std::int64_t>(std::floor((p.high - p.low) / step + 1e-9));
  for (std::int64_t i = 0; i <= count; ++i) add(p.low + static_cast<double>(i) * step);
  return out;
}

std::uint64_t grid_size(const Space& space, std::uint64_t most) {
  std::uint64_t out = 1;
  for (const Parameter& one : space.parameters) {
    out *= grid_values(one).size();
    if (out >= most) return most;
  }
  return out;
}

Point grid_point(const Space& space, std::uint64_t index) {
  std::vector<Value> chosen(space.parameters.size());
  for (std::size_t i = space.parameters.size(); i-- > 0;) {
    const std::vector<Value> values = grid_values(space.parameters[i]);
    chosen[i] = values[index % values.size()];
    index /= values.size();
  }
  Point out;
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (is_active(space.parameters[i], out)) out[space.parameters[i].name] = chosen[i];
  return out;
}

Value value_at(const Parameter& p, double share) {
  if (p.kind == Kind::kCategory)
    return p.values[std::min(p.values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(p.values.size())))];
  if (p.log) return value_of_range(p, p.low * std::pow(p.high / p.low, share));
  if (p.kind == Kind::kInt) {
    const double step = p.step > 0 ? p.step : 1;
    const double count = std::floor((p.high - p.low) / step + 1e-9) + 1;
    return value_of_range(p, p.low + step * std::floor(share * count));
  }
  return value_of_range(p, p.low + share * (p.high - p.low));
}

Point random_point(const Space& space, Random& random) {
  Point out;
  for (const Parameter& one : space.parameters) {
    const double share = unit(random);  // drawn for inactive ones too: the same seed gives the same values to the rest
    if (is_active(one, out)) out[one.name] = value_at(one, share);
  }
  return out;
}

Point default_point(const Space& space) {
  Point out;
  for (const Parameter& one : space.parameters) {
    if (!is_active(one, out)) continue;
    if (one.fallback) {
      out[one.name] = *one.fallback;
    } else if (one.fixed()) {
      out[one.name] = one.values.front();
    } else if (one.target == Target::kArg) {
      out[one.name] = grid_values(one).front();
    }
  }
  return out;
}

std::vector<std::string> placeholders_in(const std::string& word) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = word.find('{', at)) != std::string::npos; ++at) {
    const std::size_t end = word.find('}', at);
    if (end == std::string::npos) break;
    const std::string name = word.substr(at + 1, end - at - 1);
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-';
    }) && std::isdigit(static_cast<unsigned char>(name.front())) == 0;
    if (plain) out.push_back(name);
  }
  return out;
}

Status check_range(const Parameter& p) {
  constexpr double kExact = 9007199254740992;  // 2^53: whole numbers beyond are not exact
  if (p.kind == Kind::kCategory) return ok_status();
  if (!std::isfinite(p.low) || !std::isfinite(p.high) || !std::isfinite(p.step) ||
      (p.kind == Kind::kInt && (std::abs(p.low) > kExact || std::abs(p.high) > kExact)))
    return Error{kExitUsage, p.name + ": the range is too wide", "[low, high], two plain numbers"};
  if (!(p.low <= p.high)) return Error{kExitUsage, p.name + ": the range ends before it begins", "[low, high]"};
  if (p.log && !(p.low > 0)) return Error{kExitUsage, p.name + ": a log range begins above 0", ""};
  if (p.kind == Kind::kInt && p.step != std::floor(p.step)) return Error{kExitUsage, p.name + ": step needs a whole number", ""};
  if (!p.fallback || std::holds_alternative<std::monostate>(*p.fallback)) return ok_status();
  const auto number = number_of(*p.fallback);
  if (number && *number >= p.low && *number <= p.high && (p.kind == Kind::kFloat || *number == std::floor(*number))) return ok_status();
  return Error{kExitUsage, p.name + ": the default " + text_of(*p.fallback) + " is not in the range", ""};
}

namespace {

Status check_parameter(const Space& space, const Parameter& one, const std::vector<std::string>& args) {
  const auto at = [&](const std::string& name) {
    return std::find_if(space.parameters.begin(), space.parameters.end(), [&](const Parameter& p) { return p.name == name; });
  };
  if (&*at(one.name) != &one) return Error{kExitUsage, "the parameter '" + one.name + "' is given twice", ""};
  for (const Condition& condition : one.when)
    if (at(condition.parameter) == space.parameters.end() || &*at(condition.parameter) >= &one)
      return Error{kExitUsage, one.name + ": its condition names '" + condition.parameter + "', which is no parameter before it",
                   "put that parameter first"};
  if (one.kind == Kind::kCategory && one.values.empty()) return Error{kExitUsage, one.name + " has no value to choose from", ""};
  if (Status right = check_range(one); !right.ok()) return right;
  if (one.target != Target::kArg) return ok_status();
  std::set<std::string> asked;
  for (const std::string& word : args)
    for (const std::string& name : placeholders_in(word)) asked.insert(name);
  if (asked.count(one.key) != 0) return ok_status();
  std::string seen;
  for (const std::string& name : asked) seen += (seen.empty() ? "the arguments have {" : ", {") + name + "}";
  return Error{kExitUsage, "the program's arguments have no {" + one.key + "} for the parameter " + one.name,
               seen.empty() ? "write it where the value belongs, e.g. --" + one.key + " {" + one.key + "}" : seen};
}

}  // namespace

Status check_space(const Space& space, const std::vector<std::string>& args) {
  for (const Parameter& one : space.parameters)
    if (Status right = check_parameter(space, one, args); !right.ok())
      return one.place.empty() ? right : Status(Error{kExitUsage, one.place + ": " + right.error().what, right.error().hint});
  return ok_status();
}

}  // namespace ipexrun::tuner
