// One panel of packed.h, for any strides; see dispatch.h.
#pragma once

#include <cstdint>

#include "kernels/linear.h"

namespace ipexrun::kernels::ref {
void pack_panel(const MatrixB& b, std::int64_t panel, std::uint16_t* to);
}
