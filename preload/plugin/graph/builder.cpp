#include "preload/plugin/graph/builder.h"

#include <ATen/core/jit_type.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "preload/plugin/answer.h"
#include "preload/plugin/bf16_speed.h"
#include "preload/plugin/candidate_kernels.h"
#include "preload/plugin/count_operators.h"
#include "preload/plugin/drift_switch.h"
#include "preload/plugin/graph/duel.h"
#include "preload/plugin/graph/executor.h"
#include "preload/plugin/graph/find_parts.h"
#include "preload/plugin/graph/margins.h"
#include "preload/plugin/graph/op_times.h"
#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/scripted_region.h"
#include "preload/plugin/graph/trial.h"
#include "preload/plugin/tier.h"
#include "preload/plugin/tier_state.h"
#include "preload/plugin/warned.h"

namespace ipexrun::preload::graph {
namespace {

// As in python/ipexrun/graphs/warned.py.
constexpr const char* kWarned = "ipexrun: a graph warned: ";
constexpr char kBetween = '\x1e';

/// Reads arguments out of the form in which they come from Python, see Builder::op().
class Reader {
 public:
  Reader(const std::string& form, const std::vector<std::int64_t>& numbers, const c10::IValue& constants)
      : form_(form), numbers_(numbers), constants_(constants.toTupleRef().elements()) {}

  [[nodiscard]] bool more() const { return at_ < form_.size(); }
  Argument next() {
    switch (form_.at(at_++)) {
      case 'v':
        return Argument::of(static_cast<Value>(number()));
      case 'i':
        return Argument::of(c10::IValue(number()));
      case 'c':
        return Argument::of(constants_[constant_++]);
      case '[': {
        std::vector<Argument> list;
        while (form_.at(at_) != ']') list.push_back(next());
        ++at_;
        return Argument::of(std::move(list));
      }
      default:
        return Argument::of(c10::IValue());
    }
  }
  [[nodiscard]] bool at_default() {
    if (form_.at(at_) != 'd') return false;
    ++at_;
    return true;
  }

 private:
  std::int64_t number() { return numbers_.at(number_++); }

  const std::string& form_;
  const std::vector<std::int64_t>& numbers_;
  c10::ArrayRef<c10::IValue> constants_;
  std::size_t at_ = 0;
  std::size_t number_ = 0;
  std::size_t constant_ = 0;
};

/// Dropout that drops nothing draws nothing: attention takes its rate as an argument.
bool draws(const c10::FunctionSchema& schema, const std::vector<Argument>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    if (schema.arguments()[i].name() == "dropout_p" && argument.kind == Argument::Kind::kConstant && argument.constant.isScalar()) {
      return !argument.constant.toScalar().equal(0);
    }
  }
  return true;
}

/// A graph under construction, then a program. One thread builds; any number may run.
class Builder final : public torch::CustomClassHolder {
 public:
  /// `dtype` is torch's number of it. Sizes that change from call to call are -1.
  std::int64_t tensor_input(std::int64_t dtype, std::vector<std::int64_t> sizes, bool contiguous, bool weight) {
    Facts facts = facts_of(dtype, std::move(sizes), contiguous);
    facts.weight = weight;
    return add_input(std::move(facts));
  }
  std::int64_t number_input() { return add_input({}); }

