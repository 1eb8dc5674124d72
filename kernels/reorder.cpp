// Cuts the matrices into tiles, shares them among the workers. Compiled for the base instruction set.
#include "kernels/reorder.h"

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"

namespace ipexrun::kernels {
namespace {

// A tile: whole cache lines on both sides (when the rows are aligned), and a source and a target that fit L2 together.
constexpr std::int64_t kCutRows = 256;
constexpr std::int64_t kCutColumns = 256;
constexpr std::int64_t kCutUnit = 32;  ///< elements of the largest block of a variant

/// The i-th of nearly equal slices of [0, size), cut where blocks of kCutUnit end, and at most `most` long.
struct Slice {
  std::int64_t begin;
  std::int64_t length;
};
Slice slice(std::int64_t size, std::int64_t most, std::int64_t i) {
  const std::int64_t units = ceil_div(size, kCutUnit);
  const std::int64_t parts = ceil_div(size, most);
  const std::int64_t begin = units * i / parts * kCutUnit;
  const std::int64_t end = units * (i + 1) / parts * kCutUnit;
  return {begin, (end < size ? end : size) - begin};
}

/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 15;

struct Job {
  const ReorderArgs* args;
  const ReorderVariant* variant;
  std::int64_t rows;  ///< of one source matrix
  std::int64_t columns;
  std::int64_t tiles;
  std::int64_t parts;
};

void run_tile(const Job& job, std::int64_t tile) {
  const std::int64_t down = ceil_div(job.rows, kCutRows);
  const std::int64_t across = ceil_div(job.columns, kCutColumns);
  const Slice rows = slice(job.rows, kCutRows, tile % down);
  const Slice columns = slice(job.columns, kCutColumns, tile / down % across);
  const std::int64_t image = tile / down / across * job.rows * job.columns;
  const ReorderArgs& args = *job.args;
  TransposeBlock block{};
  block.from = static_cast<const char*>(args.from) + (image + rows.begin * job.columns + columns.begin) * bytes_of(args.from_dtype);
  block.from_stride = job.columns;
  block.to = static_cast<char*>(args.to) + (image + columns.begin * job.rows + rows.begin) * bytes_of(args.to_dtype);
  block.to_stride = job.rows;
  block.rows = rows.length;
  block.columns = columns.length;
  block.from_dtype = args.from_dtype;
  block.to_dtype = args.to_dtype;
  job.variant->run(block);
}

void task(void* arg, int part) {
  const auto* job = static_cast<const Job*>(arg);
  const std::int64_t end = job->tiles * (part + 1) / job->parts;
  for (std::int64_t tile = job->tiles * part / job->parts; tile < end; ++tile) run_tile(*job, tile);
}

void transpose(const ReorderArgs& args, std::int64_t rows, std::int64_t columns, const Parallel& parallel, IsaSet isa) {
  if (args.images <= 0 || rows <= 0 || columns <= 0) return;
  Job job{&args, &choose(reorder_variants(), isa), rows, columns, args.images * ceil_div(rows, kCutRows) * ceil_div(columns, kCutColumns),
          1};
  if (parallel.run != nullptr && args.images * rows * columns > kSerialElements) {
    job.parts = job.tiles < parallel.threads ? job.tiles : parallel.threads;
  }
  parallel(static_cast<int>(job.parts), task, &job);
}

}  // namespace

void to_channels_last(const ReorderArgs& args, const Parallel& parallel, IsaSet isa) {
  transpose(args, args.channels, args.pixels, parallel, isa);
}

void to_planar(const ReorderArgs& args, const Parallel& parallel, IsaSet isa) {
  transpose(args, args.pixels, args.channels, parallel, isa);
}

bool reorder_supported(IsaSet isa) { return choose(reorder_variants(), isa).needs != 0; }

const char* reorder_variant(IsaSet isa) { return choose(reorder_variants(), isa).name; }

}  // namespace ipexrun::kernels
