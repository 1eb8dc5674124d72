// Q, K and V of a head as words in scratch, fp32 or pairs of bf16 (products_*.h). Include after attention_load.h and attention_tile.h.
//
// K and V are cut into panels of up to Products::kVectors vectors of columns, one panel after the other; a panel holds, for each word
// of what is summed over, its columns: [panel][word][column]. For K, words run along the depth and columns are keys; for V, words run
// along the keys and columns are depth. What is missing in the last vector or word is zero.
#pragma once

#include <cstdint>

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t vectors_of(std::int64_t n) { return (n + kLanes - 1) / kLanes; }
constexpr std::int64_t words_of(std::int64_t n) { return (n + Products::kPerWord - 1) / Products::kPerWord; }

/// Two rows of bf16 side by side: lane i holds low[i], high[i].
[[gnu::always_inline]] inline Lanes::Vector paired(Lanes::Vector low, Lanes::Vector high) {
  return Lanes::halves(Lanes::shift_right_16(low), high);
}

/// kLanes words of 32 bits, n bytes of them from memory.
[[gnu::always_inline]] inline Lanes::Vector load_bytes(const void* from, std::int64_t bytes) {
  return bytes >= kLanes * 4 ? Lanes::load(from) : bytes > 0 ? Lanes::load_part(from, Lanes::part(bytes)) : Lanes::zero();
}

/// Words of a row of `depth` elements to `to`, whole vectors.
template <typename Element>
void copy_row(const Element* from, std::int64_t depth, float* to) {
  if constexpr (Products::kPerWord == 2) {
    for (std::int64_t i = 0; i < depth; i += 2 * kLanes) Lanes::store(to + i / 2, load_bytes(from + i, (depth - i) * 2));
  } else {
    for (std::int64_t i = 0; i < depth; i += kLanes) Lanes::store(to + i, load_some(from + i, depth - i));
  }
}

/// Up to kLanes keys as one vector of columns of a panel that is `width` vectors wide.
template <typename Element>
void pack_keys(const Element* from, std::int64_t stride, std::int64_t keys, std::int64_t depth, std::int64_t width, float* to) {
  constexpr std::int64_t kInLane = 4 / static_cast<std::int64_t>(sizeof(Element));  // elements that a 32-bit lane brings
  const std::int64_t line = width * kLanes;
  for (std::int64_t i = 0; i < depth; i += kLanes * kInLane) {
    Lanes::Vector v[kLanes];
    for (std::int64_t key = 0; key < kLanes; ++key) {
      v[key] = key < keys ? load_bytes(from + key * stride + i, (depth - i) * static_cast<std::int64_t>(sizeof(Element))) : Lanes::zero();
    }
    Lanes::transpose(v);
    const std::int64_t lanes = least(kLanes, (depth - i + kInLane - 1) / kInLane);
    if constexpr (kInLane == Products::kPerWord) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) Lanes::store(to + (i / kInLane + lane) * line, v[lane]);
    } else {  // bf16 to fp32
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        Lanes::store(to + (i + 2 * lane) * line, Lanes::shift_left_16(v[lane]));
        if (i + 2 * lane + 1 < depth) Lanes::store(to + (i + 2 * lane + 1) * line, Lanes::upper_half(v[lane]));
      }
    }
  }
}

/// `keys` rows of K.
template <typename Element>
void pack_k(const Element* from, std::int64_t stride, std::int64_t keys, std::int64_t depth, float* to) {
  const std::int64_t vectors = vectors_of(keys);
  const std::int64_t panels = panels_of_vectors(vectors);
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    const std::int64_t begin = vectors * panel / panels;
    const std::int64_t end = vectors * (panel + 1) / panels;
    for (std::int64_t v = begin; v < end; ++v) {
      pack_keys(from + v * kLanes * stride, stride, least(kLanes, keys - v * kLanes), depth, end - begin,
                to + begin * kLanes * words_of(depth) + (v - begin) * kLanes);
    }
  }
}

/// `keys` rows of V.
template <typename Element>
void pack_v(const Element* from, std::int64_t stride, std::int64_t keys, std::int64_t depth, float* to) {
  const std::int64_t vectors = vectors_of(depth);
  const std::int64_t panels = panels_of_vectors(vectors);
  for (std::int64_t key = 0; key < keys; key += Products::kPerWord) {
    const Element* row = from + key * stride;
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::int64_t begin = vectors * panel / panels;
      const std::int64_t end = vectors * (panel + 1) / panels;
      float* line = to + begin * kLanes * words_of(keys) + key / Products::kPerWord * (end - begin) * kLanes;
      for (std::int64_t v = begin; v < end; ++v) {
        const std::int64_t column = v * kLanes;
        Lanes::Vector word = load_some(row + column, depth - column);
        if constexpr (Products::kPerWord == 2) {
          word = paired(word, key + 1 < keys ? load_some(row + stride + column, depth - column) : Lanes::zero());
        }
        Lanes::store(line + (v - begin) * kLanes, word);
      }
    }
  }
}

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
