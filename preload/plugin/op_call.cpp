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

}  // namespace ipexrun::preload
