// Work over rows of n elements that lie side by side: a work group a row. -DT= type of elements, -DX= type of sums, -DOUT= of a sum's result.
// -DLANES=: items of a work group; more of them for long rows on devices whose items are lanes. Where they are a CPU's, one item takes a row of real
// numbers, in vectors (preload/xpu/operands.h, one_item_a_row).
#if !defined(GPU) && !defined(GROUPED)
#if JOIN(IS_REAL_, T) && JOIN(IS_REAL_, X)
#define VECTORS
#define LANES 1
#endif
#endif
#ifndef LANES
#define LANES 64
#endif
// Before loops of reductions: several elements are on their way at once.
#ifdef GPU
#define READ_AHEAD _Pragma("unroll 4")
#else
#define READ_AHEAD
#endif
#define XT TYPE(X)
#define ROW __kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void

#define ADD(a, b) ((a) + (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
// The lanes' values become one that all of them have.
#define REDUCE(value, OPERATION)                                                              \
  part[lane] = value;                                                                         \
  barrier(CLK_LOCAL_MEM_FENCE);                                                               \
  for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {                                        \
    if (lane < half_) part[lane] = OPERATION(part[lane], part[lane + half_]);                 \
    barrier(CLK_LOCAL_MEM_FENCE);                                                             \
  }                                                                                           \
  value = part[0];                                                                            \
  barrier(CLK_LOCAL_MEM_FENCE)
#define START                                    \
  __local XT part[LANES];                        \
  const int lane = get_local_id(0);              \
  const long row = get_group_id(0)
#define OF(name) (AT(MEM_TYPE(T), name) + row * n)
#define GET(name, i) CONVERT(X, LOAD(T, OF(name) + (i)))

// Loops over a row. E(w, i) is an expression of the element i (w: 1) or of 16 of them (w: 16): GET##w(name, i), and constants CONSTANT##w(v).
#define GET1 GET
#define CONSTANT1(v) ((XT)(v))
#ifdef VECTORS
typedef VECTOR(X) V;
#define GET16(name, i) VECTOR_AS(X, LOADS(T, OF(name) + (i)))
#define CONSTANT16(v) ((V)(v))
#define JOIN_VECTOR(result, v, OPERATION)                                                              \
  {                                                                                                    \
    XT values_[16];                                                                                    \
    vstore16(v, 0, values_);                                                                           \
    for (int half_ = 8; half_ > 0; half_ /= 2)                                                         \
      for (int e_ = 0; e_ < half_; ++e_) values_[e_] = OPERATION(values_[e_], values_[e_ + half_]);    \
    result = values_[0];                                                                               \
  }
#define ROW_REDUCE(result, from, end, OPERATION, START_AT, E)                                   \
  {                                                                                             \
    V many_ = (V)(START_AT);                                                                    \
    long i_ = from;                                                                             \
    for (; i_ + 16 <= (end); i_ += 16) {                                                        \
      const V value_ = E(16, i_);                                                               \
      many_ = OPERATION(value_, many_);                                                         \
    }                                                                                           \
    JOIN_VECTOR(result, many_, OPERATION)                                                       \
    for (; i_ < (end); ++i_) {                                                                  \
      const XT value_ = E(1, i_);                                                               \
      result = OPERATION(value_, result);                                                       \
    }                                                                                           \
  }
#define ROW_PUT(E)                                                                 \
  {                                                                                \
    long i_ = 0;                                                                   \
    for (; i_ + 16 <= n; i_ += 16) STORES(T, OF(out) + i_, E(16, i_));             \
    for (; i_ < n; ++i_) STORE(T, OF(out) + i_, E(1, i_));                         \
  }
#else
#define ROW_REDUCE(result, from, end, OPERATION, START_AT, E)   \
  result = START_AT;                                            \
  READ_AHEAD                                                    \
  for (long i_ = (from) + lane; i_ < (end); i_ += LANES) {      \
    const XT value_ = E(1, i_);                                 \
    result = OPERATION(value_, result);                         \
  }                                                             \
  REDUCE(result, OPERATION);
#define ROW_PUT(E) \
  for (long i_ = lane; i_ < n; i_ += LANES) STORE(T, OF(out) + i_, E(1, i_));
#endif
#define ROW_SUM(sum, E) ROW_REDUCE(sum, 0L, n, ADD, 0, E)

