// Sites and the candidate of products of bytes: our own kernel, with the right operand packed once. Integers are equal or wrong.
#include "preload/plugin/adapters/int_mm_call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_cpu_dispatch.h>

#include <cstring>

#include "configs/contract/decision.h"
#include "kernels/linear_s8.h"
#include "preload/plugin/parallel.h"
#include "preload/plugin/scratch.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {

SiteId IntMmCall::site_id() const {
  SiteId id;
  id.op = static_cast<std::uint32_t>(op);
  id.form = static_cast<std::uint32_t>(a->scalar_type()) | static_cast<std::uint32_t>(transposed() ? 1 : 0) << 8;
  id.threads = at::get_num_threads();
  id.m = round_up_rows(a->size(0));
  id.n = b->size(1);
  id.k = b->size(0);
  return id;
}

SiteKey IntMmCall::site_key(const SiteId& id, const TierOptions& options) const {
  SiteKey key;
  key.op = op_name(op);
  key.dtypes = a->scalar_type() == at::kChar ? "i8,i8,i32" : "u8,i8,i32";
  key.layouts = transposed() ? "ctc" : "ccc";
  key.sizes = "m=" + std::to_string(id.m) + ",n=" + std::to_string(id.n) + ",k=" + std::to_string(id.k);
  key.threads = id.threads;
  key.isa = level_name(options.isa);
  key.torch = options.torch_minor;
  return key;
}

std::vector<int> IntMmCall::candidates(const TierOptions& options) const {
  kernels::LinearS8Args args;
  args.m = a->size(0);
  args.n = b->size(1);
  args.k = b->size(0);
  if (!kernels::linear_s8_supported(args, options.isa)) return {};
  return {kOwnF32};
}

void IntMmCall::weight_view(int /*i*/, WeightKey* key) const {
  key->sizes = {b->size(0), b->size(1)};
  key->strides = {b->stride(0), b->stride(1)};
}

std::shared_ptr<const TensorPack> IntMmCall::pack(int /*i*/, int /*candidate*/) const {
  const std::size_t bytes = kernels::packed_s8_bytes(b->size(0), b->size(1));
  at::Tensor packed = pack_memory(bytes);
  kernels::pack_s8({b->const_data_ptr<std::int8_t>(), b->size(0), b->size(1), b->stride(0), b->stride(1)}, packed.mutable_data_ptr(),
                   torch_pool());
  return std::make_shared<const TensorPack>(std::move(packed), bytes);
}

Outputs IntMmCall::run(int /*candidate*/, const Packs& packs, IsaSet isa) const {
  at::Tensor result = at::cpu::empty({a->size(0), b->size(1)}, at::TensorOptions().dtype(at::kInt));
  kernels::LinearS8Args args;
  args.a = a->const_data_ptr();
  args.a_signed = a->scalar_type() == at::kChar;
  args.lda = lda;
  args.packed_b = packs[0]->packed().const_data_ptr();
  args.c = result.mutable_data_ptr();
  args.m = a->size(0);
  args.n = args.ldc = b->size(1);
  args.k = b->size(0);
  if (!kernels::linear_s8(args, torch_pool(), isa)) return {};
  return result;
}

bool IntMmCall::accurate(const Outputs& stock, const Outputs& result, int /*candidate*/) const {
  return std::memcmp(stock.first.const_data_ptr(), result.first.const_data_ptr(), result.first.nbytes()) == 0;
}

}  // namespace ipexrun::preload
