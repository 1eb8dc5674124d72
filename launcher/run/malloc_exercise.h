// What the child does in which a library is tried before it is preloaded into the user's program (probe.h).
#pragma once

namespace ipexrun::launcher {

/// First word of the command line of such a child; no option, and of no use to a person.
inline constexpr const char* kMallocExerciseWord = "--exercise-malloc";
/// What it prints when it came through.
inline constexpr const char* kMallocExerciseDone = "malloc works";

/// And before that, where it was on the C library's malloc: nothing that was preloaded has one.
inline constexpr const char* kMallocOfLibc = "malloc of the C library";

/// Allocates, aligns, grows and frees blocks from a byte to 32 MiB on several threads, across threads and in a forked child, then loads
/// `library` (nullptr = none): an allocator can take the static thread-local storage that it needs. Returns the exit code.
int exercise_malloc(const char* library);

}  // namespace ipexrun::launcher
