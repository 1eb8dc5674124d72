// Numbers that tell sites apart, folded into SiteId::detail.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace ipexrun::preload {

inline std::uint64_t digest_of(std::initializer_list<std::int64_t> values) {
  std::uint64_t hash = 0;
  for (const std::int64_t value : values) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace ipexrun::preload
