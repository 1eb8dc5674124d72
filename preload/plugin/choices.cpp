#include "preload/plugin/choices.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "preload/plugin/boxed_arguments.h"

namespace ipexrun::preload {
namespace {

template <std::size_t N>
bool is_one_of(const c10::OperatorHandle& op, const std::array<std::string_view, N>& names) {
  constexpr std::string_view kAten = "aten::";
  std::string_view name = op.operator_name().name;
  if (!name.starts_with(kAten)) return false;
  name.remove_prefix(kAten.size());
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Their integers say where among their arguments something was found.
constexpr std::array<std::string_view, 13> kFindPositions = {"topk",     "sort",   "argsort",   "argmax", "argmin",       "max",      "min",
                                                             "kthvalue", "median", "nanmedian", "mode",   "searchsorted", "bucketize"};
constexpr std::array<std::string_view, 6> kCompare = {"lt", "le", "gt", "ge", "eq", "ne"};
/// Take rows by a mask, or branch on it. `where` and masked_fill are not among them: most often both sides meet where the mask turns.
constexpr std::array<std::string_view, 9> kTakeByMask = {"nonzero",    "nonzero_numpy", "nonzero_static",      "index",     "index_put",
                                                         "index_put_", "masked_select", "_local_scalar_dense", "is_nonzero"};

/// Whether whole numbers in this argument say what is taken, or how often. A gradient goes where the forward pass took.
bool takes_by_numbers(const c10::OperatorHandle& op, std::size_t argument) {
  constexpr std::array<std::string_view, 4> kSayWhat = {"index", "indices", "offsets", "repeats"};
  const std::string_view name = op.operator_name().name;
  if (name.ends_with("_backward")) return false;
  if (name == "aten::_local_scalar_dense") return true;
  const auto& declared = op.schema().arguments();
  return argument < declared.size() && std::find(kSayWhat.begin(), kSayWhat.end(), declared[argument].name()) != kSayWhat.end();
}

/// Its result says what the argument is, not what it holds.
bool is_of_shapes(const c10::OperatorHandle& op) {
  const std::string_view name = op.operator_name().name;
  return name.ends_with("_like") || name.starts_with("aten::new_");
}

bool is_mask(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBool; }

std::string_view plain_name(const c10::OperatorHandle& op) {
  std::string_view name = op.operator_name().name;
  if (!name.starts_with("aten::")) return "";
  name.remove_prefix(6);
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);  // in place
  return name;
}

/// What the results of an op jump by, if they do: 0 of others.
double jump_of(const c10::OperatorHandle& op) {
  constexpr std::array<std::string_view, 7> kWhole = {"round", "floor", "ceil", "trunc", "fix", "floor_divide", "poisson"};
  constexpr std::array<std::string_view, 4> kSides = {"sign", "sgn", "heaviside", "bernoulli"};
  const std::string_view name = plain_name(op);
  const bool whole = name == "div" && std::string_view(op.operator_name().overload_name).ends_with("_mode");
  if (whole || std::find(kWhole.begin(), kWhole.end(), name) != kWhole.end()) return 1;
  return std::find(kSides.begin(), kSides.end(), name) == kSides.end() ? 0 : 2;
}

bool is_product(const c10::OperatorHandle& op) {
  constexpr std::array<std::string_view, 9> kProducts = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "_int_mm"};
  const std::string_view name = plain_name(op);
  if (std::find(kProducts.begin(), kProducts.end(), name) != kProducts.end()) return true;
  constexpr std::array<std::string_view, 6> kWithin = {"conv", "lstm", "gru", "rnn", "attention", "transformer_encoder_layer"};
  return std::any_of(kWithin.begin(), kWithin.end(), [name](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

/// Where steps meet the values that they were made of, both sides most often meet where they turn (a relu or a signed root written out).
bool may_meet(const c10::OperatorHandle& op) {
  constexpr std::array<std::string_view, 4> kMeet = {"mul", "div", "where", "masked_fill"};
  const std::string_view name = plain_name(op);
  return std::find(kMeet.begin(), kMeet.end(), name) != kMeet.end();
}

}  // namespace

void Choices::note(const c10::IValue& result, Kind kind) {
  for_each_tensor(result, [&](const at::Tensor& tensor) {
    if (!tensor.has_storage()) return;
    if (kind != Kind::kTaken && (tensor.is_floating_point() || is_mask(tensor) != (kind == Kind::kMask))) return;
    choices_.try_emplace(tensor.storage().unsafeGetStorageImpl(),
                         Choice{c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl()), kind});
  });
}

/// Many small steps are as good as none. Those of floating point have shadows, so that what many of them do is seen: what one of them does
/// to a sample counts. Masks and whole numbers have none: what a hundredth of them does counts.
void Choices::note_steps(const c10::IValue& result, double jump, bool shadowed) {
  constexpr double kSeen = 2e-2;       // as drift_check.cpp holds results to
  constexpr double kLevel = 1.0 / 16;  // of the size of the values
  for_each_tensor(result, [&](const at::Tensor& tensor) {
    if (!tensor.has_storage() || !tensor.is_floating_point() || tensor.numel() == 0 || tensor.layout() != at::kStrided) return;
    if (jump != 0) {
      const at::Tensor values = tensor.detach().to(at::kDouble);
      const double size = values.norm().item<double>() / std::sqrt(static_cast<double>(tensor.numel()));
      const double samples = tensor.dim() > 1 ? static_cast<double>(tensor.size(0)) : 1;
      const double of_one = jump / (size * std::sqrt(static_cast<double>(tensor.numel()) / samples));
      if (shadowed ? of_one <= kSeen : jump / size <= kLevel) return;
    }
    choices_.try_emplace(tensor.storage().unsafeGetStorageImpl(),
                         Choice{c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl()), Kind::kSteps});
  });
}

void Choices::before(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                     c10::function_ref<bool(const at::Tensor&)> rounded) {
  met_ = {};
  if (choices_.empty()) return;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.has_storage()) return;
      const auto found = choices_.find(tensor.storage().unsafeGetStorageImpl());
      if (found == choices_.end()) {
        met_.continuous = met_.continuous || (tensor.is_floating_point() && rounded(tensor));
        return;
      }
      const Kind kind = found->second.kind;
      const bool takes = kind == Kind::kPositions || (kind == Kind::kMask && is_one_of(op, kTakeByMask)) ||
                         (kind == Kind::kNumbers && takes_by_numbers(op, i));
      met_.mask = met_.mask || kind == Kind::kMask;
      met_.numbers = met_.numbers || kind == Kind::kNumbers;
      met_.taken = met_.taken || takes || kind == Kind::kTaken;
      met_.steps = met_.steps || kind == Kind::kSteps;
      met_.used = met_.used || takes;
    });
  }
  met_.into_product = (met_.steps || met_.numbers) && is_product(op);
}

