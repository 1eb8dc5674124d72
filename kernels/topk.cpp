// What topk does between two scans: sorts what was kept and raises the bar. Compiled for the base instruction set.
#include "kernels/topk.h"

#include <algorithm>
#include <functional>

#include "kernels/choose.h"
#include "kernels/dispatch.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

/// Below this many elements a call is shorter than waking a second worker.
constexpr std::int64_t kSerialElements = 1 << 15;

/// Room for so many: what passes the bar is sorted each time the room is full.
std::int64_t room(const TopkArgs& args) { return std::min(4 * args.k + 256, args.columns) + kTopkSlack; }

bool row_done(const TopkArgs& args, const TopkVariant& variant, std::int64_t row, std::int64_t* kept) {
  const float* from = args.from + row * args.columns;
  const std::int64_t limit = room(args) - kTopkSlack;
  std::int32_t bar = INT32_MIN;
  std::int64_t count = 0;
  const auto by_key = [](std::int64_t entry) { return static_cast<std::int32_t>(entry >> 32); };
  for (std::int64_t i = 0; i < args.columns;) {
    i = variant.collect(from, i, args.columns, args.largest, bar, kept, limit, &count);
    if (i == args.columns) break;
    std::nth_element(kept, kept + args.k - 1, kept + count, std::greater<>());
    bar = by_key(kept[args.k - 1]);
    count = std::partition(kept, kept + count, [&](std::int64_t entry) { return by_key(entry) >= bar; }) - kept;
    if (count > limit / 2 + args.k) return false;  // so many are equal that the room would not last
  }
  const std::int64_t seen = std::min(count, args.k + 1);
  std::partial_sort(kept, kept + seen, kept + count, std::greater<>());
  for (std::int64_t i = 1; i < seen; ++i) {
    if (by_key(kept[i]) == by_key(kept[i - 1])) return false;
  }
  for (std::int64_t i = 0; i < args.k; ++i) {
    const std::int64_t place = kept[i] & 0x7fffffff;
    args.values[row * args.k + i] = from[place];
    args.indices[row * args.k + i] = place;
  }
  return true;
}

}  // namespace

bool topk(const TopkArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.rows <= 0 || args.k <= 0) return true;
  const TopkVariant& variant = choose(topk_variants(), isa);
  const std::int64_t parts = parts_of(args.rows, args.columns > kSerialElements / args.rows, parallel);
  const std::size_t scratch_bytes = static_cast<std::size_t>(room(args)) * sizeof(std::int64_t);
  return share(parts, scratch_bytes, parallel, [&](std::int64_t part, void* scratch) {
    auto* kept = static_cast<std::int64_t*>(scratch);
    const std::int64_t end = begin_of(args.rows, part + 1, parts);
    std::int64_t row = begin_of(args.rows, part, parts);
    while (row < end && row_done(args, variant, row, kept)) ++row;
    return row == end;
  });
}

bool topk_supported(IsaSet isa) { return choose(topk_variants(), isa).needs != 0; }

const char* topk_variant(IsaSet isa) { return choose(topk_variants(), isa).name; }

}  // namespace ipexrun::kernels
