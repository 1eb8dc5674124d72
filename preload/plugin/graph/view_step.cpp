#include "preload/plugin/graph/view_step.h"

#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>

#include <algorithm>
#include <array>
#include <limits>

#include "preload/plugin/answer.h"

namespace ipexrun::preload::graph {
namespace {

enum class View { kView, kTranspose, kPermute, kUnsqueeze, kExpand, kSlice, kSelect, kT, kAlias };

struct Form {
  const char* name;
  const char* overload;
  View view;
};

constexpr std::array kForms = {
    Form{"view", "", View::kView},         Form{"_unsafe_view", "", View::kView},   Form{"transpose", "int", View::kTranspose},
    Form{"permute", "", View::kPermute},   Form{"unsqueeze", "", View::kUnsqueeze}, Form{"expand", "", View::kExpand},
    Form{"slice", "Tensor", View::kSlice}, Form{"select", "int", View::kSelect},    Form{"t", "", View::kT},
    Form{"alias", "", View::kAlias},
};

/// A tensor's sizes and strides, on their way to another view.
struct Shape {
  Sizes sizes;
  Sizes strides;
  std::int64_t offset;

  explicit Shape(const at::Tensor& of)
      : sizes(of.sizes().begin(), of.sizes().end()), strides(of.strides().begin(), of.strides().end()), offset(of.storage_offset()) {}
  [[nodiscard]] std::int64_t dims() const { return static_cast<std::int64_t>(sizes.size()); }
  [[nodiscard]] std::int64_t& size(std::int64_t dim) { return sizes[static_cast<std::size_t>(dim)]; }
  [[nodiscard]] std::int64_t& stride(std::int64_t dim) { return strides[static_cast<std::size_t>(dim)]; }
  void swap(std::int64_t a, std::int64_t b) {
    std::swap(size(a), size(b));
    std::swap(stride(a), stride(b));
  }
};

bool wrap(std::int64_t* dim, std::int64_t dims) {
  if (*dim < 0) *dim += dims;
  return *dim >= 0 && *dim < dims;
}

class ViewStep final : public Step {
 public:
  ViewStep(const Node& node, View view)
      : stock_(make_operator_step(node)), arguments_(node.arguments), view_(view), from_(node.arguments[0].value), to_(node.outputs[0]) {}

  void run(Values& values) const override {
    const c10::IValue& from = values[static_cast<std::size_t>(from_)];
    if (from.isTensor() && plain(from.toTensor())) {
      const at::Tensor& x = from.toTensor();
      Shape shape(x);
      if (apply(x, values, &shape)) {
        values[static_cast<std::size_t>(to_)] = strided(x, shape.sizes, shape.strides, shape.offset);
        return;
      }
    }
    stock_->run(values);
  }

 private:
  /// An int; `missing` where it is None.
  bool number(std::size_t i, const Values& values, std::int64_t* to, std::int64_t missing = 0) const {
    const Argument& argument = arguments_[i];
    const c10::IValue& value =
        argument.kind == Argument::Kind::kValue ? values[static_cast<std::size_t>(argument.value)] : argument.constant;
    if (value.isNone()) {
      *to = missing;
      return true;
    }
    if (!value.isInt()) return false;
    *to = value.toInt();
    return true;
  }

  bool apply(const at::Tensor& x, const Values& values, Shape* shape) const {
    const std::int64_t dims = shape->dims();
    std::int64_t a = 0;
    std::int64_t b = 0;
    switch (view_) {
      case View::kAlias:
        return true;
      case View::kT:
        if (dims > 2) return false;
        if (dims == 2) shape->swap(0, 1);
        return true;
      case View::kTranspose:
        if (!number(1, values, &a) || !number(2, values, &b) || !wrap(&a, dims) || !wrap(&b, dims)) return false;
        shape->swap(a, b);
        return true;
      case View::kUnsqueeze:
        if (!number(1, values, &a) || !wrap(&a, dims + 1)) return false;
        b = a < dims ? shape->size(a) * shape->stride(a) : 1;
        shape->sizes.insert(shape->sizes.begin() + a, 1);
        shape->strides.insert(shape->strides.begin() + a, b);
        return true;
      case View::kSelect:
        if (!number(1, values, &a) || !number(2, values, &b) || !wrap(&a, dims) || !wrap(&b, shape->size(a))) return false;
        shape->offset += b * shape->stride(a);
        shape->sizes.erase(shape->sizes.begin() + a);
        shape->strides.erase(shape->strides.begin() + a);
        return true;
      case View::kSlice:
        return slice(values, shape);
      case View::kView:
        return view(x, values, shape);
      case View::kPermute:
        return permute(values, shape);
      case View::kExpand:
        return expand(x, values, shape);
    }
    return false;
  }

