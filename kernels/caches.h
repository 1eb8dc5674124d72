// Sizes of this machine's caches, from which products take the sizes of their blocks. Thread-safe.
#pragma once

#include <cstdint>

namespace ipexrun::kernels {

inline constexpr std::int64_t kUsualL2Bytes = 2 << 20;  ///< where block sizes were measured, and where nothing is known
inline constexpr std::int64_t kSmallestL2Bytes = 256 << 10;
inline constexpr std::int64_t kUsualL1Bytes = 48 << 10;  ///< where blocks of K that stay in it were measured, and where nothing is known

/// Bytes of L2 that one core has, at least kSmallestL2Bytes; at most kUsualL2Bytes, because nothing larger was measured. Read once from the
/// C library, which asks the CPU.
std::int64_t l2_bytes() noexcept;

/// Bytes of L1 for data that one core has; kUsualL1Bytes where nothing is known. Read once, as above.
std::int64_t l1_bytes() noexcept;

/// For tests: what these say from now on; 0 = the machine's again.
void assume_l2_bytes(std::int64_t bytes) noexcept;
void assume_l1_bytes(std::int64_t bytes) noexcept;

}  // namespace ipexrun::kernels
