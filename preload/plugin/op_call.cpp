#include "preload/plugin/op_call.h"

namespace ipexrun::preload {

const char* op_name(Op op) noexcept {
  switch (op) {
#define IPEXRUN_OP(id, name, overload, kind, adapter, dtypes, weight) \
  case Op::id:                                                        \
    return *(overload) == '\0' ? name : name "." overload;
#include "preload/plugin/ops.def"
#undef IPEXRUN_OP
  }
  return "";
}

const char* decline_word(Declined why) noexcept {
  switch (why) {
    case Declined::kDtype:
      return "dtype";
    case Declined::kLayout:
      return "layout";
    case Declined::kSmall:
      return "small";
    case Declined::kForm:
      return "form";
    case Declined::kKind:
      return "kind of tensor";
    case Declined::kBackward:
      return "backward";
    case Declined::kSettings:
      return "settings";
  }
  return "";
}

OpCounts& counts_of(Op op) noexcept {
  static constinit std::array<OpCounts, kOpCount> counts{};
  return counts[static_cast<std::size_t>(op)];
}

}  // namespace ipexrun::preload