  /// A node that calls the operator; gives the numbers of its results. `form` has a letter an argument of the schema: 'v' a value, whose
  /// number is the next of `numbers`; 'i' an int, the next of `numbers`; 'c' the next of `constants`; 'n' None; 'd' the schema's default;
  /// '[' to ']' a list. Throws what is in the way for an operator that a graph cannot hold: it writes, draws random numbers, or is not
  /// torch's own.
  std::vector<std::int64_t> op(const std::string& name, const std::string& overload, const std::string& form,
                               const std::vector<std::int64_t>& numbers, const c10::IValue& constants) {
    Node node;
    node.op = c10::Dispatcher::singleton().findSchema({name, overload});
    if (!node.op) throw std::invalid_argument("no operator " + name + '.' + overload);
    const c10::FunctionSchema& schema = node.op->schema();
    if (schema.is_mutable()) throw std::invalid_argument(name + " writes into its arguments");
    if (name.compare(0, 6, "aten::") != 0) throw std::invalid_argument(name + " is not torch's own");
    Reader reader(form, numbers, constants);
    for (const c10::Argument& argument : schema.arguments()) {
      const bool left_out = reader.at_default();
      if (left_out && !argument.default_value()) throw std::invalid_argument(name + " without " + argument.name());
      node.arguments.push_back(left_out ? Argument::of(*argument.default_value()) : reader.next());
    }
    if (node.op->hasTag(at::Tag::nondeterministic_seeded) && draws(schema, node.arguments)) {
      throw std::invalid_argument(name + " draws random numbers");
    }
    std::vector<std::int64_t> results;
    for (std::size_t i = 0; i < schema.returns().size(); ++i) {
      node.outputs.push_back(graph_.add_value({}));
      results.push_back(node.outputs.back());
    }
    graph_.nodes.push_back(std::move(node));
    return results;
  }

  /// Says what is known of a value.
  void describe(std::int64_t value, std::int64_t dtype, std::vector<std::int64_t> sizes, bool contiguous) {
    graph_.facts.at(static_cast<std::size_t>(value)) = facts_of(dtype, std::move(sizes), contiguous);
  }

  /// `layout` is the number of a Layout.
  void describe_layout(std::int64_t value, std::int64_t layout) {
    graph_.facts.at(static_cast<std::size_t>(value)).layout = static_cast<Layout>(layout);
  }

  std::int64_t item(std::int64_t list, std::int64_t index) {
    Node node;
    node.kind = Node::Kind::kItem;
    node.index = index;
    node.arguments.push_back(Argument::of(static_cast<Value>(list)));
    node.outputs.push_back(graph_.add_value({}));
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().outputs[0];
  }

  /// Arithmetic of two ints; `what` is a name of Python's module operator or of torch's functions of sizes, `form` and `numbers` as in
  /// op().
  std::int64_t number(const std::string& what, const std::string& form, const std::vector<std::int64_t>& numbers) {
    static const char* const kNames[] = {"add", "sub", "mul", "floordiv", "mod", "sym_max", "sym_min"};
    const auto* found = std::find(std::begin(kNames), std::end(kNames), what);
    if (found == std::end(kNames)) throw std::invalid_argument(what + " of sizes");
    Node node;
    node.kind = Node::Kind::kNumber;
    node.index = found - std::begin(kNames);
    const c10::IValue none = c10::ivalue::Tuple::create(std::vector<c10::IValue>{});
    Reader reader(form, numbers, none);
    while (reader.more()) node.arguments.push_back(reader.next());
    node.outputs.push_back(graph_.add_value({}));
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().outputs[0];
  }

  /// What the graph gives: one of the forms of op(), values and None only.
  void results(const std::string& form, const std::vector<std::int64_t>& numbers) {
    const c10::IValue none = c10::ivalue::Tuple::create(std::vector<c10::IValue>{});
    Reader reader(form, numbers, none);
    while (reader.more()) graph_.outputs.push_back(reader.next());
  }

  /// Makes the program: `bf16` allows products of float32 to be computed in bf16. Gives what was fused, in words.
  std::string compile(bool bf16) {
    Graph graph = graph_;
    const Fused fused = tier() == nullptr ? Fused{} : optimize(&graph, bf16);
    set_program(bf16, std::make_shared<const Program>(graph));
    return words(fused);
  }

  /// Program::kernels(); empty where there is none.
  std::string kernels(bool bf16) {
    const std::shared_ptr<const Program> program = program_of(bf16);
    return program == nullptr ? "" : program->kernels();
  }

  /// Program::be_exact().
  bool be_exact(bool bf16) {
    const std::shared_ptr<const Program> program = program_of(bf16);
    return program != nullptr && program->be_exact();
  }

