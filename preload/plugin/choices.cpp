#include "preload/plugin/choices.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
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

}  // namespace

void Choices::note(const c10::IValue& result, Kind kind) {
  for_each_tensor(result, [&](const at::Tensor& tensor) {
    if (!tensor.has_storage()) return;
    if (kind != Kind::kTaken && (tensor.is_floating_point() || is_mask(tensor) != (kind == Kind::kMask))) return;
    choices_.try_emplace(tensor.storage().unsafeGetStorageImpl(),
                         Choice{c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl()), kind});
  });
}

Choices::Met Choices::meet(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  Met met;
  if (choices_.empty()) return met;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.has_storage()) return;
      const auto found = choices_.find(tensor.storage().unsafeGetStorageImpl());
      if (found == choices_.end()) return;
      const Kind kind = found->second.kind;
      const bool takes = kind == Kind::kPositions || (kind == Kind::kMask && is_one_of(op, kTakeByMask)) ||
                         (kind == Kind::kNumbers && takes_by_numbers(op, i));
      met.mask = met.mask || kind == Kind::kMask;
      met.numbers = met.numbers || kind == Kind::kNumbers;
      met.taken = met.taken || takes || kind == Kind::kTaken;
      used_ = used_ || takes;
    });
  }
  return met;
}

void Choices::after(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, const c10::IValue* results, std::size_t count,
                    bool rounded) {
  const Met met = meet(op, arguments);
  const bool finds = rounded && is_one_of(op, kFindPositions);
  const bool holds = !is_of_shapes(op);
  const bool masks = met.mask || (met.numbers && holds) || (rounded && is_one_of(op, kCompare));
  const bool numbers = (met.numbers || rounded) && holds;
  for (std::size_t i = 0; i < count; ++i) {
    // The first kind that fits is what a result is.
    if (finds || masks) note(results[i], finds ? Kind::kPositions : Kind::kMask);
    if (numbers) note(results[i], Kind::kNumbers);
    if (met.taken) note(results[i], Kind::kTaken);
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
  used_ = false;
}

}  // namespace ipexrun::preload