void Choices::after(const c10::OperatorHandle& op, const c10::IValue* results, std::size_t count, bool rounded) {
  const Met met = met_;
  used_ = used_ || met.used || met.into_product;
  const bool finds = rounded && is_one_of(op, kFindPositions);
  const bool holds = !is_of_shapes(op);
  const bool masks = met.mask || (met.numbers && holds) || (rounded && is_one_of(op, kCompare));
  const bool numbers = (met.numbers || rounded) && holds;
  const double jump = rounded ? jump_of(op) : 0;
  const bool becomes_steps = (met.mask || met.numbers) && holds && !(met.continuous && may_meet(op));
  const bool stay_steps = met.steps && holds && !met.into_product && !(met.continuous && may_meet(op));
  const bool steps = (jump != 0 || becomes_steps || stay_steps) && !met.taken;
  for (std::size_t i = 0; i < count; ++i) {
    // The first kind that fits is what a result is.
    if (finds || masks) note(results[i], finds ? Kind::kPositions : Kind::kMask);
    if (numbers) note(results[i], Kind::kNumbers);
    if (met.taken) note(results[i], Kind::kTaken);
    if (steps) note_steps(results[i], jump != 0 ? jump : becomes_steps ? 1 : 0, jump != 0);
  }
}

bool Choices::made(const std::vector<c10::IValue>& arguments) const {
  bool found = false;
  if (choices_.empty()) return found;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      found = found || (tensor.has_storage() && choices_.count(tensor.storage().unsafeGetStorageImpl()) > 0);
    });
  }
  return found;
}

void Choices::forget() {
  choices_.clear();
  met_ = {};
  used_ = false;
}

}  // namespace ipexrun::preload
