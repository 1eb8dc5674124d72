// TorchScript: regions of an optimized graph that our programs can compute.
#pragma once

namespace ipexrun::preload::graph {

/// From now on torch's JIT looks for regions in every graph that its profiling executor optimizes. Called once.
void register_scripted_pass();

}  // namespace ipexrun::preload::graph
