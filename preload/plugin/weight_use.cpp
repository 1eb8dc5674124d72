#include "preload/plugin/weight_use.h"

#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>

#include "preload/plugin/fast_paths.h"

namespace ipexrun::preload {
namespace {

class StorageLiveness final : public Liveness {
 public:
  explicit StorageLiveness(const c10::Storage& storage)
      : storage_(c10::weak_intrusive_ptr<c10::StorageImpl>(storage.getWeakStorageImpl())) {}
  [[nodiscard]] bool alive() const noexcept override { return !storage_.expired(); }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
};

/// A view that autograd does not know: its counter is its own, always 0. One of other strides, or of memory that somebody else holds as
/// well.
bool made_below_autograd(const at::Tensor& w) {
  if (w.is_view()) return false;
  if (w.dim() <= 3 && !w.is_contiguous()) return true;
  return w._version() == 0 && w.storage().use_count() > 1 && w.unsafeGetTensorImpl()->version_counter().unique();
}

}  // namespace

WeightUse weight_use_of(const at::Tensor& w) {
  WeightUse use;
  use.key.storage = w.storage().unsafeGetStorageImpl();
  use.key.data = w.const_data_ptr();
  use.key.offset = w.storage_offset();
  use.key.dtype = static_cast<int>(w.scalar_type());
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < w.dim(); ++dim) last += (w.size(dim) - 1) * w.stride(dim);
  use.size_bytes = static_cast<std::size_t>(last + 1) * w.element_size();
  if (w.is_inference()) {  // has no counter, and may be written as any other
    use.blind = true;
  } else {
    use.version = static_cast<std::int64_t>(w._version());
  }
  if (!w.is_inference() && made_below_autograd(w)) {
    const std::optional<std::int64_t> version = version_in_fast_path(use.key.storage);
    use.blind = !version.has_value();
    use.version = version.value_or(0);
  }
  use.wants_grad = c10::GradMode::is_enabled() && w.requires_grad();
  return use;
}

WeightUse weight_use_of(const OpCall& call, int i, std::int64_t op_ns) {
  WeightUse use = weight_use_of(*call.weight(i));
  call.weight_view(i, &use.key);
  use.op_ns = op_ns;
  return use;
}

std::unique_ptr<Liveness> liveness_of(const at::Tensor& tensor) { return std::make_unique<StorageLiveness>(tensor.storage()); }

}  // namespace ipexrun::preload
