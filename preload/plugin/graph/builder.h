// What Python sees of graphs: the classes torch.classes.ipexrun.Graph and .Trial (python/ipexrun/graphs/compiler.py uses them).
#pragma once

namespace ipexrun::preload::graph {

/// Makes the classes known to torch. Called once.
void register_classes();

}  // namespace ipexrun::preload::graph
