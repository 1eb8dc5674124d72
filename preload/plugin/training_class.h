// What the Python side of training asks of the plugin: torch.classes.ipexrun.Training.
#pragma once

namespace ipexrun::preload {

/// Once a process, before Python asks.
void register_training_class();

}  // namespace ipexrun::preload
