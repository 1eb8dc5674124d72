// What the C library's malloc keeps of what is freed.
#pragma once

#include <cstdint>

namespace ipexrun::preload {

/// The process's malloc is the C library's and nobody has set it up (MALLOC_TRIM_THRESHOLD_ and the like, GLIBC_TUNABLES); and it computes
/// on one NUMA node, since fresh pages come from the node of the thread that writes them first. Asked once, at start.
[[nodiscard]] bool may_set_c_malloc();

/// Up to `bytes` at the end of a heap stay with the process, and blocks of less than 32 MiB come from heaps. Any thread.
void keep_in_c_malloc(std::uint64_t bytes) noexcept;
/// What malloc comes to by itself with large blocks; what is free is given back.
void c_malloc_as_before() noexcept;

[[nodiscard]] std::uint64_t free_bytes_of_c_malloc() noexcept;
void give_back_of_c_malloc() noexcept;

}  // namespace ipexrun::preload
