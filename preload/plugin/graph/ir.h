// The one representation of a captured program: a straight line of operators over numbered values, taken from FX (builder.h).
//
// A graph is functional: no operator writes into a value, which the one who captures has to make sure of (AOTAutograd's functionalization).
// Passes (passes.h) rewrite it before its first run; from then on it is immutable and may be run by several threads (executor.h).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/conv.h"
#include "kernels/epilogue.h"

namespace ipexrun::preload::graph {

using Value = int;  ///< its number; kNone where an optional argument is absent
inline constexpr Value kNone = -1;

/// How the elements of an image lie, without gaps: stock's strides for torch.contiguous_format or torch.channels_last, to the number.
enum class Layout : int { kUnknown = 0, kPlanar = 1, kChannelsLast = 2 };

/// What is known of a value before the first run. Sizes that change from call to call are kDynamic.
struct Facts {
  static constexpr std::int64_t kDynamic = -1;
  bool tensor = false;
  bool weight = false;  ///< a parameter or a buffer: the same tensor in every call, until the program changes it
  at::ScalarType dtype = at::ScalarType::Undefined;
  std::vector<std::int64_t> sizes;
  bool contiguous = false;  ///< as the one who captured saw it
  Layout layout = Layout::kUnknown;
};

/// An argument of a node: a value, a constant, or a list that holds values.
struct Argument {
  enum class Kind { kValue, kConstant, kList };
  Kind kind = Kind::kConstant;
  Value value = kNone;
  c10::IValue constant;
  std::vector<Argument> list;

  static Argument of(Value value);
  static Argument of(c10::IValue constant);
  static Argument of(std::vector<Argument> list);
  [[nodiscard]] bool is_value(Value other) const { return kind == Kind::kValue && value == other; }
};

/// Appends what tells the argument apart; false for constants that it cannot tell apart.
bool append_text(const Argument& argument, std::string* text);

/// A linear layer with what follows it: epilogue.h over x [.., K] * weight + bias.
struct Linear {
  Value x = kNone;
  Value weight = kNone;
  bool rows_are_outputs = true;  ///< the weight is [N, K], as nn.Linear has it; else [K, N]
  Value bias = kNone;
  kernels::Unary unary = kernels::Unary::kNone;
  kernels::Binary binary = kernels::Binary::kNone;
  bool binary_first = false;
  Value other = kNone;
  bool bf16_out = false;    ///< only linear layers read the result, and these would round it to bf16 themselves
  bool exact = false;       ///< float32 that no bf16 may stand for
  bool rows_apart = false;  ///< a line of cache lies between two rows of the result (space_rows())
};

/// A convolution, with the batch norm that was folded into it and what follows: kernels/conv.h over x.
struct Convolution {
  Value x = kNone;
  Value weight = kNone;
  Value bias = kNone;
  Value mean = kNone;  ///< of the norm; kNone: there is none
  Value variance = kNone;
  Value scale = kNone;  ///< the norm's weight and bias, which it may lack
  Value shift = kNone;
  double eps = 0;
  std::vector<std::int64_t> stride;   ///< each has a number a spatial dimension
  std::vector<std::int64_t> padding;  ///< in front
  std::vector<std::int64_t> behind;
  std::vector<std::int64_t> dilation;
  std::int64_t groups = 1;
  kernels::ConvActivation activation = kernels::ConvActivation::kNone;
  float low = 0;
  float high = 0;
  Value other = kNone;  ///< added, before the activation or after it
  bool other_after = false;
  bool bf16 = false;                 ///< float32 may be multiplied in bf16
  bool bf16_out = false;             ///< the result is bf16, whatever the weight is
  Layout layout = Layout::kUnknown;  ///< of the result; kUnknown: stock's rule, by x and the weight
};

enum class Arithmetic : int { kAdd, kSub, kMul, kFloorDiv, kMod, kMax, kMin };

/// Bits of what kAttention may do.
enum AttentionForm : std::int64_t {
  kAttentionBf16 = 1,         ///< bf16 inside of float32
  kAttentionWritten = 2,      ///< the program wrote it out: rows of which a mask hides everything are NaN, and the result is contiguous
  kAttentionTokensFirst = 4,  ///< or lies as [batch, rows, heads, depth]
};

class Step;
struct Graph;
struct Part;
struct Pointwise;

struct Node {
  enum class Kind {
    kOperator,     ///< `op` on `arguments`
    kItem,         ///< element `index` of a list
    kNumber,       ///< arithmetic of sizes: `index` is one of Arithmetic, over two ints
    kAttention,    ///< `op` on `arguments`, by our own kernel; `index`: AttentionForm
    kLinear,       ///< `linear`, viewed in the sizes of arguments[0] where there is one
    kConvolution,  ///< `convolution`
    kReorder,      ///< arguments[0] in the Layout of number `index` and of the dtype of number arguments[1]
    kOwn,          ///< whatever step `own_step` makes; what `arguments` and `index` mean is said beside it
  };
  Kind kind = Kind::kOperator;
  std::optional<c10::OperatorHandle> op;
  std::vector<Argument> arguments;
  std::vector<Value> outputs;
  std::int64_t index = 0;
  Linear linear;
  std::unique_ptr<Step> (*own_step)(const Node& node) = nullptr;
  const char* own_name = "";  ///< for reports: "norm"
  Convolution convolution;
  std::shared_ptr<const Pointwise> pointwise;  ///< of steps of pointwise_step.h
  std::shared_ptr<const Part> part;            ///< of steps of part_step.h
  std::shared_ptr<const Graph> inside;         ///< of steps of weights_step.h

  /// Of namespace aten, with this name and overload.
  [[nodiscard]] bool is(const char* name, const char* overload) const;
};

/// What is read, by other names: one for each value.
void rename(Argument* argument, const std::vector<Value>& names);
void rename(Node* node, const std::vector<Value>& names);

struct Graph {
  std::vector<Facts> facts;  ///< by value
  std::vector<Value> inputs;
  std::vector<Node> nodes;
  std::vector<Argument> outputs;

  Value add_value(Facts about);
  /// Every value that the node reads, in the order of its arguments; repeated where it reads one twice.
  [[nodiscard]] static std::vector<Value> reads(const Node& node);
  /// How often each value is read, by nodes and as a result.
  [[nodiscard]] std::vector<int> uses() const;
  /// Replaces `from` by `to` wherever it is read, from node `first` on and in the outputs.
  void replace(Value from, Value to, std::size_t first);
};

}  // namespace ipexrun::preload::graph
