// The reference variant of normalize, see dispatch.h.
#pragma once

#include "kernels/normalize.h"

namespace ipexrun::kernels::ref {

void softmax(const SoftmaxArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);
void layer_norm(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);
void rms_norm(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);
void group_norm(const GroupNormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);
void scale_channels(const ChannelScaleArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch);

}  // namespace ipexrun::kernels::ref
