// The search space: parameters, what each of them sets, and which values it may take. Pure data and functions of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "tuner/space/value.h"

namespace ipexrun::tuner {

/// What a parameter's value is for.
enum class Target {
  kOption,  ///< a long option of `ipexrun`
  kEnv,     ///< an environment variable of the program
  kArg,     ///< a placeholder {key} in the program's own arguments
  kKnob,    ///< a name of ours or of IPEX's hypertune that stands for options or variables (knobs.h)
};

enum class Kind { kCategory, kInt, kFloat };

/// Holds when the named parameter is active and its value is one of `values`, or compares as said with values[0].
struct Condition {
  enum class Op { kIn, kNotIn, kLess, kLessEqual, kGreater, kGreaterEqual };
  std::string parameter;
  Op op = Op::kIn;
  std::vector<Value> values;

  [[nodiscard]] bool holds(const Point& point) const;
  [[nodiscard]] std::string text() const;
};

struct Parameter {
  std::string name;  ///< unique: "ninstances", "env.OMP_WAIT_POLICY", "args.batch"
  Target target = Target::kOption;
  std::string key;  ///< option, variable or placeholder without the prefix
  Kind kind = Kind::kCategory;
  std::vector<Value> values;  ///< kCategory: at least one; one = fixed
  double low = 0;             ///< kInt, kFloat: bounds, both included
  double high = 0;
  double step = 0;   ///< 0 = 1 for whole numbers, any value for others
  bool log = false;  ///< drawn and gridded evenly in the logarithm; low > 0
  int points = 0;    ///< kFloat, or a log range: values of the grid; 0 = 5, or all powers of two of a log range of whole numbers
  std::optional<Value> fallback;  ///< `default:`, part of the default configuration
  std::vector<Condition> when;    ///< all must hold, else the parameter is left alone
  std::string place;              ///< "space.yaml:3", "" = not from a file

  [[nodiscard]] bool fixed() const { return kind == Kind::kCategory && values.size() == 1; }
};

struct Space {
  std::vector<Parameter> parameters;  ///< a parameter's conditions name earlier ones only
  [[nodiscard]] const Parameter* find(const std::string& name) const;
};

using Random = std::mt19937_64;

/// The values that a grid visits, in order: at most 10000.
std::vector<Value> grid_values(const Parameter& parameter);

/// How many combinations the grid has, conditions not counted; at most `most`.
std::uint64_t grid_size(const Space& space, std::uint64_t most = std::uint64_t{1} << 40);

/// Combination `index` of the grid, the last parameter running fastest. Parameters whose condition does not hold are left out, so that
/// several indices may give one point.
Point grid_point(const Space& space, std::uint64_t index);

/// One point by chance: each parameter evenly over its values (or their logarithms).
Point random_point(const Space& space, Random& random);

/// One value of a range or a list from a number in [0, 1).
Value value_at(const Parameter& parameter, double share);

/// Placeholders at their default (else their first value), fixed parameters, and what has a `default:`. Everything else is left alone.
Point default_point(const Space& space);

/// Whether all conditions of the parameter hold.
bool is_active(const Parameter& parameter, const Point& point);

/// Bounds, step and default of a range. kExitUsage.
Status check_range(const Parameter& parameter);

/// Order of parameters and conditions, bounds, placeholders against `args`. kExitUsage.
Status check_space(const Space& space, const std::vector<std::string>& args);

/// Names of the {placeholders} in a word.
std::vector<std::string> placeholders_in(const std::string& word);

}  // namespace ipexrun::tuner
