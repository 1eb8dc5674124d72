// Finds regions in the graphs of torch's profiling executor and puts `ipexrun::ask` and `ipexrun::tell` around each:
//
//   %mine, %a, %b, %left = ipexrun::ask(%x, %weight, ..)
//   %a', %b' = prim::If(%mine)
//     block0(): -> (%a, %b)
//     block1(): <the region as it was>
//               ipexrun::tell(%left)
//               -> (its results)
//
// A region is a row of neighbours in one block, without effects: operators that a recording can hold, and what the interpreter itself does
// with numbers and lists. Nothing that leaves it shares memory with another tensor.
#include "preload/plugin/graph/scripted_pass.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/passes/pass_manager.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/runtime/profiling_record.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "configs/base/log.h"
#include "preload/plugin/graph/recorder.h"
#include "preload/plugin/graph/scripted_choices.h"
#include "preload/plugin/graph/scripted_region.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload::graph {
namespace {

namespace jit = torch::jit;
namespace prim = torch::jit::prim;

struct Names {
  c10::Symbol ask = c10::Symbol::fromQualString("ipexrun::ask");
  c10::Symbol tell = c10::Symbol::fromQualString("ipexrun::tell");
  c10::Symbol region = c10::Symbol::attr("region");
};
const Names& names() {
  static const Names made;
  return made;
}

bool is_tensor(const jit::Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); }

/// Which tensors were numbers of the program, or are made of such alone: the trace of arithmetic with sizes.
class NumberTensors {
 public:
  /// Each is looked at once: such arithmetic reads one value again and again.
  bool has(const jit::Value* value) {
    const auto known = known_.find(value);
    if (known != known_.end()) return known->second;
    const bool is = made_of_numbers(value->node());
    known_.emplace(value, is);
    return is;
  }

 private:
  bool made_of_numbers(const jit::Node* node) {
    if (node->kind() == prim::NumToTensor) return true;
    if (node->kind() == prim::Constant) return true;
    if (!node->kind().is_aten() || !node->blocks().empty()) return false;
    const auto inputs = node->inputs();
    return std::any_of(inputs.begin(), inputs.end(), is_tensor) &&
           std::all_of(inputs.begin(), inputs.end(), [this](const jit::Value* input) { return !is_tensor(input) || has(input); });
  }

  std::unordered_map<const jit::Value*, bool> known_;
};

bool of_interpreter(const jit::Node* node, NumberTensors* numbers) {
  static const auto* prims = new std::unordered_set<c10::Symbol>{
      prim::ListConstruct, prim::ListUnpack, prim::TupleConstruct, prim::TupleUnpack,   prim::TupleIndex,
      prim::NumToTensor,   prim::dtype,      prim::device,         prim::ConstantChunk, prim::unchecked_cast};
  if (prims->count(node->kind()) > 0) return true;
  static const auto* of_numbers = new std::unordered_set<std::string_view>{
      "add",     "sub", "mul", "floordiv", "div",   "remainder", "neg",  "eq",  "ne",          "lt",     "le",        "gt", "ge",
      "__not__", "min", "max", "ceil",     "floor", "round",     "sqrt", "len", "__getitem__", "__is__", "__isnot__", "pow"};
  static const auto* of_shapes = new std::unordered_set<std::string_view>{"size", "dim", "len", "numel"};
  static const auto* of_number_tensors =
      new std::unordered_set<std::string_view>{"Int", "Float", "ScalarImplicit", "IntImplicit", "FloatImplicit"};
  if (!node->kind().is_aten()) return false;
  const std::string_view name = node->kind().toUnqualString();
  const auto inputs = node->inputs();
  const bool reads_tensor = std::any_of(inputs.begin(), inputs.end(), is_tensor);
  if (!reads_tensor) return of_numbers->count(name) > 0 || of_number_tensors->count(name) > 0;
  if (of_shapes->count(name) > 0) return true;
  return of_number_tensors->count(name) > 0 && numbers->has(inputs[0]);
}

/// The operator of torch's dispatcher that the node calls.
std::optional<c10::OperatorHandle> operator_of(const jit::Node* node) {
  const jit::Operator* op = node->maybeOperator();
  if (op == nullptr || !op->isC10Op()) return std::nullopt;
  return c10::Dispatcher::singleton().findSchema({op->schema().name(), op->schema().overload_name()});
}

