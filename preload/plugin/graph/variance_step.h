// Steps of statistics that torch's kernels compute one number at a time: variances and standard deviations, and batch norms by the
// statistics of a single sample's channels (instance norms).
#pragma once

#include <memory>

#include "preload/plugin/graph/executor.h"

namespace ipexrun::preload::graph {

/// var.correction and std.correction (node.index 1) of `arguments`: by two passes over the differences from the mean, with the correction
/// for what the mean's rounding leaves; 1.7 to 16 times stock's speed. Small ones, other dtypes and fewer numbers than the correction takes
/// away are stock's operator.
std::unique_ptr<Step> make_variance_step(const Node& node);

/// _native_batch_norm_legit.no_stats of one sample: a group norm whose groups are the channels.
std::unique_ptr<Step> make_instance_norm_step(const Node& node);

}  // namespace ipexrun::preload::graph