// Reductions, -DREDUCTION=: what an element counts as, how two become one, what there is before the first, what becomes of the whole.
// -DAGAIN: elements are results of a first pass; -DPARTIAL: so are this one's.
#define lift_sum(v) (v)
#define join_sum ADD
#define start_sum 0
#define finish_sum(v) ((v) * scale)
#define lift_norm(v) ((v) * (v))
#define join_norm ADD
#define start_norm 0
#define finish_norm(v) sqrt(v)
#define LARGEST(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define SMALLEST(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))
#define lift_largest(v) (v)
#define join_largest LARGEST
#define start_largest LOWEST
#define finish_largest(v) (v)
#define lift_smallest(v) (v)
#define join_smallest SMALLEST
#define start_smallest HIGHEST
#define finish_smallest(v) (v)
#ifdef REDUCTION
#ifdef AGAIN
#define LIFTED(v) (v)
#else
#define LIFTED(v) JOIN(lift_, REDUCTION)(v)
#endif
#ifdef PARTIAL
#define FINISHED(v) (v)
#else
#define FINISHED(v) JOIN(finish_, REDUCTION)(v)
#endif

// out[row, piece] of a piece of `part` elements of a row of n.
ROW row_reduce(MEM(out), MEM(in), long n, long part_size, long pieces, XT scale) {
  __local XT part[LANES];
  const int lane = get_local_id(0);
  const long row = get_group_id(0) / pieces, first = get_group_id(0) % pieces * part_size, end = min(n, first + part_size);
  XT sum;
#define LIFTED_AT(w, i) LIFTED(GET##w(in, i))
  ROW_REDUCE(sum, first, end, JOIN(join_, REDUCTION), JOIN(start_, REDUCTION), LIFTED_AT)
  if (lane == 0) STORE(OUT, AT(MEM_TYPE(OUT), out) + get_group_id(0), CONVERT(OUT, FINISHED(sum)));
}

// out[block, piece, i] of in[block, r, i] for the piece's r; a work item a result, neighbours read side by side, or COLUMNS_EACH of them in vectors.
#ifdef VECTORS
#define COLUMNS_EACH 64
#else
#define COLUMNS_EACH 1
#endif
__kernel void column_reduce(MEM(out), MEM(in), long rows, long n, long part_size, long pieces, XT scale) {
  const long begin = get_global_id(0) * COLUMNS_EACH, block = get_global_id(1) / pieces, piece = get_global_id(1) % pieces;
  if (begin >= n) return;
  const long end = min(rows, (piece + 1) * part_size);
#ifdef VECTORS
  if (begin + COLUMNS_EACH <= n) {
    __global MEM_TYPE(T) *from = AT(MEM_TYPE(T), in) + block * rows * n + begin;
    V sums[COLUMNS_EACH / 16];
#pragma unroll
    for (int j = 0; j < COLUMNS_EACH / 16; ++j) sums[j] = (V)(JOIN(start_, REDUCTION));
    for (long r = piece * part_size; r < end; ++r)
#pragma unroll
      for (int j = 0; j < COLUMNS_EACH / 16; ++j) {
        const V value = LIFTED(VECTOR_AS(X, LOADS(T, from + r * n + j * 16)));
        sums[j] = JOIN(join_, REDUCTION)(value, sums[j]);
      }
    for (int j = 0; j < COLUMNS_EACH / 16; ++j) {
      XT values[16];
      vstore16(sums[j], 0, values);
      for (int e = 0; e < 16; ++e) STORE(OUT, AT(MEM_TYPE(OUT), out) + get_global_id(1) * n + begin + j * 16 + e, CONVERT(OUT, FINISHED(values[e])));
    }
    return;
  }
#endif
  for (long i = begin; i < min(n, begin + COLUMNS_EACH); ++i) {
    __global MEM_TYPE(T) *from = AT(MEM_TYPE(T), in) + block * rows * n + i;
    XT sum = JOIN(start_, REDUCTION);
    READ_AHEAD
    for (long r = piece * part_size; r < end; ++r) {
      const XT value = LIFTED(CONVERT(X, LOAD(T, from + r * n)));
      sum = JOIN(join_, REDUCTION)(value, sum);
    }
    STORE(OUT, AT(MEM_TYPE(OUT), out) + get_global_id(1) * n + i, CONVERT(OUT, FINISHED(sum)));
  }
}
#endif