bool may_belong(const jit::Node* node, NumberTensors* numbers) {
  if (!node->blocks().empty() || node->hasAttribute(jit::attr::Subgraph)) return false;
  if (node->kind() == prim::Constant || node->kind() == prim::GetAttr) return true;
  const auto op = operator_of(node);
  if (op) return recordable(*op);
  const jit::Operator* own = node->maybeOperator();
  return (own == nullptr || !own->schema().is_mutable()) && of_interpreter(node, numbers);
}

bool is_skipped(const jit::Node* node) { return node->kind() == prim::Constant || node->kind() == prim::GetAttr; }

bool may_enter(const jit::Value* value) {
  const c10::TypePtr& type = value->type();
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::NoneType:
      return true;
    case c10::TypeKind::ListType:
      return type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::IntType;
    case c10::TypeKind::OptionalType:
      return type->castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::TensorType;
    default:
      return false;
  }
}

bool may_leave(const jit::Value* value) {
  const c10::TypeKind kind = value->type()->kind();
  return kind == c10::TypeKind::TensorType || kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType ||
         kind == c10::TypeKind::BoolType;
}

/// Neighbours of one block that become a region, and how they are bounded.
struct Row {
  std::vector<jit::Node*> nodes;
  std::vector<jit::Value*> inputs;
  std::vector<jit::Value*> outputs;

  void bound() {
    inputs.clear();
    outputs.clear();
    const std::unordered_set<const jit::Node*> inside(nodes.begin(), nodes.end());
    std::unordered_set<const jit::Value*> seen;
    for (jit::Node* node : nodes) {
      for (jit::Value* value : node->inputs()) {
        if (inside.count(value->node()) == 0 && value->node()->kind() != prim::Constant && seen.insert(value).second)
          inputs.push_back(value);
      }
    }
    for (jit::Node* node : nodes) {
      for (jit::Value* value : node->outputs()) {
        const auto& uses = value->uses();
        if (std::any_of(uses.begin(), uses.end(), [&](const jit::Use& use) { return inside.count(use.user) == 0; }))
          outputs.push_back(value);
      }
    }
  }
};

/// A row as a graph of its own, and which of its values is which.
struct Body {
  std::shared_ptr<jit::Graph> graph;
  std::unordered_map<const jit::Value*, jit::Value*> values;
};

class Finder {
 public:
  explicit Finder(const std::shared_ptr<jit::Graph>& graph) : graph_(graph), chooses_(chooses_by_values(*graph)) {}

  int run() {
    visit(graph_->block());
    return found_;
  }

 private:
  void visit(jit::Block* block) {
    std::vector<std::vector<jit::Node*>> runs(1);
    for (jit::Node* node : block->nodes()) {
      for (jit::Block* inner : node->blocks()) inner_.push_back(inner);
      if (may_belong(node, &numbers_)) {
        runs.back().push_back(node);
      } else if (!runs.back().empty()) {
        runs.emplace_back();
      }
    }
    std::vector<jit::Block*> inner;
    inner.swap(inner_);
    for (const auto& run : runs) take(run);
    for (jit::Block* one : inner) visit(one);
  }

  /// The run as one region; where something is in the way, what lies before, between and behind that. What only prepares arguments at the
  /// beginning, or packs results at the end, stays outside.
  void take(const std::vector<jit::Node*>& run) {
    std::vector<std::vector<jit::Node*>> open(1);
    std::copy_if(run.begin(), run.end(), std::back_inserter(open.back()), [](const jit::Node* node) { return !is_skipped(node); });
    while (!open.empty()) {
      Row row{std::move(open.back()), {}, {}};
      open.pop_back();
      if (row.nodes.size() < 2 || std::none_of(row.nodes.begin(), row.nodes.end(), is_product)) continue;
      row.bound();
      Nodes obstacles = crossing(row);
      if (!obstacles.empty()) {
        split(row, obstacles, &open);
        continue;
      }
      const Body body = body_of(row);
      obstacles = sharing(row, body);
      if (obstacles.empty()) {
        make(row, body);
      } else {
        split(row, obstacles, &open);
      }
    }
  }

  using Nodes = std::unordered_set<const jit::Node*>;

  /// The first part is the last of `open`.
  static void split(const Row& row, const Nodes& obstacles, std::vector<std::vector<jit::Node*>>* open) {
    std::vector<std::vector<jit::Node*>> parts(1);
    for (jit::Node* node : row.nodes) {
      if (obstacles.count(node) == 0) {
        parts.back().push_back(node);
      } else if (!parts.back().empty()) {
        parts.emplace_back();
      }
    }
    std::move(parts.rbegin(), parts.rend(), std::back_inserter(*open));
  }

