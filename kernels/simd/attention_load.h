// Vectors of a row of fp32 or bf16, as fp32. Include after floats_*.h and halves_*.h.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kLanes = Lanes::kCount;

constexpr std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// kLanes elements in their order, n of them from memory and the rest zero.
[[gnu::always_inline]] inline Lanes::Vector load_some(const float* from, std::int64_t n) {
  return n >= kLanes ? Lanes::load(from) : Lanes::load_part(from, Lanes::part(n * 4));
}
[[gnu::always_inline]] inline Lanes::Vector load_some(const std::uint16_t* from, std::int64_t n) {
  return n >= kLanes ? Halves::load(from) : Halves::load_part(from, n);
}
[[gnu::always_inline]] inline void store_some(float* to, Lanes::Vector bits, std::int64_t n) {
  n >= kLanes ? Lanes::store(to, bits) : Lanes::store_part(to, bits, Lanes::part(n * 4));
}
[[gnu::always_inline]] inline void store_some(std::uint16_t* to, Lanes::Vector bits, std::int64_t n) {
  n >= kLanes ? Halves::store(to, bits) : Halves::store_part(to, bits, n);
}

/// A head of q among all, and where its rows lie.
struct Head {
  std::int64_t batch;
  std::int64_t head;
  std::int64_t kv_head;

  Head(const AttentionArgs& args, std::int64_t number)
      : batch(number / args.heads), head(number % args.heads), kv_head(head / (args.heads / args.kv_heads)) {}
};

template <typename Element>
[[gnu::always_inline]] inline const Element* row_of(const Heads& heads, std::int64_t batch, std::int64_t head, std::int64_t row) {
  return static_cast<const Element*>(heads.data) + batch * heads.batch_stride + head * heads.head_stride + row * heads.row_stride;
}
template <typename Element>
[[gnu::always_inline]] inline const Element* q_row(const AttentionArgs& args, const Head& head, std::int64_t row) {
  return row_of<Element>(args.q, head.batch, head.head, row);
}
template <typename Element>
[[gnu::always_inline]] inline const Element* k_row(const AttentionArgs& args, const Head& head, std::int64_t key) {
  return row_of<Element>(args.k, head.batch, head.kv_head, key);
}
template <typename Element>
[[gnu::always_inline]] inline const Element* v_row(const AttentionArgs& args, const Head& head, std::int64_t key) {
  return row_of<Element>(args.v, head.batch, head.kv_head, key);
}
template <typename Element>
[[gnu::always_inline]] inline Element* out_row(const AttentionArgs& args, const Head& head, std::int64_t row) {
  return static_cast<Element*>(args.out) + head.batch * args.out_batch_stride + head.head * args.out_head_stride +
         row * args.out_row_stride;
}

[[gnu::always_inline]] inline float* lse_of(const AttentionArgs& args, const Head& head, std::int64_t row) {
  if (args.logsumexp == nullptr) return nullptr;
  return args.logsumexp + head.batch * args.lse_batch_stride + head.head * args.lse_head_stride + row * args.lse_row_stride;
}

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
