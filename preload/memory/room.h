// Whether more memory can be had, asked before code is entered that does not survive a refusal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ipexrun::preload {

/// What oneDNN takes beside a product's matrices for the descriptors, code and tables of its kernels, with much to spare.
inline constexpr std::size_t kRoomForKernels = std::size_t{32} << 20;

/// The process may map so many bytes more: where its address space is limited (RLIMIT_AS, the shell's `ulimit -v`), and where the system
/// promises no more memory than there is, a mapping is made and taken back at once, its pages never touched, which takes microseconds and
/// no memory; elsewhere it may, found out in 0.1 to 0.3 us. Others may take the room meanwhile. Any thread.
///
/// oneDNN constructs what its allocation gave without asking whether it gave anything: where stock fails with an exception, or never calls
/// oneDNN, a trial of ours would end the program.
[[nodiscard]] bool has_room(std::size_t bytes) noexcept;

/// For a weight's copies on the way to a pack, and for the kernels that then take it.
[[nodiscard]] bool has_room_for_pack(std::size_t weight_bytes) noexcept;

/// Of the machine, or of what this process's container (cgroup v2 or v1) may still take where that is less; 0 where that cannot be read.
[[nodiscard]] std::uint64_t allowed_memory_bytes() noexcept;
/// Of the machine: what nobody uses or what could be freed, 0 where that cannot be read,
[[nodiscard]] std::uint64_t available_memory_bytes() noexcept;
/// and what nobody uses, without what could be freed.
[[nodiscard]] std::uint64_t free_memory_bytes() noexcept;

}  // namespace ipexrun::preload
