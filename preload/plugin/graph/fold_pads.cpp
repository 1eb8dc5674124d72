// Zeros that a program puts around an image for convolutions alone (ZeroPad2d, "same" as TensorFlow has it) are these' own padding: our
// kernels make them as they read the image.
#include <algorithm>
#include <optional>

#include "preload/plugin/graph/passes.h"

namespace ipexrun::preload::graph {
namespace {

/// Numbers of constant_pad_nd, the last dimension first: in front, behind. Nothing where they are not known, cut the image, or are no
/// zeros.
std::optional<std::vector<std::int64_t>> zeros_of(const Node& node) {
  if (!node.is("constant_pad_nd", "")) return std::nullopt;
  const Argument& value = node.arguments[2];
  if (value.kind != Argument::Kind::kConstant || !value.constant.isScalar() || !value.constant.toScalar().equal(0)) return std::nullopt;
  std::vector<std::int64_t> pads;
  if (node.arguments[1].kind == Argument::Kind::kConstant) {
    if (!node.arguments[1].constant.isIntList()) return std::nullopt;
    pads = node.arguments[1].constant.toIntVector();
  }
  for (const Argument& element : node.arguments[1].list) {
    if (element.kind != Argument::Kind::kConstant || !element.constant.isInt()) return std::nullopt;
    pads.push_back(element.constant.toInt());
  }
  const bool known = pads.size() % 2 == 0 && std::all_of(pads.begin(), pads.end(), [](std::int64_t pad) { return pad >= 0; });
  return known ? std::optional(pads) : std::nullopt;
}

/// The reader multiplies by it and nothing else.
bool is_image_of(const Node& node, Value value) {
  const std::vector<Value> reads = Graph::reads(node);
  return node.kind == Node::Kind::kConvolution && node.convolution.x == value && std::count(reads.begin(), reads.end(), value) == 1;
}

}  // namespace

void fold_pads(Graph* graph, Fused* fused) {
  const std::vector<int> uses = graph->uses();
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    const auto zeros = zeros_of(graph->nodes[i]);
    if (!zeros || graph->nodes[i].arguments[0].kind != Argument::Kind::kValue) continue;
    const Value padded = graph->nodes[i].outputs[0];
    const Value image = graph->nodes[i].arguments[0].value;
    std::vector<Convolution*> readers;
    for (std::size_t j = i + 1; j < graph->nodes.size(); ++j) {
      if (is_image_of(graph->nodes[j], padded)) readers.push_back(&graph->nodes[j].convolution);
    }
    if (readers.empty() || uses[static_cast<std::size_t>(padded)] != static_cast<int>(readers.size())) continue;
    // Of the spatial dimensions alone, and the result's layout must be known: it may follow that of the padded image.
    const bool fits = std::all_of(readers.begin(), readers.end(), [&](const Convolution* each) {
      return zeros->size() <= 2 * each->stride.size() && each->layout != Layout::kUnknown;
    });
    if (!fits) continue;
    for (Convolution* reader : readers) {
      const std::size_t dims = reader->stride.size();
      for (std::size_t pair = 0; pair < zeros->size() / 2; ++pair) {
        reader->padding[dims - 1 - pair] += (*zeros)[2 * pair];
        reader->behind[dims - 1 - pair] += (*zeros)[2 * pair + 1];
      }
      reader->x = image;
    }
    ++fused->pads;
  }
}

}  // namespace ipexrun::preload::graph
