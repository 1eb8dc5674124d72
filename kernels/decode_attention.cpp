// Cuts a call into units, shares them among the workers, and has the last of a sequence's head merge what its units found. Compiled for the
// base instruction set.
#include "kernels/decode_attention.h"

#include <cstring>

#include "kernels/choose.h"
#include "kernels/convert.h"
#include "kernels/decode_attention_variants.h"
#include "kernels/share.h"

namespace ipexrun::kernels {
namespace {

constexpr std::int64_t kSerialElements = 1 << 16;  ///< of K: below this a call is shorter than waking a second worker
constexpr std::int64_t kUnitCost = 16;             ///< keys that a unit costs beside its own
constexpr std::size_t kLine = 64;

std::int64_t length_of(const KvLengths& lengths, std::int64_t batch) {
  return lengths.of_32_bits != nullptr ? lengths.of_32_bits[batch] : lengths.of_64_bits[batch];
}

/// Whether the cache has room for that many tokens, and pages from token `first` on.
bool in_cache(const KvCache& cache, std::int64_t batch, std::int64_t first, std::int64_t length) {
  if (length < 0 || first < 0) return false;
  if (length == first) return true;
  if (cache.block_rows <= 0) return false;
  if (cache.table == nullptr) return batch < cache.blocks && length <= cache.block_rows;
  if ((length - 1) / cache.block_rows >= cache.table_blocks) return false;
  for (std::int64_t i = first / cache.block_rows; i <= (length - 1) / cache.block_rows; ++i) {
    const std::int64_t block = cache.table[batch * cache.table_stride + i];
    if (block < 0 || block >= cache.blocks) return false;
  }
  return true;
}

/// A sequence's units, and those before them.
struct Sequence {
  std::int64_t length;
  std::int64_t stretches;  ///< of keys, each of them a unit for each head of K and V
  std::int64_t partials;   ///< of the sequences before
  std::int64_t cost;       ///< likewise
};

struct Job {
  const DecodeAttentionArgs* args;
  const DecodeVariant* variant;
  Sequence* sequences;  ///< one more than there are
  std::int32_t* left;   ///< stretches that are not done, of each sequence and head of K and V
  float* partials;
  std::int64_t partial_words;
  char* scratch;
  std::size_t scratch_bytes;
  std::int64_t parts;
};

std::int64_t keys_of(const Job& job, const Sequence& sequence, std::int64_t stretch) {
  const std::int64_t first = stretch * job.variant->unit_keys;
  return stretch + 1 < sequence.stretches ? job.variant->unit_keys : sequence.length - first;
}

/// A place among the units: sequence by sequence, stretch by stretch, head by head.
struct Place {
  std::int64_t batch;
  std::int64_t stretch;
  std::int64_t kv_head;

