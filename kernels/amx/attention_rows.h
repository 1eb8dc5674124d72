// 16 rows of scores to softmax weights at once, block of keys after block: what a row needs once a block is done for all of them in the
// lanes of a vector. Include after attention_weigh.h.
//
// Shifts instead of maxima: a weight is 2^(score * log2(e) - shift) with a whole number near the largest one's for the shift, so what was
// summed before is scaled by a power of two, without rounding. Scores so large or so small that a shift would cost digits, and
// infinite or NaN ones, are left to weigh(), from then on to the end of the rows.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace ipexrun::kernels::amx {
namespace {

constexpr std::int64_t kChunk = 64;  ///< keys whose scores are weighed as soon as they are there: those of 32 rows take 8 KiB of L1
/// As kExp2Less1 of exp2.h with one power less: 9e-8 of 2^f.
constexpr float kExp2Less1Short[] = {0.693147f, 0.24022242f, 0.055507336f, 0.009671513f, 0.0013264727f};
constexpr int kGroup = 16;               ///< rows
constexpr float kMostShift = 1024.0f;    ///< |largest score| * log2(e) below it
constexpr float kNoShift = -1048576.0f;  ///< nothing seen but -inf
constexpr float kWhole = 12582912.0f;    ///< 1.5 * 2^23: added to a small number it leaves the nearest whole one in the lowest bits
constexpr float kLn2 = 0.693147181f;

struct Weights {
  [[gnu::always_inline]] static void put(float* row, std::int64_t i, Floats::Vector first, Floats::Vector second) {
    Lanes::store(row + i / 2, (__m512i)_mm512_cvtne2ps_pbh(second, first));
  }
};

constexpr float kMostSum = 1.2e18f;  ///< of weights of which none was looked at before

/// What 16 rows have seen so far.
struct alignas(64) Group {
  float shift[kGroup];         ///< whole numbers
  float sums[kGroup][kGroup];  ///< of weights, the lanes of a row
  float before[kGroup];        ///< powers of two: what everything summed earlier has to be multiplied by
  Seen seen[kGroup];           ///< instead, once `apart`
  bool apart;
};

struct Larger {
  [[gnu::always_inline]] static __m512 of(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
};
struct Sum {
  [[gnu::always_inline]] static __m512 of(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
};

/// Lane i: the 16 lanes of v[i] joined.
template <typename Join>
[[gnu::always_inline]] inline __m512 across(const __m512 (&v)[kGroup]) {
  __m512 fours[4];  // in each 128-bit part: four rows, the lanes of that part joined
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = Join::of(_mm512_unpacklo_ps(v[4 * i], v[4 * i + 1]), _mm512_unpackhi_ps(v[4 * i], v[4 * i + 1]));
    const __m512 b = Join::of(_mm512_unpacklo_ps(v[4 * i + 2], v[4 * i + 3]), _mm512_unpackhi_ps(v[4 * i + 2], v[4 * i + 3]));
    fours[i] = Join::of(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  const auto halved = [](__m512 a, __m512 b) __attribute__((always_inline)) {
    return Join::of(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  return halved(halved(fours[0], fours[1]), halved(fours[2], fours[3]));
}

inline void begin(Group* group) {
  _mm512_store_ps(group->shift, _mm512_set1_ps(kNoShift));
  for (auto& sums : group->sums) _mm512_store_ps(sums, _mm512_setzero_ps());
  group->apart = false;
}

/// The largest of n >= 1 scores among the lanes, as they are.
[[gnu::always_inline]] inline __m512 most_of_plain(const float* row, std::int64_t n) {
  __m512 most[2] = {_mm512_set1_ps(kNothing), _mm512_set1_ps(kNothing)};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    most[0] = _mm512_max_ps(most[0], _mm512_load_ps(row + i));
    most[1] = _mm512_max_ps(most[1], _mm512_load_ps(row + i + kLanes));
  }
  for (; i < n; i += kLanes) {
    const auto keep = static_cast<__mmask16>(_bzhi_u32(0xffffu, static_cast<unsigned>(least(n - i, kLanes))));
    most[0] = _mm512_mask_max_ps(most[0], keep, most[0], _mm512_load_ps(row + i));
  }
  return _mm512_max_ps(most[0], most[1]);
}

/// 2^(t * factor - shift), 0 below the smallest normal number, 2^127 or more above that; `whole` is kWhole - shift. kPayload: t may be a
/// NaN whose lowest bits are set.
template <bool kPayload>
[[gnu::always_inline]] inline __m512 weight_of(__m512 t, __m512 factor, __m512 whole) {
  const __m512 rounded = _mm512_fmadd_ps(t, factor, whole);
  const __m512 rest = _mm512_fmsub_ps(t, factor, _mm512_sub_ps(rounded, whole));
  const __m512 p = _mm512_fmadd_ps(rest, polynomial(kExp2Less1Short, rest), _mm512_set1_ps(1.0f));
  const __mmask16 normal = _mm512_cmp_ps_mask(rounded, _mm512_set1_ps(kWhole - 125.0f), _CMP_NLT_UQ);
  if constexpr (kPayload) {
    return _mm512_maskz_scalef_ps(normal, p, _mm512_sub_ps(rounded, _mm512_set1_ps(kWhole)));
  } else {
    const __m512 power = _mm512_min_ps(_mm512_set1_ps(kWhole + 128.0f), rounded);  // a NaN stays
    return _mm512_castsi512_ps(_mm512_maskz_add_epi32(normal, _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(power), 23)));
  }
}

/// n >= 1 scores to weights in pairs of bf16 up to element `end`, which zeros fill; adds their sum to `sums`.
template <bool kPayload>
[[gnu::always_inline]] inline void weigh_row(float* row, std::int64_t n, std::int64_t end, float factor, float shift, float before,
                                             float* sums) {
  const __m512 factors = _mm512_set1_ps(factor);
  const __m512 whole = _mm512_set1_ps(kWhole - shift);
  __m512 sum[2] = {_mm512_mul_ps(_mm512_load_ps(sums), _mm512_set1_ps(before)), _mm512_setzero_ps()};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const __m512 first = weight_of<kPayload>(_mm512_load_ps(row + i), factors, whole);
    const __m512 second = weight_of<kPayload>(_mm512_load_ps(row + i + kLanes), factors, whole);
    sum[0] = _mm512_add_ps(sum[0], first);
    sum[1] = _mm512_add_ps(sum[1], second);
    Weights::put(row, i, first, second);
  }
  if (i < n) {
    const unsigned keep = _bzhi_u32(~0u, static_cast<unsigned>(n - i));
    const __m512 first = _mm512_maskz_mov_ps(static_cast<__mmask16>(keep), weight_of<kPayload>(_mm512_load_ps(row + i), factors, whole));
    const __m512 second =
        _mm512_maskz_mov_ps(static_cast<__mmask16>(keep >> 16), weight_of<kPayload>(_mm512_load_ps(row + i + kLanes), factors, whole));
    sum[0] = _mm512_add_ps(sum[0], first);
    sum[1] = _mm512_add_ps(sum[1], second);
    Weights::put(row, i, first, second);
    i += 2 * kLanes;
  }
  for (; i < end; i += 2 * kLanes) Weights::put(row, i, _mm512_setzero_ps(), _mm512_setzero_ps());
  _mm512_store_ps(sums, _mm512_add_ps(sum[0], sum[1]));
}

/// From shifts to what weigh() knows.
inline void set_apart(Group* group) {
  for (int r = 0; r < kGroup; ++r) {
    const float sum = _mm512_reduce_add_ps(_mm512_load_ps(group->sums[r]));
    group->seen[r] = {group->shift[r] == kNoShift && sum == 0.0f ? kNothing : group->shift[r] * kLn2, sum};
  }
  group->apart = true;
}

/// Nearest whole numbers to the largest scores of the rows, which `factor` makes powers of 2; false where they do not allow it.
[[gnu::always_inline]] inline bool whole_powers(__m512 largest, float factor, __mmask16 or_else, __m512* power) {
  const __m512 product = _mm512_mul_ps(largest, _mm512_set1_ps(factor));
  *power = Floats::nearest(product);
  return (or_else | _mm512_cmp_ps_mask(_mm512_abs_ps(product), _mm512_set1_ps(kMostShift), _CMP_LT_OQ)) == 0xffff;
}

/// New shifts and `before` from the largest scores of the rows in this block; false where these do not allow it.
inline bool shift_by(__m512 largest, float factor, Group* group) {
  __m512 power;
  if (!whole_powers(largest, factor, _mm512_cmp_ps_mask(largest, _mm512_set1_ps(kNothing), _CMP_EQ_OQ), &power)) return false;
  const __m512 shift = _mm512_load_ps(group->shift);
  const __m512 next = _mm512_max_ps(shift, power);
  _mm512_store_ps(group->shift, next);
  _mm512_store_ps(group->before, _mm512_scalef_ps(_mm512_set1_ps(1.0f), _mm512_sub_ps(shift, next)));
  return true;
}

/// Shifts from the largest of the first scores; false where these do not allow it.
inline bool shift_to(__m512 largest, float factor, Group* group) {
  __m512 power;
  if (!whole_powers(largest, factor, 0, &power)) return false;
  _mm512_store_ps(group->shift, power);
  return true;
}

/// What is left of a chunk's scores: with a mask they are scaled and masked, else as they are.
template <typename Mask>
[[gnu::always_inline]] inline __m512 score_of(const float* row, std::int64_t i, std::int64_t left, __m512 scale, const Mask& mask) {
  const __m512 score = _mm512_load_ps(row + i);
  return Mask::kChanges ? mask.add(_mm512_mul_ps(score, scale), i, left) : score;
}

template <typename Mask>
[[gnu::always_inline]] inline __m512 most_of_chunk(const float* row, std::int64_t n, float scale, const Mask& mask) {
  const __m512 scales = _mm512_set1_ps(scale);
  __m512 most = _mm512_set1_ps(kNothing);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto keep = static_cast<__mmask16>(_bzhi_u32(0xffffu, static_cast<unsigned>(least(n - i, kLanes))));
    most = _mm512_mask_max_ps(most, keep, most, score_of(row, i, n - i, scales, mask));
  }
  return most;
}

template <typename Mask>
struct Payload {
  static constexpr bool kMay = false;
};
template <>
struct Payload<RowMask<float>> {
  static constexpr bool kMay = true;
};

/// What the rows of a call share.
template <typename Mask>
struct Factors {
  __m512 scale;
  __m512 factor;
  explicit Factors(float by) : scale(_mm512_set1_ps(by)), factor(_mm512_set1_ps(Mask::kChanges ? kLog2E : by * kLog2E)) {}
};

/// All kChunk scores of a row to weights; adds their sum to `sums`.
template <typename Mask>
[[gnu::always_inline]] inline void weigh_whole(const float* row, const Factors<Mask>& by, const Mask& mask, float shift, float* sums,
                                               char* to) {
  const __m512 whole = _mm512_set1_ps(kWhole - shift);
  __m512 weights[kChunk / kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < kChunk / kLanes; ++i) {
    weights[i] = weight_of<Payload<Mask>::kMay>(score_of(row, i * kLanes, kLanes, by.scale, mask), by.factor, whole);
  }
#pragma GCC unroll 2
  for (int i = 0; i < kChunk / kLanes; i += 2) {
    _mm512_store_si512(to + i * 2 * kLanes, (__m512i)_mm512_cvtne2ps_pbh(weights[i + 1], weights[i]));
  }
  const __m512 sum = _mm512_add_ps(_mm512_add_ps(weights[0], weights[1]), _mm512_add_ps(weights[2], weights[3]));
  _mm512_store_ps(sums, _mm512_add_ps(_mm512_load_ps(sums), sum));
}

/// n scores of a chunk (n may be 0) to weights, `room` bf16 with zeros behind; adds their sum to `sums`.
template <typename Mask>
[[gnu::noinline]] void weigh_part(const float* row, std::int64_t n, std::int64_t room, const Factors<Mask>& by, const Mask& mask,
                                  float shift, float* sums, char* to) {
  const __m512 whole = _mm512_set1_ps(kWhole - shift);
  const auto weight = [&](std::int64_t i, std::int64_t left) __attribute__((always_inline)) {
    return weight_of<Payload<Mask>::kMay>(score_of(row, i, left, by.scale, mask), by.factor, whole);
  };
  __m512 sum = _mm512_load_ps(sums);
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const __m512 first = weight(i, kLanes);
    const __m512 second = weight(i + kLanes, kLanes);
    sum = _mm512_add_ps(sum, _mm512_add_ps(first, second));
    _mm512_store_si512(to + i * 2, (__m512i)_mm512_cvtne2ps_pbh(second, first));
  }
  if (i < n) {
    const unsigned keep = _bzhi_u32(~0u, static_cast<unsigned>(n - i));
    const __m512 first = _mm512_maskz_mov_ps(static_cast<__mmask16>(keep), weight(i, n - i));
    const __m512 second =
        n - i > kLanes ? _mm512_maskz_mov_ps(static_cast<__mmask16>(keep >> 16), weight(i + kLanes, n - i - kLanes)) : _mm512_setzero_ps();
    sum = _mm512_add_ps(sum, _mm512_add_ps(first, second));
    _mm512_store_si512(to + i * 2, (__m512i)_mm512_cvtne2ps_pbh(second, first));
    i += 2 * kLanes;
  }
  for (; i < room; i += 2 * kLanes) _mm512_store_si512(to + i * 2, _mm512_setzero_si512());
  _mm512_store_ps(sums, sum);
}

/// ln(x * 2^shift) for a normal x > 0: x is m * 2^n with 3/4 <= m < 3/2, ln m = 2 artanh((m - 1) / (m + 1)), 1e-8 of it by five powers.
[[gnu::always_inline]] inline __m512 logarithm(__m512 x, __m512 shift) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
  const __m512 n = _mm512_getexp_ps(_mm512_div_ps(x, m));
  const __m512 t = _mm512_div_ps(_mm512_sub_ps(m, one), _mm512_add_ps(m, one));
  constexpr float kArtanh[] = {2.0f, 2.0f / 3, 2.0f / 5, 2.0f / 7, 2.0f / 9};
  return _mm512_fmadd_ps(t, polynomial(kArtanh, _mm512_mul_ps(t, t)), _mm512_mul_ps(_mm512_add_ps(n, shift), _mm512_set1_ps(kLn2)));
}