#ifdef REAL
#define ELEMENT(w, i) GET##w(in, i)
#define POWER(w, i) exp(GET##w(in, i) - top)
ROW softmax(MEM(out), MEM(in), long n) {
  START;
  XT top, sum;
  ROW_REDUCE(top, 0L, n, LARGER, -INFINITY, ELEMENT)
#ifdef SAFE  // a row of nothing but -infinity becomes one of zeros
  if (top == -INFINITY) top = 0;
#endif
  ROW_SUM(sum, POWER)
#ifdef SAFE
  if (sum == 0) sum = 1;
#endif
#define SHARE(w, i) (POWER(w, i) / sum)
  ROW_PUT(SHARE)
}

ROW log_softmax(MEM(out), MEM(in), long n) {
  START;
  XT top, sum;
  ROW_REDUCE(top, 0L, n, LARGER, -INFINITY, ELEMENT)
  ROW_SUM(sum, POWER)
  const XT shift = top + log(sum);
#define SHIFTED(w, i) (GET##w(in, i) - shift)
  ROW_PUT(SHIFTED)
}

// grad: of the result; in: the result.
ROW softmax_backward(MEM(out), MEM(grad), MEM(in), long n) {
  START;
  XT sum;
#define WEIGHED(w, i) (GET##w(grad, i) * GET##w(in, i))
  ROW_SUM(sum, WEIGHED)
#define OFF_MEAN(w, i) ((GET##w(grad, i) - sum) * GET##w(in, i))
  ROW_PUT(OFF_MEAN)
}

ROW log_softmax_backward(MEM(out), MEM(grad), MEM(in), long n) {
  START;
  XT sum;
#define GRADIENT(w, i) GET##w(grad, i)
  ROW_SUM(sum, GRADIENT)
#define OFF_SHARE(w, i) (GET##w(grad, i) - exp(GET##w(in, i)) * sum)
  ROW_PUT(OFF_SHARE)
}

