// winograd: a convolution of 3 x 3 pixels, without strides, gaps or groups, in fp32 or with bf16 inside, by 16 products for each 2 x 2
// pixels of the result where windows need 36; in fp32 also by 36 for each 4 x 4 pixels, where windows need 144.
//
// Method: F(2x2, 3x3) and F(4x4, 3x3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016). With d the 4 x 4 (6 x
// 6) pixels that a tile of 2 x 2 (4 x 4) results meets, Y = A'[(G g G') * (B' d B)]A; the weight's part is packed once, computed in double.
// Sums over channels are those of linear_f32. The points of F(4x4, 3x3) are 0, +-3/4, +-3/2 and infinity: the usual 0, +-1, +-2 double its
// error. That other points than small integers are better is from Barabasz, Anderson, Soodhalter and Gregg, "Error Analysis and Improving
// the Accuracy of Winograd Convolution for Deep Neural Networks" (2020); these were found by trying. Errors: a channel's sums are shorter
// than those of windows, the sums of tiles add to them; with numbers of one size 1.1 to 1.9 times those of windows for F(2x2, 3x3), 3 to 4
// times for F(4x4, 3x3), 4e-7 to 9e-7 of the result's RMS (tests/unit/kernels/winograd_test.cpp holds bounds). bf16 inside: transformed
// pixels and weights are rounded, sums are fp32; 1.5 times the errors of windows that are rounded. Differences of numbers that are infinite
// are not what windows give: such calls are refused. On request products are of fp32 in parts (linear_f32.h), for F(2x2, 3x3).
// Thread rule: all functions may be called concurrently; what is packed is immutable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/epilogue.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

struct WinogradArgs {
  bool bf16 = false;           ///< inside; else everything is fp32
  bool parts = false;          ///< fp32 in parts where winograd_has_parts(): who is faster depends on who else uses the core
  int tile = 2;                ///< results of a tile, down and across: 2, or 4 where all is fp32
  const void* from = nullptr;  ///< the first pixel of the first image; a pixel's channels lie side by side
  DType from_dtype = DType::kF32;
  std::int64_t images = 0;
  std::int64_t in[2] = {};  ///< height, width
  std::int64_t out[2] = {};
  std::int64_t padding[2] = {};   ///< zeros in front; behind the image as many as `out` asks for
  std::int64_t image_stride = 0;  ///< elements from an image to the next, from a row of pixels to the next, from a pixel to the next
  std::int64_t row_stride = 0;
  std::int64_t pixel_stride = 0;
  std::int64_t channels = 0;  ///< in
  const void* packed = nullptr;
  const void* bias = nullptr;  ///< [n], null = none
  DType bias_dtype = DType::kF32;
  void* to = nullptr;  ///< [images * out[0] * out[1], n]; must not overlap what is read
  DType to_dtype = DType::kF32;
  std::int64_t ld_to = 0;  ///< elements from a pixel to the next, >= n
  std::int64_t n = 0;      ///< channels out
  Epilogue epilogue;       ///< its other one lies as `to` does, elsewhere
};

/// Bytes that pack_winograd writes, a multiple of 64; 0 when the sizes are empty or not supported.
std::size_t packed_winograd_bytes(std::int64_t channels, std::int64_t n, bool bf16, int tile);

/// Packs a weight, element (n, c, y, x) of which is weight[n * strides[0] + c * strides[1] + y * strides[2] + x * strides[3]], computed in
/// double and rounded once, into `to` (64-byte aligned, packed_winograd_bytes long).
void pack_winograd(const void* weight, DType dtype, const std::int64_t strides[4], std::int64_t channels, std::int64_t n, bool bf16,
                   int tile, void* to, const Parallel& parallel);

/// True when `isa` has a variant for these channels that is worth offering: not the reference.
bool winograd_supported(std::int64_t channels, std::int64_t n, bool bf16, int tile, IsaSet isa);

/// Whether args.parts would make a difference that is worth trying: tiles of AMX, enough tiles of pixels to fill them, channels in steps
/// of 32.
bool winograd_has_parts(const WinogradArgs& args, IsaSet isa);

enum class WinogradResult : int {
  kDone,
  kNoMemory,   ///< for scratch; what `to` holds is undefined
  kNotFinite,  ///< so may the result be otherwise by windows; what `to` holds is undefined
};

/// Uses at most `isa`; falls back to the reference, so it is always right.
WinogradResult winograd(const WinogradArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that winograd() would use: "avx512_bf16" (bf16 alone), "avx512", "avx2" (fp32 alone), "ref".
const char* winograd_variant(std::int64_t channels, bool bf16, IsaSet isa);

}  // namespace ipexrun::kernels