  /// The nodes that read or give what may not cross the border. All at once, here and below: what is in a row's way is in that of its parts
  /// too, and a row of thousands is not to be looked at as often.
  static Nodes crossing(const Row& row) {
    Nodes found;
    const std::unordered_set<const jit::Value*> entering(row.inputs.begin(), row.inputs.end());
    for (const jit::Node* node : row.nodes) {
      for (const jit::Value* value : node->inputs()) {
        if (entering.count(value) > 0 && !may_enter(value)) found.insert(node);
      }
    }
    for (const jit::Value* value : row.outputs) {
      if (!may_leave(value)) found.insert(value->node());
    }
    return found;
  }

  /// The nodes whose results leave and may share memory with what enters or with another that leaves, or that may write into what enters.
  /// Asked of the row alone: in the whole graph all that is ever put into a list may share memory.
  static Nodes sharing(const Row& row, const Body& body) {
    Nodes found;
    const jit::AliasDb aliases(body.graph);
    std::vector<jit::Value*> entering;
    for (const jit::Value* value : row.inputs) {
      if (is_tensor(value)) entering.push_back(body.values.at(value));
    }
    const auto shares = [&](const std::vector<jit::Value*>& others, const jit::Value* value) {
      std::vector<jit::Value*> one{body.values.at(value)};
      return !others.empty() && aliases.mayContainAlias(others, one);
    };
    for (const jit::Node* node : row.nodes) {
      const auto op = operator_of(node);
      if (op && op->schema().is_mutable() && (body.values.count(node->input(0)) == 0 || shares(entering, node->input(0))))
        found.insert(node);
    }
    std::vector<jit::Value*> left;
    for (const jit::Value* value : row.outputs) {
      if (!is_tensor(value) || found.count(value->node()) > 0) continue;
      const bool fresh = is_fresh(value->node());
      if (!fresh && (shares(entering, value) || shares(left, value))) {
        found.insert(value->node());
      } else {
        left.push_back(body.values.at(value));
      }
    }
    return found;
  }

  /// Its results lie in memory of their own.
  static bool is_fresh(const jit::Node* node) {
    const auto op = operator_of(node);
    if (!op || op->schema().is_mutable()) return false;
    const auto& results = op->schema().returns();
    return std::all_of(results.begin(), results.end(), [](const c10::Argument& result) { return result.alias_info() == nullptr; });
  }

  static Body body_of(const Row& row) {
    Body body;
    body.graph = std::make_shared<jit::Graph>();
    for (const jit::Value* value : row.inputs) {
      jit::Value* input = body.graph->addInput();
      input->setType(value->type());
      body.values[value] = input;
    }
    const auto value_of = [&](jit::Value* value) -> jit::Value* {
      if (const auto known = body.values.find(value); known != body.values.end()) return known->second;
      jit::Node* constant = body.graph->createClone(value->node(), [](jit::Value* same) { return same; });
      body.graph->block()->prependNode(constant);
      return body.values[value] = constant->output();
    };
    for (jit::Node* node : row.nodes) {
      jit::Node* clone = body.graph->appendNode(body.graph->createClone(node, value_of));
      for (std::size_t i = 0; i < node->outputs().size(); ++i) body.values[node->output(i)] = clone->output(i);
    }
    for (const jit::Value* value : row.outputs) body.graph->registerOutput(body.values.at(value));
    return body;
  }

