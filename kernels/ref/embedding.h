// The reference variant of embedding_bag, see dispatch.h.
#pragma once

#include "kernels/embedding.h"

namespace ipexrun::kernels::ref {

bool embedding_bags(const EmbeddingBagArgs& args, std::int64_t bag_begin, std::int64_t bag_end);

}  // namespace ipexrun::kernels::ref
