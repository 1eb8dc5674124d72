// Rows of element-wise operators, with nothing but memory between them, become one pass through it (pointwise_step.h).
//
// A row grows from operator to operator along what they read of one another, as long as all its results have the same sizes and nothing
// that is made of one of them outside the row goes into it. Of the row's values those are written that somebody else reads. Nodes then
// stand in an order in which a row has its operands, and others its results.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "preload/plugin/graph/match.h"
#include "preload/plugin/graph/passes.h"
#include "preload/plugin/graph/pointwise_rules.h"
#include "preload/plugin/graph/pointwise_step.h"

namespace ipexrun::preload::graph {
namespace {

constexpr std::size_t kMostInOne = 48;

class Rows {
 public:
  Rows(Graph* graph, bool bf16, Fused* fused) : graph_(*graph), bf16_(bf16), fused_(*fused), match_(*graph) {}

  void run() {
    for (std::size_t place = 0; place < graph_.nodes.size(); ++place) {
      if (fits(place)) add(place);
    }
    std::vector<std::vector<std::size_t>> rows;
    std::set<std::size_t> seen;
    for (const auto& [place, row] : row_of_) {
      if (seen.insert(row).second && (members_[row].size() > 1 || alone_pays(graph_.nodes[place]))) rows.push_back(members_[row]);
    }
    for (const std::vector<std::size_t>& row : rows) make(row);
    if (!rows.empty()) order();
  }

 private:
  [[nodiscard]] bool fits(std::size_t place) const {
    const Node& node = graph_.nodes[place];
    if (node.kind != Node::Kind::kOperator || node.outputs.size() != 1 || !pointwise_result(match_.facts(node.outputs[0]))) return false;
    PointwiseCode code;
    return emit_pointwise(node, match_, &code);
  }

  [[nodiscard]] bool same_sizes(std::size_t a, std::size_t b) const {
    return match_.facts(graph_.nodes[a].outputs[0]).sizes == match_.facts(graph_.nodes[b].outputs[0]).sizes;
  }

  [[nodiscard]] bool may_be(const std::vector<std::size_t>& row) const {
    return row.size() <= kMostInOne && !needs_itself(row) && assembled(row).has_value();
  }

  /// Whether something outside, or another row, reads the row and goes into it. The row has the latest place of all rows, so that nothing
  /// behind it leads back.
  [[nodiscard]] bool needs_itself(const std::vector<std::size_t>& row) const {
    const auto inside = [&](std::size_t place) { return std::binary_search(row.begin(), row.end(), place); };
    std::vector<std::size_t> open;
    std::unordered_set<std::size_t> seen;
    const auto reach = [&](std::size_t place) {
      if (place < row.back() && !inside(place) && seen.insert(place).second) open.push_back(place);
    };
    const auto readers_of = [&](std::size_t place, const auto& visit) {
      for (const Value value : graph_.nodes[place].outputs) {
        for (const std::size_t reader : match_.readers(value)) visit(reader);
      }
    };
    for (const std::size_t place : row) readers_of(place, reach);
    while (!open.empty()) {
      const std::size_t place = open.back();
      open.pop_back();
      bool found = false;
      const auto visit = [&](std::size_t reader) {
        found = found || inside(reader);
        reach(reader);
      };
      readers_of(place, visit);
      const auto other = row_of_.find(place);  // a row is computed as a whole
      if (other != row_of_.end()) {
        for (const std::size_t member : members_[other->second]) {
          if (!inside(member)) readers_of(member, visit);
        }
      }
      if (found) return true;
    }
    return false;
  }

  void add(std::size_t place) {
    std::set<std::size_t> near;
    for (const Value value : Graph::reads(graph_.nodes[place])) {
      const Node* maker = match_.maker(value);
      if (maker == nullptr) continue;
      const auto found = row_of_.find(static_cast<std::size_t>(maker - graph_.nodes.data()));
      if (found != row_of_.end() && same_sizes(found->first, place)) near.insert(found->second);
    }
    std::vector<std::vector<std::size_t>> tries;
    std::vector<std::size_t> all = {place};
    for (const std::size_t row : near) all.insert(all.end(), members_[row].begin(), members_[row].end());
    if (near.size() > 1) tries.push_back(all);
    for (auto row = near.rbegin(); row != near.rend(); ++row) {  // the latest first
      tries.push_back(members_[*row]);
      tries.back().push_back(place);
    }
    tries.push_back({place});
    for (std::vector<std::size_t>& row : tries) {
      std::sort(row.begin(), row.end());
      if (row.size() > 1 && !may_be(row)) continue;
      for (const std::size_t member : row) row_of_[member] = members_.size();
      members_.push_back(row);
      return;
    }
  }

