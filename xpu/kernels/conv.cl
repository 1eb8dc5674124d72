// Convolution over up to three dimensions, missing leading ones of size 1; images lie channel by channel (N C D H W). Through columns and a
// product of matrices (im2col, col2im), or directly, for groups. -DRAW=: an integer of the element's size; -DT= -DX= as everywhere.
typedef struct {
  int channels, outputs, groups;
  int in[3], out[3], extent[3], stride[3], padding[3], dilation[3];
} Conv;

inline int volume(const int *sizes) { return sizes[0] * sizes[1] * sizes[2]; }
inline void spread(int at, const int *sizes, int *out) {
  out[2] = at % sizes[2];
  at /= sizes[2];
  out[1] = at % sizes[1];
  out[0] = at / sizes[1];
}
inline int joined(const int *at, const int *sizes) { return (at[0] * sizes[1] + at[1]) * sizes[2] + at[2]; }
// Where the element k of the window of output `to` lies in the image; false: in the padding.
inline bool source_of(const Conv *c, const int *to, const int *k, int *from) {
  bool inside = true;
  for (int d = 0; d < 3; ++d) {
    from[d] = to[d] * c->stride[d] - c->padding[d] + k[d] * c->dilation[d];
    inside = inside && from[d] >= 0 && from[d] < c->in[d];
  }
  return inside;
}
// The output whose window has the image's `from` as its element k; false: there is none.
inline bool target_of(const Conv *c, const int *from, const int *k, int *to) {
  bool inside = true;
  for (int d = 0; d < 3; ++d) {
    const int at = from[d] + c->padding[d] - k[d] * c->dilation[d];
    to[d] = at / c->stride[d];
    inside = inside && at >= 0 && to[d] * c->stride[d] == at && to[d] < c->out[d];
  }
  return inside;
}

#ifdef RAW
// columns[n, channel and window, output] = the image's element there.
__kernel void im2col(MEM(columns), MEM(image), Conv c) {
  const int l = get_global_id(0), row = get_global_id(1);
  const long n = get_global_id(2);
  const int positions = volume(c.out), window = volume(c.extent);
  if (l >= positions || row >= c.channels * window) return;
  int to[3], k[3], from[3];
  spread(l, c.out, to);
  spread(row % window, c.extent, k);
  RAW value = 0;
  if (source_of(&c, to, k, from))
    value = AT(RAW, image)[(n * c.channels + row / window) * volume(c.in) + joined(from, c.in)];
  AT(RAW, columns)[(n * c.channels * window + row) * positions + l] = value;
}
#ifndef GPU
// The same for devices whose work items are a CPU's: an item takes a line of outputs, whose elements lie side by side in the image, too.
__kernel void im2col_lines(MEM(columns), MEM(image), Conv c) {
  const int line = get_global_id(0), row = get_global_id(1);
  const long n = get_global_id(2);
  const int window = volume(c.extent), positions = volume(c.out), width = c.out[2];
  if (line >= c.out[0] * c.out[1] || row >= c.channels * window) return;
  int k[3];
  spread(row % window, c.extent, k);
  const int z = line / c.out[1] * c.stride[0] - c.padding[0] + k[0] * c.dilation[0];
  const int y = line % c.out[1] * c.stride[1] - c.padding[1] + k[1] * c.dilation[1], x = k[2] * c.dilation[2] - c.padding[2], step = c.stride[2];
  __global RAW *to = AT(RAW, columns) + (n * c.channels * window + row) * positions + (long)line * width;
  if (z < 0 || z >= c.in[0] || y < 0 || y >= c.in[1]) {
    for (int l = 0; l < width; ++l) to[l] = 0;
    return;
  }
  // from[l * step] lies in the image for first <= l < end.
  __global const RAW *from = AT(const RAW, image) + (n * c.channels + row / window) * volume(c.in) + ((long)z * c.in[1] + y) * c.in[2] + x;
  const int first = min(x < 0 ? (-x + step - 1) / step : 0, width), end = max(first, min(width, x < c.in[2] ? (c.in[2] - x + step - 1) / step : 0));
  for (int l = 0; l < first; ++l) to[l] = 0;
  if (step == 1) {
    int l = first;
    for (; l + 16 <= end; l += 16) vstore16(vload16(0, from + l), 0, to + l);
    for (; l < end; ++l) to[l] = from[l];
  } else {
    for (int l = first; l < end; ++l) to[l] = from[l * step];
  }
  for (int l = end; l < width; ++l) to[l] = 0;
}
#endif
#else
#define XT TYPE(X)
#define GET(name, i) CONVERT(X, LOAD(T, AT(MEM_TYPE(T), name) + (i)))
#define PUT(name, i, v) STORE(T, AT(MEM_TYPE(T), name) + (i), v)