  void make(const Row& row, const Body& body) {
    std::vector<bool> weights;
    for (const jit::Value* value : row.inputs) weights.push_back(is_tensor(value) && value->node()->kind() == prim::GetAttr);
    const auto region =
        c10::make_intrusive<Region>(body.graph, std::move(weights), RegionOf{of_method(), chooses_}, where(row), row.nodes.size());

    // From here on the graph changes, and nothing throws.
    jit::Node* first = row.nodes.front();
    std::vector<jit::Node*> between;
    for (jit::Node* node = first; node != row.nodes.back(); node = node->next()) {
      if (is_skipped(node)) between.push_back(node);
    }
    for (jit::Node* node : between) node->moveBefore(first);
    jit::Node* ask = graph_->create(names().ask, row.inputs, row.outputs.size() + 2)->insertBefore(first);
    ask->ival_(names().region, c10::IValue(region));
    ask->output(0)->setType(c10::BoolType::get());
    ask->outputs().back()->setType(c10::CapsuleType::get());
    jit::Node* choice = graph_->create(prim::If, {ask->output(0)}, row.outputs.size())->insertAfter(ask);
    jit::Block* mine = choice->addBlock();
    jit::Block* stock = choice->addBlock();
    for (jit::Node* node : row.nodes) node->moveBefore(stock->return_node());
    jit::Node* tell = graph_->create(names().tell, {ask->outputs().back()}, 0)->insertBefore(stock->return_node());
    tell->ival_(names().region, c10::IValue(region));
    const std::unordered_set<const jit::Node*> moved(row.nodes.begin(), row.nodes.end());
    for (std::size_t i = 0; i < row.outputs.size(); ++i) {
      jit::Value* value = row.outputs[i];
      ask->output(i + 1)->setType(value->type());
      choice->output(i)->setType(value->type());
      const auto uses = value->uses();
      for (const jit::Use& use : uses) {
        if (moved.count(use.user) == 0) use.user->replaceInput(use.offset, choice->output(i));
      }
      mine->registerOutput(ask->output(i + 1));
      stock->registerOutput(value);
    }
    ++found_;
  }

  /// The forward half of a training step is a graph of its own, which runs on detached tensors and looks like any other; it never has a
  /// module among its inputs.
  [[nodiscard]] bool of_method() const {
    const auto inputs = graph_->inputs();
    return std::any_of(inputs.begin(), inputs.end(), [](const jit::Value* input) { return input->type()->is_module(); });
  }

  /// The heaviest operator's place in the program's text, or its module's name in a traced one.
  static std::string where(const Row& row) {
    const auto heavy = std::find_if(row.nodes.begin(), row.nodes.end(), is_product);
    if (heavy == row.nodes.end()) return "";
    std::string scope = (*heavy)->scopeName();
    if (!scope.empty()) return scope.substr(scope.rfind('/') + 1);
    if (const auto place = (*heavy)->sourceRange().file_line_col()) return std::get<0>(*place) + ':' + std::to_string(std::get<1>(*place));
    return "";
  }

  std::shared_ptr<jit::Graph> graph_;
  bool chooses_;
  NumberTensors numbers_;
  std::vector<jit::Block*> inner_;
  int found_ = 0;
};

bool has(const jit::Block* block, c10::Symbol kind) {
  for (const jit::Node* node : block->nodes()) {
    if (node->kind() == kind) return true;
    for (const jit::Block* inner : node->blocks()) {
      if (has(inner, kind)) return true;
    }
  }
  return false;
}

void find_regions(std::shared_ptr<jit::Graph>& graph) {
  try {
    if (!jit::IsNewExecutorEnabled() || !jit::getProfilingMode() || torch::autograd::get_current_graph_task_id() != -1) return;
    if (has(graph->block(), names().ask)) return;
    jit::ProfilingRecord::removeProfilingNodes(graph->block());
    const int found = Finder(graph).run();
    if (found > 0) log::debug("TorchScript: " + std::to_string(found) + " regions in a graph");
  } catch (const std::exception& problem) {
    log::debug(std::string("TorchScript: ") + problem.what());
  }
}

c10::intrusive_ptr<Region> region_of(const jit::Node* node) { return node->ival(names().region).toCustomClass<Region>(); }

jit::Operation ask_operation(const jit::Node* node) {
  return [region = region_of(node)](jit::Stack& stack) { region->ask(&stack); };
}
jit::Operation tell_operation(const jit::Node* node) {
  return [region = region_of(node)](jit::Stack& stack) { region->tell(&stack); };
}

}  // namespace

void register_scripted_pass() {
  if (!register_recorder()) {
    log::info("TorchScript is left alone: another library watches the operators of this process");
    return;
  }
  scripted_watch_forks();
  static auto region = torch::class_<Region>("ipexrun", "ScriptedRegion");
  jit::registerOperator(jit::Operator(names().ask, ask_operation, c10::AliasAnalysisKind::PURE_FUNCTION));
  jit::registerOperator(jit::Operator(names().tell, tell_operation, c10::AliasAnalysisKind::CONSERVATIVE));
  jit::registerPostPass(find_regions);
}

}  // namespace ipexrun::preload::graph
