// Registration of our kernels with torch's dispatcher, a function a group.
#pragma once

namespace ipexrun::preload::xpu {

void register_basics();      ///< memory, views, copies, scalars, and the CPU fallback for everything else
void register_sparse();      ///< parts of sparse tensors
void register_composites();  ///< operators that torch cannot run on xpu without help: LSTM and GRU cells, convolution
void register_attention();
void register_elementwise();  ///< arithmetic, comparisons, activations, choices
void register_fast();         ///< the commonest of them on plain tensors: less of the host's time a call
void register_products();     ///< of matrices
void register_rows();         ///< sums, softmax, layer norm
void register_batch_norm();
void register_pools();
void register_indexing();
void register_losses();
void register_creation();
void register_random();
void register_optimizers();
void register_foreach();  ///< the same operator on many tensors
void register_reductions();
void register_sort();
void register_search();  ///< places of largest and smallest elements, running sums
void register_rest();    ///< last: whatever has a CPU kernel and none of ours

}  // namespace ipexrun::preload::xpu
