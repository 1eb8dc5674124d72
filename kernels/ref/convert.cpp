// The truth of convert: one number after the other, in integers, by way of fp32, which holds all of bf16 and fp16.
#include "kernels/ref/convert.h"

#include <cmath>

#include "kernels/bf16.h"

namespace ipexrun::kernels::ref {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000u;

float load(const void* from, Format format, std::int64_t i) {
  if (format == Format::kF32) return static_cast<const float*>(from)[i];
  const std::uint16_t half = static_cast<const std::uint16_t*>(from)[i];
  return format == Format::kBf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

void store(void* to, Format format, std::int64_t i, float value) {
  if (format == Format::kF32) {
    static_cast<float*>(to)[i] = value;
  } else {
    static_cast<std::uint16_t*>(to)[i] = format == Format::kBf16 ? bf16_from_f32(value) : f16_from_f32(value);
  }
}

}  // namespace

std::uint16_t f16_from_f32(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t size = bits & 0x7fffffffu;
  if (size > kInfinity) return static_cast<std::uint16_t>(sign | 0x7e00u | (size >> 13 & 0x3ffu));
  if (size >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520, half way to 2^16
  if (size < 0x38800000u) {                                                    // 2^-14: multiples of 2^-24
    const double steps = std::nearbyint(std::ldexp(static_cast<double>(__builtin_bit_cast(float, size)), 24));
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(steps));
  }
  return static_cast<std::uint16_t>(sign | (((size + 0xfffu + (size >> 13 & 1u)) >> 13) - (112u << 10)));
}

float f16_to_f32(std::uint16_t value) {
  const std::uint32_t sign = std::uint32_t{value & 0x8000u} << 16;
  const std::uint32_t size = value & 0x7fffu;
  std::uint32_t bits = (size << 13) + (112u << 23);
  if (size > 0x7c00u) {
    bits = kInfinity | size << 13 | 0x400000u;
  } else if (size == 0x7c00u) {
    bits = kInfinity;
  } else if (size < 0x400u) {
    bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(std::ldexp(static_cast<double>(size), -24)));
  }
  return __builtin_bit_cast(float, sign | bits);
}

void convert(const ConvertArgs& args) {
  for (std::int64_t i = 0; i < args.n; ++i) store(args.to, args.to_format, i, load(args.from, args.from_format, i));
}

}  // namespace ipexrun::kernels::ref
