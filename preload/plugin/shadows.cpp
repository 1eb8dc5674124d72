#include "preload/plugin/shadows.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "preload/select/fingerprint.h"

namespace ipexrun::preload {
namespace {

constexpr std::uint64_t kSweepEvery = 8;  // what the user let go is let go soon: the next shadow takes its warm memory

std::uint64_t bytes_seen(const at::Tensor& tensor) { return sampled_hash(tensor.storage().data(), tensor.storage().nbytes()); }

/// Bytes from the start of a storage to the end of the view.
std::size_t reach(const at::Tensor& view) {
  if (view.numel() == 0) return 0;
  std::int64_t last = view.storage_offset();
  for (std::int64_t dim = 0; dim < view.dim(); ++dim) last += (view.size(dim) - 1) * view.stride(dim);
  return static_cast<std::size_t>(last + 1) * view.element_size();
}

c10::Storage new_storage(std::size_t bytes) {
  return c10::Storage(c10::Storage::use_byte_size_t{}, bytes, c10::GetCPUAllocator()->allocate(bytes), c10::GetCPUAllocator(), false);
}

bool same_geometry(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.storage_offset() == b.storage_offset() &&
         a.scalar_type() == b.scalar_type();
}

double relative_error(const double* stock, const double* candidate, std::int64_t count) {
  double apart = 0;
  double size = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isfinite(stock[i]) && std::isfinite(candidate[i])) {
      apart += (candidate[i] - stock[i]) * (candidate[i] - stock[i]);
      size += stock[i] * stock[i];
    } else if (!(stock[i] == candidate[i] || (std::isnan(stock[i]) && std::isnan(candidate[i])))) {
      return std::numeric_limits<double>::infinity();
    }
  }
  return apart == 0 ? 0 : std::sqrt(apart / size);
}

}  // namespace

Shadows::View Shadows::view_of(const at::Tensor& tensor) {
  return {c10::DimVector(tensor.sizes()), c10::DimVector(tensor.strides()), tensor.storage_offset(), tensor.dtype()};
}

/// Built by hand: set_ would be one more op to dispatch.
at::Tensor Shadows::viewed(const c10::Storage& storage, const View& view) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), view.dtype);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes, view.strides, view.offset);
  return made;
}

Shadows::Shadow* Shadows::find(const at::Tensor& tensor) {
  const auto found = shadows_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == shadows_.end()) return nullptr;
  if (found->second.seen == bytes_seen(tensor) && reach(tensor) <= found->second.storage.nbytes()) return &found->second;
  erase(found->first);
  return nullptr;
}

void Shadows::erase(const c10::StorageImpl* storage) {
  const auto found = shadows_.find(storage);
  if (found == shadows_.end()) return;
  bytes_ -= found->second.storage.nbytes();
  shadows_.erase(found);
}

void Shadows::sweep() {
  for (auto at = shadows_.begin(); at != shadows_.end();) {
    if (at->second.of.expired()) {
      bytes_ -= at->second.storage.nbytes();
      at = shadows_.erase(at);
    } else {
      ++at;
    }
  }
}

Shadows::Shadow& Shadows::insert(const at::Tensor& tensor, c10::Storage storage) {
  if (++inserted_ % kSweepEvery == 0 || bytes_ + storage.nbytes() > limit_bytes_) sweep();
  if (bytes_ + storage.nbytes() > limit_bytes_) throw std::bad_alloc();
  erase(tensor.storage().unsafeGetStorageImpl());
  bytes_ += storage.nbytes();
  return shadows_
      .emplace(tensor.storage().unsafeGetStorageImpl(),
               Shadow{c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl()),
                      std::move(storage),
                      bytes_seen(tensor),
                      0,
                      view_of(tensor),
                      {},
                      false,
                      false,
                      false})
      .first->second;
}

at::Tensor Shadows::of(const at::Tensor& tensor) {
  const Shadow* shadow = find(tensor);
  return shadow == nullptr ? at::Tensor() : viewed(shadow->storage, view_of(tensor));
}

at::Tensor Shadows::of_or_copy(const at::Tensor& tensor) {
  if (at::Tensor known = of(tensor); known.defined()) return known;
  const std::size_t bytes = tensor.storage().nbytes();
  c10::Storage copy = new_storage(bytes);
  if (bytes > 0) std::memcpy(copy.mutable_data(), tensor.storage().data(), bytes);
  return viewed(insert(tensor, std::move(copy)).storage, view_of(tensor));
}

void Shadows::adopt(const at::Tensor& tensor, const at::Tensor& shadow, bool aside) {
  if (shadow.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl()) return;  // a view of something without a shadow
  if (shadow.sizes() != tensor.sizes()) {
    forget(tensor);  // its shape depends on values
    return;
  }
  Shadow* known = find(tensor);
  if (known == nullptr && same_geometry(tensor, shadow)) {
    known = &insert(tensor, shadow.storage());
  } else if (known == nullptr || known->storage.unsafeGetStorageImpl() != shadow.storage().unsafeGetStorageImpl()) {
    if (known == nullptr) known = &insert(tensor, new_storage(tensor.storage().nbytes()));
    viewed(known->storage, view_of(tensor)).copy_(shadow);
  }
  if (!known->result && !aside) known->result = tensor.storage();
}