// Layer norm: mean and rstd a row, in the type of sums; weight and bias where they are given. -DGROUPED: group norm, rows are the groups of each image, and
// weight and bias belong to channels of `places` elements.
#ifdef GROUPED
#define GROUPS , long groups, long places
#define PARAMETER(i) (row % groups * (n / places) + (i) / places)
#else
#define GROUPS
#define PARAMETER(i) (i)
#endif
#define PARAMETER1(name, i) LOAD(T, AT(MEM_TYPE(T), name) + PARAMETER(i))
#define PARAMETER16(name, i) LOADS(T, AT(MEM_TYPE(T), name) + (i))
ROW layer_norm(MEM(out), MEM(mean), MEM(rstd), MEM(in), MEM(weight), MEM(bias), int weighted, int biased, long n, XT eps GROUPS) {
  START;
  XT sum, square;
#define VALUE(w, i) GET##w(in, i)
  ROW_SUM(sum, VALUE)
  const XT middle = sum / n;
#define SQUARE(w, i) ((GET##w(in, i) - middle) * (GET##w(in, i) - middle))
  ROW_SUM(square, SQUARE)
  const XT scale = 1 / sqrt(square / n + eps);
#define NORMED(w, i)                                                                       \
  ((GET##w(in, i) - middle) * scale * (weighted ? PARAMETER##w(weight, i) : CONSTANT##w(1)) + \
   (biased ? PARAMETER##w(bias, i) : CONSTANT##w(0)))
  ROW_PUT(NORMED)
  if (lane == 0) {
    AT(XT, mean)[row] = middle;
    AT(XT, rstd)[row] = scale;
  }
}

ROW layer_norm_backward(MEM(out), MEM(grad), MEM(in), MEM(mean), MEM(rstd), MEM(weight), int weighted, long n GROUPS) {
  START;
  const XT middle = AT(XT, mean)[row], scale = AT(XT, rstd)[row];
  XT sum, product;
#define OF_NORMED(w, i) (GET##w(grad, i) * (weighted ? PARAMETER##w(weight, i) : CONSTANT##w(1)))
  ROW_SUM(sum, OF_NORMED)
#define WITH_NORMED(w, i) (OF_NORMED(w, i) * (GET##w(in, i) - middle) * scale)
  ROW_SUM(product, WITH_NORMED)
#define OF_INPUT(w, i) (scale * (OF_NORMED(w, i) - sum / n - (GET##w(in, i) - middle) * scale * product / n))
  ROW_PUT(OF_INPUT)
}

#ifdef GROUPED
// Gradients of weight and bias: a work group a channel. images of `channels` channels in rows of groups.
ROW group_norm_parameters(MEM(weight), MEM(bias), MEM(grad), MEM(in), MEM(mean), MEM(rstd), int weighted, int biased, long images, long channels,
                          long groups, long places) {
  __local XT part[LANES];
  const int lane = get_local_id(0);
  const long channel = get_group_id(0);
  XT for_weight = 0, for_bias = 0;
  for (long i = lane; i < images * places; i += LANES) {
    const long image = i / places, group = image * groups + channel / (channels / groups), at = (image * channels + channel) * places + i % places;
    const XT g = LOAD(T, AT(MEM_TYPE(T), grad) + at);
    for_weight += g * (LOAD(T, AT(MEM_TYPE(T), in) + at) - AT(XT, mean)[group]) * AT(XT, rstd)[group];
    for_bias += g;
  }
  REDUCE(for_weight, ADD);
  REDUCE(for_bias, ADD);
  if (lane > 0) return;
  if (weighted) STORE(T, AT(MEM_TYPE(T), weight) + channel, for_weight);
  if (biased) STORE(T, AT(MEM_TYPE(T), bias) + channel, for_bias);
}
#endif

// Gradients of weight and bias: a work item a column, or on a GPU the 16 items of a group that have the column, each with every 16th row.
#ifdef GPU
#define COLUMNS 16
__kernel __attribute__((reqd_work_group_size(COLUMNS, 16, 1))) void
#else
__kernel void
#endif
layer_norm_parameters(MEM(weight), MEM(bias), MEM(grad), MEM(in), MEM(mean), MEM(rstd), int weighted, int biased, long rows, long n) {
#ifdef VECTORS
  for (long i = get_global_id(0) * 16; i < min(n, (long)get_global_id(0) * 16 + 16); ++i) {
    if (i % 16 == 0 && i + 16 <= n) {
      V for_weight = (V)(0), for_bias = (V)(0);
      for (long row = 0; row < rows; ++row) {
        const V g = GET16(grad, i);
        for_weight += g * (GET16(in, i) - AT(XT, mean)[row]) * AT(XT, rstd)[row];
        for_bias += g;
      }
      if (weighted) STORES(T, AT(MEM_TYPE(T), weight) + i, for_weight);
      if (biased) STORES(T, AT(MEM_TYPE(T), bias) + i, for_bias);
      return;
    }
    XT for_weight = 0, for_bias = 0;
    for (long row = 0; row < rows; ++row) {
      const XT g = GET(grad, i);
      for_weight += g * (GET(in, i) - AT(XT, mean)[row]) * AT(XT, rstd)[row];
      for_bias += g;
    }
    if (weighted) STORE(T, AT(MEM_TYPE(T), weight) + i, for_weight);
    if (biased) STORE(T, AT(MEM_TYPE(T), bias) + i, for_bias);
  }
#else
  const long i = get_global_id(0);
  XT for_weight = 0, for_bias = 0;
  for (long row = get_global_id(1); i < n && row < rows; row += get_global_size(1)) {
    const XT g = GET(grad, i);
    for_weight += g * (GET(in, i) - AT(XT, mean)[row]) * AT(XT, rstd)[row];
    for_bias += g;
  }
#ifdef GPU
  __local XT weights[16 * COLUMNS], biases[16 * COLUMNS];
  const int x = get_local_id(0), y = get_local_id(1);
  weights[y * COLUMNS + x] = for_weight;
  biases[y * COLUMNS + x] = for_bias;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (y > 0) return;
  for (int r = 1; r < 16; ++r) {
    for_weight += weights[r * COLUMNS + x];
    for_bias += biases[r * COLUMNS + x];
  }
#endif
  if (i >= n) return;
  if (weighted) STORE(T, AT(MEM_TYPE(T), weight) + i, for_weight);
  if (biased) STORE(T, AT(MEM_TYPE(T), bias) + i, for_bias);
#endif
}
#endif
