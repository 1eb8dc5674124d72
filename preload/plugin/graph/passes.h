// Rewrites of a graph before its first run. Each keeps what the graph computes, up to rounding; each is a file of its own.
#pragma once

#include <string>

#include "preload/plugin/graph/ir.h"

namespace ipexrun::preload::graph {

/// What was rewritten, for the report.
struct Fused {
  int attentions = 0;          ///< by our own kernel
  int written_attentions = 0;  ///< among them, that the program wrote out
  int gelus = 0;               ///< that the program wrote out
  int norms = 0;               ///< layer norms, and rms norms that the program wrote out
  int sums_in_norms = 0;
  int joined = 0;       ///< linear layers that are one product with others
  int rotaries = 0;     ///< rotary position embeddings that the program wrote out
  int linears = 0;      ///< products with a weight
  int activations = 0;  ///< that went into one of them
  int sums = 0;         ///< additions or products with another matrix that did
  int kept_bf16 = 0;    ///< results that stay bf16 on their way to a product
  int convolutions = 0;
  int pads = 0;          ///< zeros around an image that convolutions add themselves
  int folded_norms = 0;  ///< batch norms in the weights of convolutions
  int pools = 0;         ///< of images that lie channels last
  int held = 0;          ///< images that stay channels last between convolutions
  int variances = 0;     ///< and standard deviations and instance norms
  int pointwise = 0;     ///< element-wise operators
  int rows = 0;          ///< of them, each one pass through memory
  int constants = 0;     ///< values that are the same in every call
  int of_weights = 0;    ///< values that are the same until a weight changes
  int reorders = 0;      ///< of images, on their way in or out
};

/// Every pass below, in its order. `bf16`: products of float32 may be computed in bf16.
Fused optimize(Graph* graph, bool bf16);

/// The same for a graph of which parts are to be cut out (find_parts.h): first what makes steps of products, convolutions and attention,
/// and what goes into these; then, with the parts gone or for one of them alone, the rest.
void optimize_around_parts(Graph* graph, bool bf16, Fused* fused);
void optimize_between_parts(Graph* graph, bool bf16, Fused* fused);

/// "12 linear layers, 6 activations in them", for reports.
std::string words(const Fused& fused);

/// A gelu that the program wrote out becomes one operator.
void find_gelu(Graph* graph, Fused* fused);

/// What is computed from numbers alone is computed now. After the passes that look at how a table or a mask is made.
void fold_constants(Graph* graph, Fused* fused);

/// What is computed from weights alone is computed when one of them was changed, and is a weight for the passes that follow.
void fold_weights(Graph* graph, Fused* fused);

/// What is computed twice from the same arguments is computed once; copies that change nothing go.
void share_equal(Graph* graph);

/// Layer norms whose statistics nobody reads, and rms norms that the program wrote out, are computed by our own kernel.
void find_norms(Graph* graph, Fused* fused);

/// An addition that is left before a norm goes into it.
void add_to_norms(Graph* graph, Fused* fused);

/// Variances, standard deviations and instance norms, where torch's kernels are slow.
void find_variances(Graph* graph, Fused* fused);

/// Rotary position embeddings that the program wrote out, by our own kernel.
void find_rotary(Graph* graph, Fused* fused);

/// Attention that the program wrote out (two batches of products with a softmax between them) becomes one step.
void find_written_attention(Graph* graph, Fused* fused);

/// Attention whose logsumexp nobody reads is computed by our own kernel. `bf16`: in float32 too, with bf16 inside.
void find_attention(Graph* graph, bool bf16, Fused* fused);

/// Products with a weight (addmm, mm) become linear layers. `bf16`: those in float32 are computed in bf16.
void find_linears(Graph* graph, bool bf16, Fused* fused);

/// What follows a linear layer and is read by nobody else goes into it: an activation, then an addition or a product.
void fuse_epilogues(Graph* graph, Fused* fused);

/// Convolutions with a weight of the model. `bf16`: those in float32 may be computed in bf16.
void find_convolutions(Graph* graph, bool bf16, Fused* fused);

/// Zeros around an image that only convolutions read are their padding.
void fold_pads(Graph* graph, Fused* fused);

/// A batch norm in eval mode that alone reads a convolution goes into its weight.
void fold_norms(Graph* graph, Fused* fused);

/// What follows a convolution and is read by nobody else goes into it: an activation and an addition, in either order.
void fuse_after_convolutions(Graph* graph, Fused* fused);

/// Images stay channels last, and in bf16 where convolutions compute in it, as long as only convolutions read them and what lies between.
void keep_channels_last(Graph* graph, bool bf16, Fused* fused);

/// Pools of images that lie channels last are computed by our own kernel, and means over height and width.
void find_pools(Graph* graph, Fused* fused);

/// float32 that only steps of ours read which would round it to bf16 themselves is written as bf16.
void keep_bf16(Graph* graph, Fused* fused);

/// Rows of element-wise operators become one pass through memory. `bf16`: what only products read is written as bf16, as keep_bf16() does.
void find_pointwise(Graph* graph, bool bf16, Fused* fused);

/// Linear layers of one x become one product, where their results may be columns of one buffer. After every pass that rewrites these.
void join_linears(Graph* graph, Fused* fused);

/// Rows of a product's result that would meet in one set of a cache lie further apart, where its readers take that. The last pass.
void space_rows(Graph* graph);

/// Nodes whose results nobody reads.
void drop_dead(Graph* graph);

}  // namespace ipexrun::preload::graph