void Shadows::rewritten(const at::Tensor& tensor) {
  const auto found = shadows_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == shadows_.end()) return;
  found->second.seen = bytes_seen(tensor);
  found->second.judged = false;
  found->second.measured = false;
  if (!found->second.result) found->second.result = tensor.storage();
}

void Shadows::forget(const at::Tensor& tensor) {
  if (tensor.has_storage()) erase(tensor.storage().unsafeGetStorageImpl());
}

void Shadows::note_rounded(const at::Tensor& tensor, std::uint64_t now) {
  const auto found = shadows_.find(tensor.storage().unsafeGetStorageImpl());
  if (found != shadows_.end() && found->second.rounded_since == 0) found->second.rounded_since = now;
}

std::uint64_t Shadows::rounded_since(const at::Tensor& tensor) const {
  const auto found = shadows_.find(tensor.storage().unsafeGetStorageImpl());
  return found == shadows_.end() ? 0 : found->second.rounded_since;
}

bool Shadows::hold_rounded() const {
  return std::any_of(shadows_.begin(), shadows_.end(),
                     [](const auto& one) { return one.second.rounded_since != 0 && !one.second.of.expired(); });
}

void Shadows::note_measured(const at::Tensor& tensor) {
  const auto found = shadows_.find(tensor.storage().unsafeGetStorageImpl());
  if (found != shadows_.end()) found->second.measured = true;
}

void Shadows::note_place(const at::Tensor& tensor, bool outside) {
  const auto found = shadows_.find(tensor.storage().unsafeGetStorageImpl());
  if (found != shadows_.end()) found->second.outside = outside;
}

bool Shadows::is_measured(const at::Tensor& tensor) const {
  const auto found = shadows_.find(tensor.storage().unsafeGetStorageImpl());
  return found != shadows_.end() && found->second.measured;
}

void Shadows::consumed(const at::Tensor& tensor) {
  const auto found = shadows_.find(tensor.storage().unsafeGetStorageImpl());
  if (found != shadows_.end()) found->second.result = c10::Storage();
}

double Shadows::error_of(const at::Tensor& tensor) {
  const Shadow* shadow = find(tensor);
  if (shadow == nullptr || !tensor.is_floating_point()) return 0;
  const at::Tensor stock = tensor.to(at::kDouble).contiguous();
  const at::Tensor candidate = viewed(shadow->storage, view_of(tensor)).to(at::kDouble).contiguous();
  return relative_error(stock.const_data_ptr<double>(), candidate.const_data_ptr<double>(), stock.numel());
}

void Shadows::add_errors(const Shadow& shadow, const c10::Storage& users, SampleErrors& errors) {
  const at::Tensor result = viewed(users, shadow.view);
  if (!result.is_floating_point() || result.dim() == 0 || result.numel() == 0) return;
  if (reach(result) > users.nbytes() || reach(result) > shadow.storage.nbytes() || shadow.seen != bytes_seen(result)) return;
  const at::Tensor stock = result.to(at::kDouble).contiguous();
  const at::Tensor candidate = viewed(shadow.storage, shadow.view).to(at::kDouble).contiguous();
  const std::int64_t rows = result.dim() > 1 ? result.size(0) : 1;
  const std::int64_t length = result.numel() / rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double error =
        relative_error(stock.const_data_ptr<double>() + row * length, candidate.const_data_ptr<double>() + row * length, length);
    errors.add(static_cast<std::uint64_t>(length), error);
  }
}

void Shadows::judge(const Shadow& shadow, const c10::Storage& users, SampleErrors& errors) {
  SampleErrors found;
  add_errors(shadow, users, found);
  double& worst = worst_[shadow.outside ? 1 : 0];
  worst = std::max(worst, found.worst());
  errors.add(found);
}

SampleErrors Shadows::judge_results() {
  SampleErrors errors;
  for (auto& [storage, shadow] : shadows_) {
    c10::Storage users = std::move(shadow.result);
    shadow.result = c10::Storage();
    if (!users) users = c10::Storage(shadow.of.lock());
    if (users && !shadow.judged && !shadow.measured) judge(shadow, users, errors);
  }
  return errors;
}

SampleErrors Shadows::judge_held() {
  SampleErrors errors;
  for (auto& [storage, shadow] : shadows_) {
    if (shadow.rounded_since == 0 || shadow.judged || shadow.measured) continue;
    const c10::Storage users(shadow.of.lock());
    if (!users) continue;
    judge(shadow, users, errors);
    shadow.judged = true;
  }
  return errors;
}

}  // namespace ipexrun::preload
