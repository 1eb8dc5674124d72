// What all variants of dropout must agree on. Internal linkage, see packed.h.
#pragma once

#include <cstdint>

namespace ipexrun::kernels {
namespace {

/// Elements that 16 counters decide.
constexpr std::int64_t kDropoutBlock = 64;
constexpr std::int64_t kDropoutCounters = 16;

constexpr int kPhiloxRounds = 10;
constexpr std::uint32_t kPhiloxFactor[2] = {0xD2511F53u, 0xCD9E8D57u};
constexpr std::uint32_t kPhiloxStep[2] = {0x9E3779B9u, 0xBB67AE85u};

/// Words below it are dropped; 2^32 where all are.
[[maybe_unused]] inline std::uint64_t dropout_threshold(double p) { return static_cast<std::uint64_t>(p * 4294967296.0 + 0.5); }

[[maybe_unused]] inline float dropout_scale(double p) { return p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f; }

}  // namespace
}  // namespace ipexrun::kernels
