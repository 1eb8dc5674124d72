// The reference variant of activation, see dispatch.h.
#pragma once

#include "kernels/activation.h"

namespace ipexrun::kernels::ref {

/// One element, not rounded.
double activation_of(Activation kind, double x);
void activation(const ActivationArgs& args);

}  // namespace ipexrun::kernels::ref
