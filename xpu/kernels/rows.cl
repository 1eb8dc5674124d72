// Work over rows of n elements that lie side by side: a work group a row. -DT= type of elements, -DX= type of sums, -DOUT= of a sum's result.
// -DLANES=: items of a work group; more of them for long rows on devices whose items are lanes.
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
#define LARGEST(a, b) (((a) > (b) || (a) != (a)) ? (a) : (b))
#define SMALLEST(a, b) (((a) < (b) || (a) != (a)) ? (a) : (b))
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
  XT sum = JOIN(start_, REDUCTION);
  READ_AHEAD
  for (long i = first + lane; i < end; i += LANES) {
    const XT value = LIFTED(GET(in, i));
    sum = JOIN(join_, REDUCTION)(sum, value);
  }
  REDUCE(sum, JOIN(join_, REDUCTION));
  if (lane == 0) STORE(OUT, AT(MEM_TYPE(OUT), out) + get_group_id(0), CONVERT(OUT, FINISHED(sum)));
}

// out[block, piece, i] of in[block, r, i] for the piece's r; a work item a result, neighbours read side by side.
__kernel void column_reduce(MEM(out), MEM(in), long rows, long n, long part_size, long pieces, XT scale) {
  const long i = get_global_id(0), block = get_global_id(1) / pieces, piece = get_global_id(1) % pieces;
  if (i >= n) return;
  __global MEM_TYPE(T) *from = AT(MEM_TYPE(T), in) + block * rows * n + i;
  const long end = min(rows, (piece + 1) * part_size);
  XT sum = JOIN(start_, REDUCTION);
  READ_AHEAD
  for (long r = piece * part_size; r < end; ++r) {
    const XT value = LIFTED(CONVERT(X, LOAD(T, from + r * n)));
    sum = JOIN(join_, REDUCTION)(sum, value);
  }
  STORE(OUT, AT(MEM_TYPE(OUT), out) + get_global_id(1) * n + i, CONVERT(OUT, FINISHED(sum)));
}
#endif

#ifdef REAL
ROW softmax(MEM(out), MEM(in), long n) {
  START;
  XT top = -INFINITY;
  for (long i = lane; i < n; i += LANES) top = LARGER(GET(in, i), top);
  REDUCE(top, LARGER);
  XT sum = 0;
  for (long i = lane; i < n; i += LANES) sum += exp(GET(in, i) - top);
  REDUCE(sum, ADD);
  for (long i = lane; i < n; i += LANES) STORE(T, OF(out) + i, exp(GET(in, i) - top) / sum);
}

ROW log_softmax(MEM(out), MEM(in), long n) {
  START;
  XT top = -INFINITY;
  for (long i = lane; i < n; i += LANES) top = LARGER(GET(in, i), top);
  REDUCE(top, LARGER);
  XT sum = 0;
  for (long i = lane; i < n; i += LANES) sum += exp(GET(in, i) - top);
  REDUCE(sum, ADD);
  const XT shift = top + log(sum);
  for (long i = lane; i < n; i += LANES) STORE(T, OF(out) + i, GET(in, i) - shift);
}

// grad: of the result; in: the result.
ROW softmax_backward(MEM(out), MEM(grad), MEM(in), long n) {
  START;
  XT sum = 0;
  for (long i = lane; i < n; i += LANES) sum += GET(grad, i) * GET(in, i);
  REDUCE(sum, ADD);
  for (long i = lane; i < n; i += LANES) STORE(T, OF(out) + i, (GET(grad, i) - sum) * GET(in, i));
}

ROW log_softmax_backward(MEM(out), MEM(grad), MEM(in), long n) {
  START;
  XT sum = 0;
  for (long i = lane; i < n; i += LANES) sum += GET(grad, i);
  REDUCE(sum, ADD);
  for (long i = lane; i < n; i += LANES) STORE(T, OF(out) + i, GET(grad, i) - exp(GET(in, i)) * sum);
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
ROW layer_norm(MEM(out), MEM(mean), MEM(rstd), MEM(in), MEM(weight), MEM(bias), int weighted, int biased, long n, XT eps GROUPS) {
  START;
  XT sum = 0;
  for (long i = lane; i < n; i += LANES) sum += GET(in, i);
  REDUCE(sum, ADD);
  const XT middle = sum / n;
  XT square = 0;
  for (long i = lane; i < n; i += LANES) {
    const XT off = GET(in, i) - middle;
    square += off * off;
  }
  REDUCE(square, ADD);
  const XT scale = 1 / sqrt(square / n + eps);
  for (long i = lane; i < n; i += LANES) {
    XT value = (GET(in, i) - middle) * scale;
    if (weighted) value *= LOAD(T, AT(MEM_TYPE(T), weight) + PARAMETER(i));
    if (biased) value += LOAD(T, AT(MEM_TYPE(T), bias) + PARAMETER(i));
    STORE(T, OF(out) + i, value);
  }
  if (lane == 0) {
    AT(XT, mean)[row] = middle;
    AT(XT, rstd)[row] = scale;
  }
}

ROW layer_norm_backward(MEM(out), MEM(grad), MEM(in), MEM(mean), MEM(rstd), MEM(weight), int weighted, long n GROUPS) {
  START;
  const XT middle = AT(XT, mean)[row], scale = AT(XT, rstd)[row];
  XT sum = 0, product = 0;
  for (long i = lane; i < n; i += LANES) {
    const XT g = GET(grad, i) * (weighted ? (XT)LOAD(T, AT(MEM_TYPE(T), weight) + PARAMETER(i)) : (XT)1);
    sum += g;
    product += g * (GET(in, i) - middle) * scale;
  }
  REDUCE(sum, ADD);
  REDUCE(product, ADD);
  for (long i = lane; i < n; i += LANES) {
    const XT g = GET(grad, i) * (weighted ? (XT)LOAD(T, AT(MEM_TYPE(T), weight) + PARAMETER(i)) : (XT)1);
    STORE(T, OF(out) + i, scale * (g - sum / n - (GET(in, i) - middle) * scale * product / n));
  }
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
}
#endif
