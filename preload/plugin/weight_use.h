// The torch side of the weight table: a tensor as key, version and liveness.
#pragma once

#include <memory>

#include "preload/plugin/op_call.h"
#include "preload/select/weights.h"

namespace ipexrun::preload {

/// Reads a weight; how it is viewed is for the caller to add to the key. Throws nothing: a tensor without a version counter has kNoVersion.
WeightUse weight_use_of(const at::Tensor& weight);

/// Reads the i-th weight of a call.
WeightUse weight_use_of(const OpCall& call, int i, std::int64_t op_ns);

/// Watches the storage without keeping its memory.
std::unique_ptr<Liveness> liveness_of(const at::Tensor& tensor);

}  // namespace ipexrun::preload
