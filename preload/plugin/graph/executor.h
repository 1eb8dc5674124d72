// Runs a graph: one step a node, in order, without Python and without the interpreter lock.
//
// Thread rule: a Program is immutable; any number of threads may run it at once, each with values of its own.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "preload/plugin/graph/ir.h"

namespace ipexrun::preload {
class Looks;
}

namespace ipexrun::preload::graph {

using Values = std::vector<c10::IValue>;  ///< by number

class Step {
 public:
  virtual ~Step() = default;
  /// Reads its arguments from `values` and puts its results there. Throws what torch throws.
  virtual void run(Values& values) const = 0;
  /// Nobody reads `value` after this step, and the results of a run do not lie in it: its memory may become that of the step's own result.
  /// Before the first run.
  virtual void may_reuse(Value /*value*/) {}
  /// Which kernel it took last, where several race for it; null elsewhere, and before.
  [[nodiscard]] virtual const char* kernel() const { return nullptr; }
  /// From now on without a kernel that is less exact than others; true where it took one.
  virtual bool be_exact() const { return false; }
};

/// The step of a node that calls its operator.
std::unique_ptr<Step> make_operator_step(const Node& node);

/// Sees the values after step number `step`, before those that nobody reads any more go.
using Watch = std::function<void(std::size_t step, const Values& values)>;

class Program {
 public:
  enum class Steps {
    kFastest,
    kOperators,  ///< torch's dispatcher is called even for views
  };
  /// The graph has been through its passes.
  explicit Program(const Graph& graph, Steps steps = Steps::kFastest);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// One value an input of the graph, in its order; the results in the order of its outputs. Computes below autograd: for graphs that
  /// are no part of one.
  /// With `step_ns`, the nanoseconds that each step took go there.
  Values run(Values inputs, std::vector<std::int64_t>* step_ns = nullptr, const Watch* watch = nullptr) const;
  /// Of each step, the operator_name() of its node.
  [[nodiscard]] const std::vector<std::string>& step_names() const { return names_; }
  /// How many steps took each kernel last, of those for which several race: "40 parts of bf16, 12 oneDNN's". Empty: none.
  [[nodiscard]] std::string kernels() const;
  /// Of all steps: for results that the accuracy rule refused. False: they were exact already.
  bool be_exact() const;

 private:
  struct Planned {
    std::unique_ptr<Step> step;
    std::vector<Value> last_read;  ///< nobody reads them after this step: their memory goes back
    bool outlives = false;         ///< a result may lie in memory that it takes
  };
  /// A weight that a step asks the table of packs about, or what was folded into one, of which all bytes count.
  struct Looked {
    Value value;
    bool whole;
  };
  void plan_looks(const Graph& graph);
  void look(const Values& values, Looks* looks) const;

  std::size_t count_;
  std::vector<Value> inputs_;
  std::vector<Looked> looked_;  ///< in the order of the steps
  std::vector<Planned> steps_;
  std::vector<std::string> names_;
  std::vector<Argument> outputs_;
};

/// The argument's value now; lists are made of what they hold, in the form that `type` of a schema asks for (null: of a result).
c10::IValue resolve(const Argument& argument, const Values& values, const c10::Type* type);

}  // namespace ipexrun::preload::graph
