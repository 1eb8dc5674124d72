// gated, a vector at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
#include "kernels/simd/gated.h"

#include "kernels/simd/activation_kinds.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

/// A register of fp32.
template <typename Kind>
struct OfF32 {
  [[gnu::always_inline]] static Lanes::Vector run(Lanes::Vector a, Lanes::Vector b) {
    return Floats::bits_of(Floats::multiply(Kind::run(Floats::of_bits(a)), Floats::of_bits(b)));
  }
};

/// A register of bf16: those in the lower halves of the lanes, then those in the upper halves.
template <typename Kind>
struct OfBf16 {
  [[gnu::always_inline]] static Lanes::Vector run(Lanes::Vector a, Lanes::Vector b) {
    const Lanes::Vector low = Lanes::rounded_result(OfF32<Kind>::run(Lanes::shift_left_16(a), Lanes::shift_left_16(b)));
    const Lanes::Vector high = Lanes::rounded_result(OfF32<Kind>::run(Lanes::upper_half(a), Lanes::upper_half(b)));
    return Lanes::halves(Lanes::shift_right_16(low), high);
  }
};

template <typename Of>
void run(const GatedArgs& args) {
  constexpr std::int64_t kStep = sizeof(Lanes::Vector);
  const char* a = static_cast<const char*>(args.a);
  const char* b = static_cast<const char*>(args.b);
  char* to = static_cast<char*>(args.to);
  const std::int64_t bytes = args.columns * bytes_of(args.dtype);
  std::int64_t i = 0;
  for (; i + kStep <= bytes; i += kStep) Lanes::store(to + i, Of::run(Lanes::load(a + i), Lanes::load(b + i)));
  const Lanes::Part rest = Lanes::part(bytes - i);
  if (i < bytes) Lanes::store_part(to + i, Of::run(Lanes::load_part(a + i, rest), Lanes::load_part(b + i, rest)), rest);
}

template <template <typename> typename Of>
void run_kind(const GatedArgs& args) {
  with_kind(args.kind, [&]<typename Kind>() { run<Of<Kind>>(args); });
}

}  // namespace

void gated(const GatedArgs& args) { args.dtype == DType::kF32 ? run_kind<OfF32>(args) : run_kind<OfBf16>(args); }

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