  /// A program that lost goes, and so do the packs of the weights among these inputs.
  void drop(bool bf16, const std::vector<at::Tensor>& tensors) {
    set_program(bf16, nullptr);
    std::size_t tensor = 0;
    for (const Value input : graph_.inputs) {
      const Facts& facts = graph_.facts[static_cast<std::size_t>(input)];
      if (!facts.tensor) continue;
      const at::Tensor& given = tensors.at(tensor++);
      if (bf16 && facts.weight && tier() != nullptr && given.has_storage()) {
        tier()->weights.drop_storage(given.storage().unsafeGetStorageImpl());
      }
    }
  }

  /// Where the time of one call goes, by torch's kernels in the graph as captured and in the program.
  std::vector<OpTimeRow> times(bool bf16, const std::vector<at::Tensor>& tensors, const std::vector<std::int64_t>& numbers) {
    const std::shared_ptr<const Program> program = program_of(bf16);
    if (program == nullptr) return {};
    const KeptWarnings aside;
    return rows_of(op_times(graph_, *program, inputs_of(tensors, numbers)));
  }

  void drop_programs() {
    set_program(true, nullptr);
    set_program(false, nullptr);
    drop_parts();
  }

  /// Cuts out what Inductor may compile, for calls like this one, which it runs thrice. Gives the parts' texts, the nanoseconds that each
  /// took, and those of the whole call. `all`: however short they are.
  std::tuple<std::vector<std::string>, std::vector<std::int64_t>, std::int64_t> find_parts(bool bf16,
                                                                                           const std::vector<at::Tensor>& tensors,
                                                                                           const std::vector<std::int64_t>& numbers,
                                                                                           bool all) {
    const KeptWarnings aside;
    Graph graph = graph_;
    Fused fused;
    optimize_around_parts(&graph, bf16, &fused);
    Parts found = graph::find_parts(&graph, bf16, inputs_of(tensors, numbers), all);
    optimize_between_parts(&graph, bf16, &fused);
    auto made = std::make_shared<InParts>();
    made->program = std::make_unique<const Program>(graph);
    made->parts = std::move(found.parts);
    std::vector<std::string> texts;
    std::vector<std::int64_t> part_ns;
    for (const auto& part : made->parts) {
      texts.push_back(part->text);
      part_ns.push_back(part->ns);
    }
    set_in_parts(std::move(made));
    return {std::move(texts), std::move(part_ns), found.whole_ns};
  }

  /// Parts of this text may be answered by the shared object at `path`, once they were chosen. Throws what torch throws.
  void load_part(const std::string& text, const std::string& path) {
    const std::shared_ptr<const InParts> in_parts = parts();
    const auto code = std::make_shared<const CompiledPart>(path);
    for (const auto& part : in_parts->parts) {
      if (part->text == text) part->load(code);
    }
  }

  /// Runs once, both forms of each part several times; gives how many are faster compiled.
  std::int64_t choose_parts(const std::vector<at::Tensor>& tensors, const std::vector<std::int64_t>& numbers) {
    const std::shared_ptr<const InParts> in_parts = parts();
    const KeptWarnings aside;
    graph::choose_parts(*in_parts->program, inputs_of(tensors, numbers));
    return std::count_if(in_parts->parts.begin(), in_parts->parts.end(), [](const auto& part) { return part->answers.load(); });
  }

  std::vector<std::optional<at::Tensor>> run_parts(const std::vector<at::Tensor>& tensors, const std::vector<std::int64_t>& numbers) {
    return results_of(unless_it_warns(*parts()->program, inputs_of(tensors, numbers)));
  }

  void drop_parts() { set_in_parts(nullptr); }

  /// The inputs in their order, tensors and numbers apart; None where a result is None.
  std::vector<std::optional<at::Tensor>> run(bool bf16, const std::vector<at::Tensor>& tensors, const std::vector<std::int64_t>& numbers) {
    const std::shared_ptr<const Program> program = program_of(bf16);
    if (program == nullptr) throw std::logic_error("the graph was not compiled");
    return results_of(unless_it_warns(*program, inputs_of(tensors, numbers)));
  }