  [[nodiscard]] bool operator!=(const Place& other) const {
    return batch != other.batch || stretch != other.stretch || kv_head != other.kv_head;
  }
};

/// Where the part begins, so that all cost about the same.
Place first_of(const Job& job, std::int64_t part) {
  const std::int64_t batch = job.args->batch;
  const std::int64_t heads = job.args->kv_heads;
  const std::int64_t target = begin_of(job.sequences[batch].cost, part, job.parts);
  std::int64_t low = 0;
  for (std::int64_t high = batch; low < high;) {  // the first sequence that ends behind the target
    const std::int64_t middle = (low + high) / 2;
    if (job.sequences[middle + 1].cost > target) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (low == batch) return {batch, 0, 0};
  const Sequence& sequence = job.sequences[low];
  std::int64_t rest = target - sequence.cost;
  std::int64_t stretch = 0;
  if (sequence.stretches > 1) {
    stretch = rest / (heads * (job.variant->unit_keys + kUnitCost));
    if (stretch >= sequence.stretches) stretch = sequence.stretches - 1;
    rest -= stretch * heads * (job.variant->unit_keys + kUnitCost);
  }
  return {low, stretch, rest / (keys_of(job, sequence, stretch) + kUnitCost)};
}

Place after(const Job& job, Place at) {
  if (++at.kv_head < job.args->kv_heads) return at;
  at.kv_head = 0;
  if (++at.stretch < job.sequences[at.batch].stretches) return at;
  return {at.batch + 1, 0, 0};
}

void run_part(const Job& job, std::int64_t part) {
  const DecodeAttentionArgs& args = *job.args;
  const std::int64_t unit_keys = job.variant->unit_keys;
  char* scratch = job.scratch + static_cast<std::size_t>(part) * job.scratch_bytes;
  const Place end = first_of(job, part + 1);
  Place next = first_of(job, part);
  while (next != end) {
    const Place at = next;
    const Sequence& sequence = job.sequences[at.batch];
    next = after(job, at);
    DecodeUnit unit{at.batch, at.kv_head, sequence.length, at.stretch * unit_keys, keys_of(job, sequence, at.stretch), nullptr, {}};
    if (next != end) {
      unit.next = {next.batch, next.kv_head, next.stretch * unit_keys, keys_of(job, job.sequences[next.batch], next.stretch)};
    }
    if (sequence.stretches == 1) {
      job.variant->run(args, unit, scratch);
      continue;
    }
    float* partials = job.partials + (sequence.partials + at.kv_head * sequence.stretches) * job.partial_words;
    unit.partial = partials + at.stretch * job.partial_words;
    job.variant->run(args, unit, scratch);
    if (__atomic_sub_fetch(&job.left[at.batch * args.kv_heads + at.kv_head], 1, __ATOMIC_ACQ_REL) == 0) {
      job.variant->merge(args, unit, partials, sequence.stretches, job.partial_words);
    }
  }
}

std::size_t in_lines(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

bool decode_attention(const DecodeAttentionArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.batch <= 0 || args.heads <= 0 || args.kv_heads <= 0 || args.rows <= 0 || args.depth <= 0) return true;
  Job job{};
  job.args = &args;
  job.variant = &choose(decode_attention_variants(), isa);
  job.partial_words = decode_partial_words(args);
  Sequence all{};
  std::int64_t tokens = 0;
  const auto count = [&](std::int64_t batch) {
    const std::int64_t length = length_of(args.lengths, batch);
    const std::int64_t stretches = length > job.variant->unit_keys ? (length - 1) / job.variant->unit_keys + 1 : 1;
    const Sequence sequence{length, stretches, all.partials, all.cost};
    if (stretches > 1) all.partials += stretches * args.kv_heads;
    all.cost += args.kv_heads * (length + stretches * kUnitCost);
    tokens += length;
    return sequence;
  };
  for (std::int64_t batch = 0; batch < args.batch; ++batch) {
    if (!in_cache(args.cache, batch, 0, length_of(args.lengths, batch))) return false;
    count(batch);
  }
  const bool large = args.depth * args.kv_heads > kSerialElements / (tokens + 1);
  job.parts = parts_of(args.batch * args.kv_heads + all.partials, large, parallel);
  const std::size_t bytes_of_sequences = in_lines(static_cast<std::size_t>(args.batch + 1) * sizeof(Sequence));
  const std::size_t bytes_of_left = in_lines(static_cast<std::size_t>(args.batch * args.kv_heads) * sizeof(std::int32_t));
  const std::size_t bytes_of_partials = static_cast<std::size_t>(all.partials * job.partial_words) * sizeof(float);
  job.scratch_bytes = in_lines(job.variant->scratch_bytes(args));
  auto* memory = static_cast<char*>(thread_scratch(bytes_of_sequences + bytes_of_left + in_lines(bytes_of_partials) +
                                                   static_cast<std::size_t>(job.parts) * job.scratch_bytes));
  if (memory == nullptr) return false;
  job.sequences = reinterpret_cast<Sequence*>(memory);
  job.left = reinterpret_cast<std::int32_t*>(memory + bytes_of_sequences);
  job.partials = reinterpret_cast<float*>(memory + bytes_of_sequences + bytes_of_left);
  job.scratch = memory + bytes_of_sequences + bytes_of_left + in_lines(bytes_of_partials);
  all = {};
  for (std::int64_t batch = 0; batch < args.batch; ++batch) {
    job.sequences[batch] = count(batch);
    for (std::int64_t head = 0; head < args.kv_heads; ++head) {
      job.left[batch * args.kv_heads + head] = static_cast<std::int32_t>(job.sequences[batch].stretches);
    }
  }
  job.sequences[args.batch] = all;
  const bool good = share(job.parts, 0, parallel, [&](std::int64_t part, void*) {
    run_part(job, part);
    return true;
  });
  release_large_scratch();
  return good;
}

bool kv_append(const KvAppendArgs& args, const Parallel& parallel, IsaSet isa) {
  if (args.batch <= 0 || args.kv_heads <= 0 || args.rows <= 0 || args.depth <= 0) return true;
  for (std::int64_t batch = 0; batch < args.batch; ++batch) {
    const std::int64_t length = length_of(args.lengths, batch);
    if (!in_cache(args.cache, batch, length - args.rows, length)) return false;
  }
  const std::int64_t count = args.batch * args.rows;
  const std::int64_t parts = parts_of(count, args.depth * args.kv_heads > kSerialElements / count, parallel);
  const auto copy = [&](const Heads& from, void* to, const KvStrides& strides, std::int64_t batch, std::int64_t row) {
    const std::int64_t place = kv_place(args.cache, strides, batch, length_of(args.lengths, batch) - args.rows + row);
    for (std::int64_t head = 0; head < args.kv_heads; ++head) {
      const char* source = static_cast<const char*>(from.data) +
                           (batch * from.batch_stride + head * from.head_stride + row * from.row_stride) * bytes_of(args.dtype);
      char* target = static_cast<char*>(to) + (place + head * strides.head) * bytes_of(args.cache.dtype);
      if (args.dtype == args.cache.dtype) {
        std::memcpy(target, source, static_cast<std::size_t>(args.depth * bytes_of(args.dtype)));
      } else {
        const auto format = [](DType dtype) { return dtype == DType::kF32 ? Format::kF32 : Format::kBf16; };
        convert({source, format(args.dtype), target, format(args.cache.dtype), args.depth}, {}, isa);
      }
    }
  };
  return share(parts, 0, parallel, [&](std::int64_t part, void*) {
    for (std::int64_t i = begin_of(count, part, parts); i < begin_of(count, part + 1, parts); ++i) {
      copy(args.k, args.cache.k, args.cache.k_strides, i / args.rows, i % args.rows);
      copy(args.v, args.cache.v, args.cache.v_strides, i / args.rows, i % args.rows);
    }
    return true;
  });
}

bool decode_attention_supported(IsaSet isa) { return choose(decode_attention_variants(), isa).needs != 0; }

const char* decode_attention_variant(IsaSet isa) { return choose(decode_attention_variants(), isa).name; }

}  // namespace ipexrun::kernels
