// What there is to gain on a CPU. Pure.
#pragma once

#include <string>

#include "configs/base/isa.h"
#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

/// The hardware's bf16 arithmetic that `isa` has: "AMX", "AVX512-BF16", "none".
std::string bf16_of(IsaSet isa);

/// What that means for --dtype auto, one line.
std::string bf16_text(IsaSet isa);

/// What the instruction sets of a process and the machine's size promise, a paragraph of a few lines.
std::string gain_paragraph(IsaSet isa, const Machine& machine);

}  // namespace ipexrun::launcher