 private:
  /// A run whose operators warn raises what they warn of, behind kWarned (graphs/warned.py).
  static Values unless_it_warns(const Program& program, Values inputs) {
    KeptWarnings kept;
    Values values = program.run(std::move(inputs));
    std::string messages = kept.end();
    if (messages.empty()) return values;
    messages.pop_back();
    std::replace(messages.begin(), messages.end(), '\0', kBetween);
    throw std::runtime_error(kWarned + messages);
  }

  static std::vector<std::optional<at::Tensor>> results_of(Values values) {
    std::vector<std::optional<at::Tensor>> results;
    for (c10::IValue& result : values) results.push_back(result.isNone() ? std::nullopt : std::optional(std::move(result).toTensor()));
    return results;
  }
  static Facts facts_of(std::int64_t dtype, std::vector<std::int64_t> sizes, bool contiguous) {
    Facts facts;
    facts.tensor = true;
    facts.dtype = static_cast<at::ScalarType>(dtype);
    facts.sizes = std::move(sizes);
    facts.contiguous = contiguous;
    return facts;
  }
  std::int64_t add_input(Facts facts) {
    graph_.inputs.push_back(graph_.add_value(std::move(facts)));
    return graph_.inputs.back();
  }

  [[nodiscard]] Values inputs_of(const std::vector<at::Tensor>& tensors, const std::vector<std::int64_t>& numbers) const {
    Values inputs;
    inputs.reserve(graph_.inputs.size());
    std::size_t tensor = 0;
    std::size_t number = 0;
    for (const Value input : graph_.inputs) {
      if (graph_.facts[static_cast<std::size_t>(input)].tensor) {
        inputs.emplace_back(tensors.at(tensor++));
      } else {
        inputs.emplace_back(numbers.at(number++));
      }
    }
    return inputs;
  }

  Graph graph_;
  /// A program may be dropped by one thread while another begins to run it: the interpreter lock is not held here.
  void set_program(bool bf16, std::shared_ptr<const Program> program) {
    const std::lock_guard<std::mutex> hold(mutex_);
    (bf16 ? bf16_ : exact_).swap(program);
  }
  std::shared_ptr<const Program> program_of(bool bf16) {
    const std::lock_guard<std::mutex> hold(mutex_);
    return bf16 ? bf16_ : exact_;
  }

  /// The graph with parts for Inductor in it.
  struct InParts {
    std::unique_ptr<const Program> program;
    std::vector<std::shared_ptr<const Part>> parts;
  };
  void set_in_parts(std::shared_ptr<const InParts> made) {
    const std::lock_guard<std::mutex> hold(mutex_);
    in_parts_.swap(made);
  }
  std::shared_ptr<const InParts> parts() {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (in_parts_ == nullptr) throw std::logic_error("the graph has no parts");
    return in_parts_;
  }

  std::mutex mutex_;
  std::shared_ptr<const Program> exact_;
  std::shared_ptr<const Program> bf16_;
  std::shared_ptr<const InParts> in_parts_;
};

class Trial final : public torch::CustomClassHolder, public ProgramTrial {};
class ScriptMargins final : public torch::CustomClassHolder, public Margins {};

/// `dtype`: what torch.compile was told; empty: what the process was told.
bool bf16_allowed(const std::string& dtype) {
  if (tier() == nullptr || dtype == "float32") return false;
  const TierOptions& options = tier()->options;
  if (dtype == "bfloat16") return true;
  if (dtype.empty() && options.dtype != DtypePolicy::kBfloat16 && (tier()->drift.too_far_beyond_modules() || asks_for_ieee())) return false;
  return dtype == "auto" ? bf16_is_native(options.isa) : bf16_inside_allowed(options);
}

}  // namespace

