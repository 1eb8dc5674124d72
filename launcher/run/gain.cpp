#include "launcher/run/gain.h"

#include <fmt/format.h>

namespace ipexrun::launcher {

std::string bf16_of(IsaSet isa) { return isa_has(isa, kIsaAmxBf16) ? "AMX" : isa_has(isa, kIsaAvx512Bf16) ? "AVX512-BF16" : "none"; }

std::string bf16_text(IsaSet isa) {
  const std::string has = bf16_of(isa);
  return "in hardware: " + has +
         (has == "none" ? ": --dtype auto stays float32" : ": --dtype auto computes in bf16 where it is faster and accurate");
}

std::string gain_paragraph(IsaSet isa, const Machine& machine) {
  std::string out;
  if (isa_has(isa, kIsaAmxBf16)) {
    out +=
        "This CPU multiplies bf16 matrices in AMX tiles: linear layers of float32 programs can run several times faster inside\n"
        "with --dtype auto (the default), which keeps float32 at every boundary and checks the accuracy of each site.\n";
  } else if (isa_has(isa, kIsaAvx512Bf16)) {
    out +=
        "This CPU has bf16 dot products (AVX512-BF16): linear layers can gain with --dtype auto, less than with AMX, and not\n"
        "where they take longer than float32's, as on the Intel Xeon without AMX that was measured.\n";
  } else if (isa_has(isa, kIsaAvx512)) {
    out += "This CPU has AVX-512 but no bf16 arithmetic: linear layers gain from packed weights in float32.\n";
  } else if (isa_has(isa, kIsaAvx2)) {
    out += "This CPU has AVX2: what is left to gain is mostly the launch configuration and packed weights in float32.\n";
  } else {
    out += "This CPU has no vector extension that the kernels of ipexrun use: expect gains from the launch configuration only.\n";
  }
  if (machine.nodes.size() > 1) {
    out += fmt::format("{} NUMA nodes: --throughput-mode runs one instance on each with its own memory.\n", machine.nodes.size());
  }
  if (machine.cores.size() >= 8) {
    out += fmt::format("{} cores: small batches gain more from several instances (--ninstances, --latency-mode) than from more threads.\n",
                       machine.cores.size());
  }
  return out;
}

}  // namespace ipexrun::launcher
