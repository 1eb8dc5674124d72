// The element types that kernels take.
#pragma once

#include <cstdint>

namespace ipexrun::kernels {

enum class DType : int { kF32 = 0, kBf16 = 1 };

/// Internal linkage, see packed.h.
[[maybe_unused]] static constexpr std::int64_t bytes_of(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

}  // namespace ipexrun::kernels