/// What the sums of the first `rows` rows are multiplied by in the end, and their logsumexp. Those that were computed `quick` may be too
/// large or NaN: false.
inline bool finish(const Group& group, std::int64_t rows, bool quick, float* factors, float* logsumexp) {
  if (group.apart) {
    for (std::int64_t r = 0; r < rows; ++r) factors[r] = finish(group.seen[r], &logsumexp[r]);
    return true;
  }
  __m512 sums[kGroup];
  for (int r = 0; r < kGroup; ++r) sums[r] = _mm512_load_ps(group.sums[r]);
  const __m512 sum = across<Sum>(sums);
  if (quick && _mm512_cmp_ps_mask(sum, _mm512_set1_ps(kMostSum), _CMP_LT_OQ) != 0xffff) return false;
  const __mmask16 nothing = _mm512_cmp_ps_mask(sum, _mm512_setzero_ps(), _CMP_EQ_OQ);
  const __m512 safe = _mm512_mask_mov_ps(sum, nothing, _mm512_set1_ps(1.0f));
  _mm512_storeu_ps(factors, _mm512_div_ps(_mm512_set1_ps(1.0f), safe));
  _mm512_storeu_ps(logsumexp, _mm512_maskz_mov_ps(static_cast<__mmask16>(~nothing), logarithm(safe, _mm512_load_ps(group.shift))));
  return true;
}

}  // namespace
}  // namespace ipexrun::kernels::amx