void register_classes() {
  static auto graph =
      torch::class_<Builder>("ipexrun", "Graph")
          .def(torch::init<>())
          .def("tensor_input", [](const c10::intrusive_ptr<Builder>& self, std::int64_t dtype, std::vector<std::int64_t> sizes,
                                  bool contiguous, bool weight) { return self->tensor_input(dtype, std::move(sizes), contiguous, weight); })
          .def("number_input", [](const c10::intrusive_ptr<Builder>& self) { return self->number_input(); })
          .def("op", [](const c10::intrusive_ptr<Builder>& self, const std::string& name, const std::string& overload,
                        const std::string& form, std::vector<std::int64_t> numbers,
                        const c10::IValue& constants) { return self->op(name, overload, form, numbers, constants); })
          .def("describe",
               [](const c10::intrusive_ptr<Builder>& self, std::int64_t value, std::int64_t dtype, std::vector<std::int64_t> sizes,
                  bool contiguous) { self->describe(value, dtype, std::move(sizes), contiguous); })
          .def("describe_layout", [](const c10::intrusive_ptr<Builder>& self, std::int64_t value,
                                     std::int64_t layout) { self->describe_layout(value, layout); })
          .def("item",
               [](const c10::intrusive_ptr<Builder>& self, std::int64_t list, std::int64_t index) { return self->item(list, index); })
          .def("number", [](const c10::intrusive_ptr<Builder>& self, const std::string& what, const std::string& form,
                            std::vector<std::int64_t> numbers) { return self->number(what, form, numbers); })
          .def("results", [](const c10::intrusive_ptr<Builder>& self, const std::string& form,
                             std::vector<std::int64_t> numbers) { self->results(form, numbers); })
          .def("compile", [](const c10::intrusive_ptr<Builder>& self, bool bf16) { return self->compile(bf16); })
          .def("kernels", [](const c10::intrusive_ptr<Builder>& self, bool bf16) { return self->kernels(bf16); })
          .def("be_exact", [](const c10::intrusive_ptr<Builder>& self, bool bf16) { return self->be_exact(bf16); })
          .def("bf16_allowed", [](const c10::intrusive_ptr<Builder>&, const std::string& dtype) { return bf16_allowed(dtype); })
          .def("bf16_speed", [](const c10::intrusive_ptr<Builder>&) { return tier() != nullptr ? bf16_speed(tier()->options.isa) : 0.0; })
          .def("may_time", [](const c10::intrusive_ptr<Builder>&) { return tier() != nullptr && tier()->options.select.timing; })
          .def("choosing_runs", [](const c10::intrusive_ptr<Builder>&) { return static_cast<std::int64_t>(duel_runs()); })
          .def("choosing_ns", [](const c10::intrusive_ptr<Builder>&) { return duel_excess_here_ns(); })
          .def("unsettled_runs",
               [](const c10::intrusive_ptr<Builder>&) { return static_cast<std::int64_t>(duel_runs() + exploration_count()); })
          .def("drift_waits", [](const c10::intrusive_ptr<Builder>&) { return tier() != nullptr && tier()->drift.counts().waiting > 0; })
          .def("count_operators", [](const c10::intrusive_ptr<Builder>&) { count_operators(); })
          .def("operators_counted", [](const c10::intrusive_ptr<Builder>&) { return operators_counted(); })
          .def("answered_ns", [](const c10::intrusive_ptr<Builder>&) { return Selector::answered_here_ns(); })
          .def("exploration_ns", [](const c10::intrusive_ptr<Builder>&) { return static_cast<std::int64_t>(exploration_ns()); })
          .def("set_apart", [](const c10::intrusive_ptr<Builder>&, bool apart) { return drift_set_apart(apart); })
          .def("expect_scripted", [](const c10::intrusive_ptr<Builder>&, std::int64_t form) { scripted_expect(static_cast<int>(form)); })
          .def("scripted_trials", [](const c10::intrusive_ptr<Builder>&) { return static_cast<std::int64_t>(scripted_trials()); })
          .def("drop",
               [](const c10::intrusive_ptr<Builder>& self, bool bf16, std::vector<at::Tensor> tensors) { self->drop(bf16, tensors); })
          .def("find_parts", [](const c10::intrusive_ptr<Builder>& self, bool bf16, std::vector<at::Tensor> tensors,
                                std::vector<std::int64_t> numbers, bool all) { return self->find_parts(bf16, tensors, numbers, all); })
          .def("load_part", [](const c10::intrusive_ptr<Builder>& self, const std::string& text,
                               const std::string& path) { self->load_part(text, path); })
          .def("choose_parts", [](const c10::intrusive_ptr<Builder>& self, std::vector<at::Tensor> tensors,
                                  std::vector<std::int64_t> numbers) { return self->choose_parts(tensors, numbers); })
          .def("run_parts", [](const c10::intrusive_ptr<Builder>& self, std::vector<at::Tensor> tensors,
                               std::vector<std::int64_t> numbers) { return self->run_parts(tensors, numbers); })
          .def("drop_parts", [](const c10::intrusive_ptr<Builder>& self) { self->drop_parts(); })
          .def("drop_programs", [](const c10::intrusive_ptr<Builder>& self) { self->drop_programs(); })
          .def("times", [](const c10::intrusive_ptr<Builder>& self, bool bf16, std::vector<at::Tensor> tensors,
                           std::vector<std::int64_t> numbers) { return self->times(bf16, tensors, numbers); })
          .def("run", [](const c10::intrusive_ptr<Builder>& self, bool bf16, std::vector<at::Tensor> tensors,
                         std::vector<std::int64_t> numbers) { return self->run(bf16, tensors, numbers); });
  static auto trial =
      torch::class_<Trial>("ipexrun", "Trial")
          .def(torch::init<>())
          .def("check", [](const c10::intrusive_ptr<Trial>& self, std::vector<std::optional<at::Tensor>> stock,
                           std::vector<std::optional<at::Tensor>> mine, bool bf16) { return self->check(stock, mine, bf16); })
          .def("check_beside", [](const c10::intrusive_ptr<Trial>& self, std::vector<std::optional<at::Tensor>> stock,
                                  std::vector<std::optional<at::Tensor>> mine, bool bf16,
                                  std::vector<std::optional<at::Tensor>> exact) { return self->check(stock, mine, bf16, exact); })
          .def("check_to_win", [](const c10::intrusive_ptr<Trial>& self, std::vector<std::optional<at::Tensor>> stock,
                                  std::vector<std::optional<at::Tensor>> mine, bool bf16,
                                  std::vector<std::optional<at::Tensor>> exact) { return self->check(stock, mine, bf16, exact, true); })
          .def("counts", [](const c10::intrusive_ptr<Trial>&, std::optional<at::Tensor> result) { return counts(result); })
          .def("add",
               [](const c10::intrusive_ptr<Trial>& self, std::int64_t stock_ns, std::int64_t mine_ns) { self->add(stock_ns, mine_ns); })
          .def("add_unsettled", [](const c10::intrusive_ptr<Trial>& self, std::int64_t stock_ns,
                                   std::int64_t mine_ns) { self->add_unsettled(stock_ns, mine_ns); })
          .def("result", [](const c10::intrusive_ptr<Trial>& self) { return self->result(); })
          .def("ratio", [](const c10::intrusive_ptr<Trial>& self) { return self->ratio(); })
          .def("doubt", [](const c10::intrusive_ptr<Trial>& self) { self->doubt(); })
          .def("disturbed", [](const c10::intrusive_ptr<Trial>& self) { return self->disturbed(); })
          .def("error", [](const c10::intrusive_ptr<Trial>& self) { return self->error(); });
  static auto margins = torch::class_<ScriptMargins>("ipexrun", "Margins")
                            .def(torch::init<>())
                            .def("note", [](const c10::intrusive_ptr<ScriptMargins>& self, std::vector<std::optional<at::Tensor>> stock,
                                            std::vector<std::optional<at::Tensor>> mine) { self->note(stock, mine); })
                            .def("cover", [](const c10::intrusive_ptr<ScriptMargins>& self, std::vector<std::optional<at::Tensor>> mine) {
                              return self->cover(mine);
                            });
}

}  // namespace ipexrun::preload::graph
