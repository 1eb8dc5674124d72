// The reference variant of convert, see dispatch.h.
#pragma once

#include "kernels/convert.h"

namespace ipexrun::kernels::ref {

std::uint16_t f16_from_f32(float value);
float f16_to_f32(std::uint16_t value);

void convert(const ConvertArgs& args);

}  // namespace ipexrun::kernels::ref
