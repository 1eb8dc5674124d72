// Pools of images [planes, H, W]. A work item an element of what it makes: gradients are gathered, not scattered, so sums keep their order.
#define XT TYPE(X)
#define GET(name, i) CONVERT(X, LOAD(T, AT(MEM_TYPE(T), name) + (i)))
#define PUT(name, i, v) STORE(T, AT(MEM_TYPE(T), name) + (i), v)

typedef struct {
  int in[2], out[2], extent[2], stride[2], padding[2], dilation[2];
  int count_padding, divisor;  // of averages; divisor 0: the window's size
} Pool;

#define OUTPUT                                                                        \
  const long i = get_global_id(0);                                                    \
  if (i >= n) return;                                                                 \
  const INDEX row_ = (INDEX)i / (INDEX)p.out[1], plane = row_ / (INDEX)p.out[0];      \
  const int y = row_ % (INDEX)p.out[0], x = (INDEX)i % (INDEX)p.out[1];               \
  const long base = (long)plane * p.in[0] * p.in[1]
#define INPUT                                                                         \
  const long i = get_global_id(0);                                                    \
  if (i >= n) return;                                                                 \
  const INDEX row_ = (INDEX)i / (INDEX)p.in[1], plane = row_ / (INDEX)p.in[0];        \
  const int y = row_ % (INDEX)p.in[0], x = (INDEX)i % (INDEX)p.in[1];                 \
  const long base = (long)plane * p.out[0] * p.out[1]

__kernel void max_pool(MEM(out), MEM(indices), MEM(in), Pool p, long n) {
  OUTPUT;
  int top = y * p.stride[0] - p.padding[0], left = x * p.stride[1] - p.padding[1];
  const int bottom = min(top + (p.extent[0] - 1) * p.dilation[0] + 1, p.in[0]), right = min(left + (p.extent[1] - 1) * p.dilation[1] + 1, p.in[1]);
  while (top < 0) top += p.dilation[0];
  while (left < 0) left += p.dilation[1];
  XT best = -INFINITY;
  int where = top * p.in[1] + left;
  for (int h = top; h < bottom; h += p.dilation[0])
    for (int w = left; w < right; w += p.dilation[1]) {
      const XT value = GET(in, base + h * p.in[1] + w);
      if (value > best || value != value) {
        best = value;
        where = h * p.in[1] + w;
      }
    }
  PUT(out, i, best);
  AT(long, indices)[i] = where;
}

// The first and the one behind the last window that covers `at`.
inline int first_window(int at, int reach, int stride, int padding) { return at + padding < reach ? 0 : (at + padding - reach) / stride + 1; }
inline int last_window(int at, int stride, int padding, int windows) { return min((at + padding) / stride + 1, windows); }

__kernel void max_pool_backward(MEM(out), MEM(grad), MEM(indices), Pool p, long n) {
  INPUT;
  const int here = y * p.in[1] + x;
  const int top = first_window(y, (p.extent[0] - 1) * p.dilation[0] + 1, p.stride[0], p.padding[0]);
  const int left = first_window(x, (p.extent[1] - 1) * p.dilation[1] + 1, p.stride[1], p.padding[1]);
  const int bottom = last_window(y, p.stride[0], p.padding[0], p.out[0]), right = last_window(x, p.stride[1], p.padding[1], p.out[1]);
  XT sum = 0;
  for (int h = top; h < bottom; ++h)
    for (int w = left; w < right; ++w) {
      const long at = base + h * p.out[1] + w;
      if (AT(long, indices)[at] == here) sum += GET(grad, at);
    }
  PUT(out, i, sum);
}

// What an average divides by: padding counts as far as one padding beyond the image.
inline XT size_of_window(const Pool *p, int h, int w) {
  if (p->divisor != 0) return p->divisor;
  const int top = h * p->stride[0] - p->padding[0], left = w * p->stride[1] - p->padding[1];
  const int bottom = min(top + p->extent[0], p->in[0] + p->padding[0]), right = min(left + p->extent[1], p->in[1] + p->padding[1]);
  if (p->count_padding) return (bottom - top) * (right - left);
  return (min(bottom, p->in[0]) - max(top, 0)) * (min(right, p->in[1]) - max(left, 0));
}

__kernel void average_pool(MEM(out), MEM(in), Pool p, long n) {
  OUTPUT;
  const int top = y * p.stride[0] - p.padding[0], left = x * p.stride[1] - p.padding[1];
  XT sum = 0;
  for (int h = max(top, 0); h < min(top + p.extent[0], p.in[0]); ++h)
    for (int w = max(left, 0); w < min(left + p.extent[1], p.in[1]); ++w) sum += GET(in, base + h * p.in[1] + w);
  PUT(out, i, sum / size_of_window(&p, y, x));
}

__kernel void average_pool_backward(MEM(out), MEM(grad), Pool p, long n) {
  INPUT;
  const int top = first_window(y, p.extent[0], p.stride[0], p.padding[0]), left = first_window(x, p.extent[1], p.stride[1], p.padding[1]);
  const int bottom = last_window(y, p.stride[0], p.padding[0], p.out[0]), right = last_window(x, p.stride[1], p.padding[1], p.out[1]);
  XT sum = 0;
  for (int h = top; h < bottom; ++h)
    for (int w = left; w < right; ++w) sum += GET(grad, base + h * p.out[1] + w) / size_of_window(&p, h, w);
  PUT(out, i, sum);
}

// Adaptive: the window of output o goes from floor(o * in / out) to ceil((o + 1) * in / out).
inline int starts(int o, int in, int out) { return (int)((long)o * in / out); }
inline int ends(int o, int in, int out) { return (int)(((long)(o + 1) * in + out - 1) / out); }

__kernel void adaptive_average(MEM(out), MEM(in), Pool p, long n) {
  OUTPUT;
  const int top = starts(y, p.in[0], p.out[0]), bottom = ends(y, p.in[0], p.out[0]);
  const int left = starts(x, p.in[1], p.out[1]), right = ends(x, p.in[1], p.out[1]);
  XT sum = 0;
  for (int h = top; h < bottom; ++h)
    for (int w = left; w < right; ++w) sum += GET(in, base + h * p.in[1] + w);
  PUT(out, i, sum / ((bottom - top) * (right - left)));
}

__kernel void adaptive_average_backward(MEM(out), MEM(grad), Pool p, long n) {
  INPUT;
  XT sum = 0;
  for (int h = starts(y, p.out[0], p.in[0]); h < ends(y, p.out[0], p.in[0]); ++h) {
    const int height = ends(h, p.in[0], p.out[0]) - starts(h, p.in[0], p.out[0]);
    for (int w = starts(x, p.out[1], p.in[1]); w < ends(x, p.out[1], p.in[1]); ++w)
      sum += GET(grad, base + h * p.out[1] + w) / (height * (ends(w, p.in[1], p.out[1]) - starts(w, p.in[1], p.out[1])));
  }
  PUT(out, i, sum);
}
