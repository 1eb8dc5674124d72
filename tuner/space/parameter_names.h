// What a parameter's name stands for, and whether its values fit.
#pragma once

#include <string>

#include "configs/base/result.h"
#include "launcher/plan/machine.h"
#include "tuner/space/space.h"

namespace ipexrun::tuner {

/// A parameter of that name without values: a long option of ipexrun, a knob, "env.NAME" or "args.NAME". Errors name what is near.
Result<Parameter> name_parameter(const std::string& name);

/// Each value against what the option or knob takes.
Status check_values(const Parameter& parameter);

/// The parameters that suit an objective on this machine: "throughput" or anything else, which is taken as latency. `allocators`: the ones
/// that are installed.
Space default_space(const std::string& objective, const launcher::Machine& machine, const std::vector<std::string>& allocators);

}  // namespace ipexrun::tuner