// image[n, channel, at] = sum of what im2col took from there.
__kernel void col2im(MEM(image), MEM(columns), Conv c) {
  const int at = get_global_id(0), channel = get_global_id(1);
  const long n = get_global_id(2);
  if (at >= volume(c.in) || channel >= c.channels) return;
  const int positions = volume(c.out), window = volume(c.extent);
  int from[3], k[3], to[3];
  spread(at, c.in, from);
  XT sum = 0;
  for (int w = 0; w < window; ++w) {
    spread(w, c.extent, k);
    if (target_of(&c, from, k, to)) sum += GET(columns, ((n * c.channels + channel) * window + w) * positions + joined(to, c.out));
  }
  PUT(image, (n * c.channels + channel) * volume(c.in) + at, sum);
}

__kernel void direct(MEM(out), MEM(image), MEM(weight), MEM(bias), int biased, Conv c) {
  const int l = get_global_id(0), o = get_global_id(1);
  const long n = get_global_id(2);
  if (l >= volume(c.out) || o >= c.outputs) return;
  const int each = c.channels / c.groups, window = volume(c.extent), first = o / (c.outputs / c.groups) * each;
  int to[3], k[3], from[3];
  spread(l, c.out, to);
  XT sum = biased ? GET(bias, o) : 0;
  for (int w = 0; w < window; ++w) {
    spread(w, c.extent, k);
    if (!source_of(&c, to, k, from)) continue;
    const int at = joined(from, c.in);
    for (int i = 0; i < each; ++i)
      sum += GET(image, (n * c.channels + first + i) * volume(c.in) + at) * GET(weight, ((long)o * each + i) * window + w);
  }
  PUT(out, (n * c.outputs + o) * volume(c.out) + l, sum);
}

// Gradient of the image.
__kernel void direct_image(MEM(image), MEM(grad), MEM(weight), Conv c) {
  const int at = get_global_id(0), channel = get_global_id(1);
  const long n = get_global_id(2);
  if (at >= volume(c.in) || channel >= c.channels) return;
  const int each = c.channels / c.groups, outputs = c.outputs / c.groups, window = volume(c.extent), first = channel / each * outputs;
  int from[3], k[3], to[3];
  spread(at, c.in, from);
  XT sum = 0;
  for (int w = 0; w < window; ++w) {
    spread(w, c.extent, k);
    if (!target_of(&c, from, k, to)) continue;
    const int l = joined(to, c.out);
    for (int o = first; o < first + outputs; ++o)
      sum += GET(grad, (n * c.outputs + o) * volume(c.out) + l) * GET(weight, ((long)o * each + channel % each) * window + w);
  }
  PUT(image, (n * c.channels + channel) * volume(c.in) + at, sum);
}

#define LANES 64
#define SUM_OF_LANES(value)                                                      \
  part[lane] = value;                                                            \
  barrier(CLK_LOCAL_MEM_FENCE);                                                  \
  for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {                           \
    if (lane < half_) part[lane] += part[lane + half_];                          \
    barrier(CLK_LOCAL_MEM_FENCE);                                                \
  }                                                                              \
  value = part[0]

// Gradient of the weights: a work group an element.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void direct_weight(MEM(weight), MEM(grad), MEM(image), Conv c, long batch) {
  __local XT part[LANES];
  const int lane = get_local_id(0), window = volume(c.extent), each = c.channels / c.groups, positions = volume(c.out);
  const long element = get_group_id(0);
  const int o = element / (each * window), channel = o / (c.outputs / c.groups) * each + (element / window) % each;
  int k[3], to[3], from[3];
  spread(element % window, c.extent, k);
  XT sum = 0;
  for (long i = lane; i < batch * positions; i += LANES) {
    const long n = i / positions;
    const int l = i % positions;
    spread(l, c.out, to);
    if (source_of(&c, to, k, from))
      sum += GET(grad, (n * c.outputs + o) * positions + l) * GET(image, (n * c.channels + channel) * volume(c.in) + joined(from, c.in));
  }
  SUM_OF_LANES(sum);
  if (lane == 0) PUT(weight, element, sum);
}

// Gradient of the bias: a work group an output channel.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void bias_gradient(MEM(bias), MEM(grad), int channels, int positions, long batch) {
  __local XT part[LANES];
  const int lane = get_local_id(0), channel = get_group_id(0);
  XT sum = 0;
  for (long i = lane; i < batch * positions; i += LANES)
    sum += GET(grad, (i / positions * channels + channel) * positions + i % positions);
  SUM_OF_LANES(sum);
  if (lane == 0) PUT(bias, channel, sum);
}
#endif