  /// Nothing where it would want more slots than there are.
  [[nodiscard]] std::optional<Pointwise> assembled(const std::vector<std::size_t>& row) const {
    PointwiseCode code;
    std::map<Value, std::size_t> member_of;
    Pointwise made;
    for (const std::size_t place : row) {
      const Node& node = graph_.nodes[place];
      if (!emit_pointwise(node, match_, &code)) return std::nullopt;
      member_of[node.outputs[0]] = made.nodes.size();
      made.nodes.push_back(node);
    }
    made.inputs = code.inputs;
    for (const Node& node : made.nodes) {
      Pointwise::Member member;
      for (const Value value : Graph::reads(node)) {
        const auto earlier = member_of.find(value);
        if (earlier != member_of.end()) {
          member.members.push_back(static_cast<int>(earlier->second));
        } else {
          member.inputs.push_back(static_cast<int>(std::find(made.inputs.begin(), made.inputs.end(), value) - made.inputs.begin()));
        }
      }
      made.members.push_back(std::move(member));
    }
    for (const std::size_t place : row) {
      const Value value = graph_.nodes[place].outputs[0];
      if (read_outside(value, row)) made.results.push_back({value, 0, match_.facts(value).dtype});
    }
    if (made.results.empty() || !assign_slots(code, &made)) return std::nullopt;
    return made;
  }

  [[nodiscard]] bool read_outside(Value value, const std::vector<std::size_t>& row) const {
    const auto& readers = match_.readers(value);
    return match_.is_result(value) || std::any_of(readers.begin(), readers.end(),
                                                  [&](std::size_t reader) { return !std::binary_search(row.begin(), row.end(), reader); });
  }

  /// Products alone read it, which would round it themselves.
  [[nodiscard]] bool only_products_read(Value value) const {
    if (match_.is_result(value) || match_.facts(value).dtype != at::kFloat) return false;
    const auto& readers = match_.readers(value);
    return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](std::size_t place) {
      const Node& node = graph_.nodes[place];
      const Linear& linear = node.linear;
      return node.kind == Node::Kind::kLinear && linear.x == value && linear.other != value && linear.weight != value &&
             linear.bias != value;
    });
  }

  void make(const std::vector<std::size_t>& places) {
    std::optional<Pointwise> row = assembled(places);
    if (!row) return;
    Node node;
    node.kind = Node::Kind::kOwn;
    node.own_step = make_pointwise_step;
    node.own_name = "element-wise pass";
    for (const Value value : row->inputs) node.arguments.push_back(Argument::of(value));
    for (Pointwise::Result& result : row->results) {
      if (bf16_ && only_products_read(result.value)) {
        result.dtype = at::kBFloat16;
        graph_.facts[static_cast<std::size_t>(result.value)].dtype = at::kBFloat16;
        ++fused_.kept_bf16;
      }
      node.outputs.push_back(result.value);
    }
    node.pointwise = std::make_shared<const Pointwise>(*std::move(row));
    fused_.pointwise += static_cast<int>(places.size());
    ++fused_.rows;
    for (const std::size_t place : places) graph_.nodes[place] = Node{};
    graph_.nodes[places.back()] = std::move(node);  // order() moves it where it can be computed
  }

  /// The earliest that can be computed first; nodes that went into rows are gone.
  void order() {
    std::map<Value, std::size_t> maker;
    for (std::size_t place = 0; place < graph_.nodes.size(); ++place) {
      for (const Value value : graph_.nodes[place].outputs) maker[value] = place;
    }
    std::vector<std::vector<std::size_t>> waiting(graph_.nodes.size());
    std::vector<std::size_t> missing(graph_.nodes.size(), 0);
    std::set<std::size_t> ready;
    for (std::size_t place = 0; place < graph_.nodes.size(); ++place) {
      for (const Value value : Graph::reads(graph_.nodes[place])) {
        const auto found = maker.find(value);
        if (found == maker.end()) continue;
        waiting[found->second].push_back(place);
        ++missing[place];
      }
      if (missing[place] == 0) ready.insert(place);
    }
    std::vector<Node> ordered;
    while (!ready.empty()) {
      const std::size_t place = *ready.begin();
      ready.erase(ready.begin());
      for (const std::size_t reader : waiting[place]) {
        if (--missing[reader] == 0) ready.insert(reader);
      }
      if (!graph_.nodes[place].outputs.empty()) ordered.push_back(std::move(graph_.nodes[place]));
    }
    graph_.nodes = std::move(ordered);
  }

  Graph& graph_;
  bool bf16_;
  Fused& fused_;
  Match match_;
  std::map<std::size_t, std::size_t> row_of_;  ///< by place
  std::vector<std::vector<std::size_t>> members_;
};

}  // namespace

void find_pointwise(Graph* graph, bool bf16, Fused* fused) { Rows(graph, bf16, fused).run(); }

}  // namespace ipexrun::preload::graph
