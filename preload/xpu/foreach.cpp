// torch._foreach_* on xpu: one launch over all tensors (tables.h) where they are of one type and without holes; else torch's own loop over
// them.
#include <ATen/ops/empty_like.h>

#include <bit>
#include <string>
#include <unordered_map>

#include "preload/xpu/operands.h"
#include "preload/xpu/operators.h"
#include "preload/xpu/tables.h"

namespace ipexrun::preload::xpu {
namespace {

using at::Tensor;
using List = std::vector<Tensor>;

/// `form`, a letter an argument of the schema: L list of operands, I such a list that is the result too, V operand that is a number for
/// all, N one for each, E one of a single element, s and n parameter of the operator, for all or for each, - what is not looked at. Without
/// an I new tensors are made.
struct ListRow {
  const char* name;
  const char* op;  ///< of elementwise.cl
  const char* form;
};

constexpr ListRow kRows[] = {
    {"add_.Scalar", "add", "IV"},
    {"add.Scalar", "add", "LV"},
    {"add_.List", "add", "ILs"},
    {"add.List", "add", "LLs"},
    {"add_.ScalarList", "add", "IN"},
    {"add_.Tensor", "add", "IEs"},
    {"sub_.Scalar", "sub", "IV"},
    {"sub_.List", "sub", "ILs"},
    {"sub.List", "sub", "LLs"},
    {"mul_.Scalar", "mul", "IV"},
    {"mul.Scalar", "mul", "LV"},
    {"mul_.ScalarList", "mul", "IN"},
    {"mul_.List", "mul", "IL"},
    {"mul.List", "mul", "LL"},
    {"mul_.Tensor", "mul", "IE"},
    {"mul.Tensor", "mul", "LE"},
    {"div_.Scalar", "div", "IV"},
    {"div.Scalar", "div", "LV"},
    {"div_.ScalarList", "div", "IN"},
    {"div.ScalarList", "div", "LN"},
    {"div_.List", "div", "IL"},
    {"div.List", "div", "LL"},
    {"div_.Tensor", "div", "IE"},
    {"addcmul_.Scalar", "addcmul", "ILLs"},
    {"addcmul.Scalar", "addcmul", "LLLs"},
    {"addcmul_.ScalarList", "addcmul", "ILLn"},
    {"addcdiv_.Scalar", "addcdiv", "ILLs"},
    {"addcdiv.Scalar", "addcdiv", "LLLs"},
    {"addcdiv_.ScalarList", "addcdiv", "ILLn"},
    {"lerp_.Scalar", "lerp", "ILs"},
    {"lerp.Scalar", "lerp", "LLs"},
    {"maximum_.List", "max", "IL"},
    {"maximum.List", "max", "LL"},
    {"minimum_.List", "min", "IL"},
    {"clamp_max_.Scalar", "clamp_max", "Is"},
    {"clamp_min_.Scalar", "clamp_min", "Is"},
    {"sqrt", "sqrt", "L"},
    {"sqrt_", "sqrt", "I"},
    {"rsqrt_", "rsqrt", "I"},
    {"neg", "neg", "L"},
    {"neg_", "neg", "I"},
    {"abs", "abs", "L"},
    {"abs_", "abs", "I"},
    {"sign_", "sign", "I"},
    {"exp_", "exp", "I"},
    {"reciprocal_", "reciprocal", "I"},
    {"pow.Scalar", "pow", "LV"},
    {"pow_.Scalar", "pow", "IV"},
    {"zero_", "zero", "I"},
    {"copy_", "second", "IL-"},
};

const ListRow& row_of(const c10::OperatorHandle& op) {
  static const auto* rows = [] {
    auto* out = new std::unordered_map<std::string, const ListRow*>;
    for (const ListRow& row : kRows) (*out)[row.name] = &row;
    return out;
  }();
  const c10::OperatorName& name = op.operator_name();
  return *rows->at(name.name.substr(std::string("aten::_foreach_").size()) + (name.overload_name.empty() ? "" : "." + name.overload_name));
}

/// Elements of the same place belong together: one real type, same sizes and strides, without holes.
bool fit(const List& first, const List& other) {
  if (other.size() != first.size() || first.empty() || !is_real(first[0])) return false;
  const at::ScalarType type = first[0].scalar_type();
  const c10::Device device = first[0].device();
  for (std::size_t i = 0; i < first.size(); ++i) {
    const Tensor &one = first[i], &with = other[i];
    if (!plain(with) || with.scalar_type() != type || with.device() != device) return false;
    if (&first == &other ? !one.is_non_overlapping_and_dense() : with.sizes() != one.sizes() || with.strides() != one.strides())
      return false;
  }
  return true;
}

std::uint64_t bits(bool wide, double value) {
  return wide ? std::bit_cast<std::uint64_t>(value) : std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

/// False: nothing was done, torch's loop has to.
bool run(const ListRow& row, Given given, Results& results) {
  const List first = given[0].toTensorVector();
  if (!fit(first, first) || !has_tables(first[0])) return false;
  const bool in_place = row.form[0] == 'I';
  std::vector<Row> rows(first.size());
  std::string options;
  std::vector<Argument> values;
  double parameter = std::string_view(row.op) == "add" || std::string_view(row.op) == "sub" ? 1 : 0;
  std::size_t operands = 0;
  const auto take = [&](const List& list) {
    ++operands;
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].address[operands] = reinterpret_cast<std::uint64_t>(list[i].const_data_ptr());
  };
  take(first);
  const auto for_each = [&](const c10::IValue& value) {
    const c10::List<c10::IValue> numbers = value.toList();
    if (numbers.size() != rows.size()) return false;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const at::Scalar one = numbers.get(i).toScalar();
      if (one.isComplex()) return false;
      rows[i].number = bits(wide(first[0]), one.to<double>());
    }
    return true;
  };
  for (std::size_t i = 1; row.form[i] != '\0'; ++i) {
    switch (row.form[i]) {
      case 'L': {
        const List list = given[i].toTensorVector();
        if (!fit(first, list)) return false;
        take(list);
        break;
      }
      case 'V':
        if (given[i].toScalar().isComplex()) return false;
        options += " -DVALUE_B";
        values.push_back(number(first[0], given[i].toScalar().to<double>()));
        ++operands;
        break;
      case 'N':
        if (!for_each(given[i])) return false;
        options += " -DNUMBER_B";
        ++operands;
        break;
      case 'E': {
        const Tensor one = given[i].toTensor();
        if (!plain(one) || one.numel() != 1 || one.scalar_type() != first[0].scalar_type() || one.device() != first[0].device())
          return false;
        options += " -DELEMENT_B";
        values.push_back(read(one));
        ++operands;
        break;
      }
      case 's':
        if (given[i].toScalar().isComplex()) return false;
        parameter = given[i].toScalar().to<double>();
        break;
      case 'n':
        if (!for_each(given[i])) return false;
        options += " -DNUMBER_S";
        break;
      default:
        break;
    }
  }
  List out = in_place ? first : List();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!in_place) out.push_back(at::empty_like(first[i]));
    if (out[i].strides() != first[i].strides()) return false;
    rows[i].address[0] = reinterpret_cast<std::uint64_t>(out[i].mutable_data_ptr());
    rows[i].elements = out[i].numel();
  }
  values.push_back(number(first[0], parameter));
  const std::string type = kernel_type(first[0].scalar_type());
  Kernel& kernel = unit_of(first[0]).device->kernel("elementwise",
                                                    "-DOP=op_" + std::string(row.op) + " -DN=" + std::to_string(operands) + " -DX=" +
                                                        (wide(first[0]) ? "double" : "float") + " -DREAL -DIN_TABLE -DA=" + type + options,
                                                    "table");
  if (!launch_table(first[0], kernel, rows, values)) return false;
  if (!in_place) results = {out};
  // As kernels of torch's own do: a graph that saved one of these learns that it was written.
  if (in_place)
    for (const Tensor& one : first)
      if (!one.is_inference()) one.unsafeGetTensorImpl()->bump_version();
  return true;
}

void foreach_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const std::size_t arguments = op.schema().arguments().size();
  Results results;
  Given given = &*(stack->end() - static_cast<std::ptrdiff_t>(arguments));
  // The CPU's kernel is torch's loop, which calls the operator of each tensor: of these on xpu too.
  if (!attempt(op, [&] { return run(row_of(op), given, results); }))
    return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  stack->erase(stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end());
  for (c10::IValue& value : results) stack->push_back(std::move(value));
}

}  // namespace

void register_foreach() {
  static auto* aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::XPU, __FILE__, __LINE__);
  for (const ListRow& row : kRows)
    aten->impl((std::string("_foreach_") + row.name).c_str(), torch::CppFunction::makeFromBoxedFunction<&foreach_kernel>());
}

}  // namespace ipexrun::preload::xpu