  bool slice(const Values& values, Shape* shape) const {
    std::int64_t dim = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t step = 0;
    constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
    if (!number(1, values, &dim) || !number(2, values, &begin) || !number(3, values, &end, kAll) || !number(4, values, &step, 1))
      return false;
    if (!wrap(&dim, shape->dims()) || step < 1) return false;
    const std::int64_t size = shape->size(dim);
    if (begin < 0) begin += size;
    if (end < 0) end += size;
    begin = std::clamp<std::int64_t>(begin, 0, size);
    end = std::clamp(end, begin, size);
    shape->offset += begin * shape->stride(dim);
    shape->size(dim) = (end - begin + step - 1) / step;
    shape->stride(dim) *= step;
    return true;
  }

  bool view(const at::Tensor& x, const Values& values, Shape* shape) const {
    Sizes wanted;
    if (!sizes_of(arguments_[1], values, &wanted) || x.numel() == 0) return false;
    const auto sizes = at::infer_size_dv(wanted, x.numel());  // throws what stock would
    const auto strides = at::detail::computeStride(x.sizes(), x.strides(), sizes);
    if (!strides) return false;
    shape->sizes.assign(sizes.begin(), sizes.end());
    shape->strides.assign(strides->begin(), strides->end());
    return true;
  }

  bool permute(const Values& values, Shape* shape) const {
    Sizes order;
    if (!sizes_of(arguments_[1], values, &order) || static_cast<std::int64_t>(order.size()) != shape->dims()) return false;
    const Shape before = *shape;
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (!wrap(&order[i], shape->dims()) || (seen >> order[i] & 1) != 0) return false;
      seen |= std::uint64_t{1} << order[i];
      shape->sizes[i] = before.sizes[static_cast<std::size_t>(order[i])];
      shape->strides[i] = before.strides[static_cast<std::size_t>(order[i])];
    }
    return true;
  }

  bool expand(const at::Tensor& x, const Values& values, Shape* shape) const {
    Sizes wanted;
    if (!sizes_of(arguments_[1], values, &wanted) || static_cast<std::int64_t>(wanted.size()) < x.dim()) return false;
    const auto geometry = at::inferExpandGeometry_dimvector(x.sizes(), x.strides(), wanted);  // throws what stock would
    shape->sizes.assign(geometry.sizes.begin(), geometry.sizes.end());
    shape->strides.assign(geometry.strides.begin(), geometry.strides.end());
    return true;
  }

  std::unique_ptr<Step> stock_;
  std::vector<Argument> arguments_;
  View view_;
  Value from_;
  Value to_;
};

}  // namespace

std::unique_ptr<Step> make_view_step(const Node& node) {
  if (node.arguments.empty() || node.arguments[0].kind != Argument::Kind::kValue || node.arguments[0].value == kNone) return nullptr;
  for (const Form& form : kForms) {
    if (node.is(form.name, form.overload)) return std::make_unique<ViewStep>(node, form.view);
  }
  return nullptr;
}

at::Tensor strided(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides, std::int64_t offset) {
  auto made = c10::make_intrusive<at::TensorImpl>(at::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), base.dtype());
  made->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(made));
}

at::Tensor viewed(const at::Tensor& base, at::IntArrayRef sizes) {
  if (base.numel() == 0) return base.view(sizes);
  const auto inferred = at::infer_size_dv(sizes, base.numel());
  const auto strides = at::detail::computeStride(base.sizes(), base.strides(), inferred);
  return strides ? strided(base, inferred, *strides, base.storage_offset()) : at::Tensor();
}

bool sizes_of(const Argument& argument, const Values& values, Sizes* sizes) {
  switch (argument.kind) {
    case Argument::Kind::kConstant: {
      if (!argument.constant.isIntList()) return false;
      const c10::List<std::int64_t> list = argument.constant.toIntList();
      for (std::size_t i = 0; i < list.size(); ++i) sizes->push_back(list.get(i));
      return true;
    }
    case Argument::Kind::kList:
      for (const Argument& element : argument.list) {
        if (element.kind == Argument::Kind::kList || element.is_value(kNone)) return false;
        const c10::IValue& value =
            element.kind == Argument::Kind::kValue ? values[static_cast<std::size_t>(element.value)] : element.constant;
        if (!value.isInt()) return false;
        sizes->push_back(value.toInt());
      }
      return true;
    case Argument::Kind::kValue:
      break;
  }
  return false;
}

}  // namespace ipexrun::preload::graph
