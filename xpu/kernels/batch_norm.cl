// Batch norm over [N, C, S]. -DT= type of images, -DP= of weights and running statistics, -DX= of sums; -DINDEX= counts elements.
#define LANES 256
#define XT TYPE(X)
#define GET(name, i) CONVERT(X, LOAD(T, AT(MEM_TYPE(T), name) + (i)))
#define PARAMETER(name, i) CONVERT(X, LOAD(P, AT(MEM_TYPE(P), name) + (i)))
#define GROUP __kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void
#define SUM_OF_LANES(value)                                  \
  part[lane] = value;                                        \
  barrier(CLK_LOCAL_MEM_FENCE);                              \
  for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {       \
    if (lane < half_) part[lane] += part[lane + half_];      \
    barrier(CLK_LOCAL_MEM_FENCE);                            \
  }                                                          \
  value = part[0];                                           \
  barrier(CLK_LOCAL_MEM_FENCE)

typedef struct {
  long channels, inner, each, all;  // inner: S; each: elements of a channel that a work group takes; all: N S
} Shape;
// The element j of a channel.
inline long place(const Shape *s, long channel, INDEX j) {
  const INDEX inner = (INDEX)s->inner;
  const INDEX n = j / inner;
  return ((long)n * s->channels + channel) * s->inner + (j - n * inner);
}
#define RANGE                                                        \
  __local XT part[LANES];                                            \
  const int lane = get_local_id(0);                                  \
  const long channel = get_group_id(0), piece = get_group_id(1);     \
  const INDEX first = (INDEX)(piece * s.each), end = (INDEX)min((piece + 1) * s.each, s.all)

// A work group a piece of a channel: its mean and its sum of squares off the mean.
GROUP moments(MEM(means), MEM(squares), MEM(in), Shape s) {
  RANGE;
  XT sum = 0;
  for (INDEX j = first + lane; j < end; j += LANES) sum += GET(in, place(&s, channel, j));
  SUM_OF_LANES(sum);
  const XT mean = sum / (end - first);
  XT square = 0;
  for (INDEX j = first + lane; j < end; j += LANES) {
    const XT off = GET(in, place(&s, channel, j)) - mean;
    square += off * off;
  }
  SUM_OF_LANES(square);
  if (lane == 0) {
    AT(XT, means)[channel * get_num_groups(1) + piece] = mean;
    AT(XT, squares)[channel * get_num_groups(1) + piece] = square;
  }
}

// The pieces' moments joined (Chan, Golub and LeVeque, 1979), and the running statistics moved; a work item a channel.
__kernel void join_moments(MEM(mean), MEM(rstd), MEM(running_mean), MEM(running_var), MEM(means), MEM(squares), int running, Shape s,
                           long pieces, XT momentum, XT eps) {
  const long channel = get_global_id(0);
  if (channel >= s.channels) return;
  XT n = 0, middle = 0, square = 0;
  for (long i = 0; i < pieces; ++i) {
    const XT m = (XT)(min((i + 1) * s.each, s.all) - i * s.each);
    const XT off = AT(XT, means)[channel * pieces + i] - middle;
    middle += off * m / (n + m);
    square += AT(XT, squares)[channel * pieces + i] + off * off * n * m / (n + m);
    n += m;
  }
  STORE(P, AT(MEM_TYPE(P), mean) + channel, middle);
  STORE(P, AT(MEM_TYPE(P), rstd) + channel, 1 / sqrt(square / n + eps));
  if (running & 1) STORE(P, AT(MEM_TYPE(P), running_mean) + channel, momentum * middle + (1 - momentum) * PARAMETER(running_mean, channel));
  if (running & 2)
    STORE(P, AT(MEM_TYPE(P), running_var) + channel, momentum * square / (n - 1) + (1 - momentum) * PARAMETER(running_var, channel));
}

// variance: rstd is a variance, as running statistics have it.
#define SCALE(channel) (variance ? 1 / sqrt(PARAMETER(rstd, channel) + eps) : PARAMETER(rstd, channel))

__kernel void apply(MEM(out), MEM(in), MEM(mean), MEM(rstd), MEM(weight), MEM(bias), int weighted, int biased, int variance, Shape s,
                        XT eps, long n) {
  XT value[EACH];
#define READ(e, i) value[e] = GET(in, i)
#define WRITE(e, i)                                                            \
  const INDEX channel = (INDEX)(i) / (INDEX)s.inner % (INDEX)s.channels;       \
  value[e] = (value[e] - PARAMETER(mean, channel)) * SCALE(channel);           \
  if (weighted) value[e] *= PARAMETER(weight, channel);                        \
  if (biased) value[e] += PARAMETER(bias, channel);                            \
  STORE(T, AT(MEM_TYPE(T), out) + (i), value[e])
  LINEAR(n, READ, WRITE)
#undef READ
#undef WRITE
}

#ifndef GPU
// The same for devices whose work items are a CPU's: an item takes PLANE_PART elements of a plane, in vectors.
#define PLANE_PART 4096
__kernel void apply_planes(MEM(out), MEM(in), MEM(mean), MEM(rstd), MEM(weight), MEM(bias), int weighted, int biased, int variance, Shape s,
                           XT eps, long n) {
  const long plane = get_global_id(1), inner = s.inner, end = min(inner, ((long)get_global_id(0) + 1) * PLANE_PART);
  if (plane * inner >= n) return;
  const long channel = plane % s.channels;
  const XT middle = PARAMETER(mean, channel), scale = SCALE(channel) * (weighted ? PARAMETER(weight, channel) : 1),
           shift = biased ? PARAMETER(bias, channel) : 0;
  __global MEM_TYPE(T) *from = AT(MEM_TYPE(T), in) + plane * inner, *to = AT(MEM_TYPE(T), out) + plane * inner;
  long i = (long)get_global_id(0) * PLANE_PART;
  for (; i + 16 <= end; i += 16) STORES(T, to + i, (LOADS(T, from + i) - middle) * scale + shift);
  for (; i < end; ++i) STORE(T, to + i, (LOAD(T, from + i) - middle) * scale + shift);
}
#endif

// A piece's sums of the gradient and of its product with the image off its mean.
GROUP gradient_sums(MEM(sums), MEM(products), MEM(grad), MEM(in), MEM(mean), Shape s) {
  RANGE;
  const XT middle = PARAMETER(mean, channel);
  XT sum = 0, product = 0;
  for (INDEX j = first + lane; j < end; j += LANES) {
    const long at = place(&s, channel, j);
    const XT g = GET(grad, at);
    sum += g;
    product += g * (GET(in, at) - middle);
  }
  SUM_OF_LANES(sum);
  SUM_OF_LANES(product);
  if (lane == 0) {
    AT(XT, sums)[channel * get_num_groups(1) + piece] = sum;
    AT(XT, products)[channel * get_num_groups(1) + piece] = product;
  }
}
// A channel's: where the first piece's were; gradients of weight and bias.
__kernel void join_gradients(MEM(weight), MEM(bias), MEM(sums), MEM(products), MEM(rstd), int weighted, int biased, int variance, Shape s,
                             long pieces, XT eps) {
  const long channel = get_global_id(0);
  if (channel >= s.channels) return;
  XT sum = 0, product = 0;
  for (long i = 0; i < pieces; ++i) {
    sum += AT(XT, sums)[channel * pieces + i];
    product += AT(XT, products)[channel * pieces + i];
  }
  AT(XT, sums)[channel * pieces] = sum;
  AT(XT, products)[channel * pieces] = product;
  if (weighted) STORE(P, AT(MEM_TYPE(P), weight) + channel, product * SCALE(channel));
  if (biased) STORE(P, AT(MEM_TYPE(P), bias) + channel, sum);
}
__kernel void gradient(MEM(out), MEM(grad), MEM(in), MEM(mean), MEM(rstd), MEM(weight), MEM(sums), MEM(products), int weighted, int training,
                       Shape s, long pieces, XT eps, long n) {
  const int variance = !training;
  XT value[EACH], image[EACH];
#define READ(e, i)          \
  value[e] = GET(grad, i);  \
  image[e] = training ? GET(in, i) : 0
#define WRITE(e, i)                                                                                                          \
  const INDEX channel = (INDEX)(i) / (INDEX)s.inner % (INDEX)s.channels;                                                     \
  const XT scale = SCALE(channel);                                                                                           \
  if (training) {                                                                                                            \
    const XT off = image[e] - PARAMETER(mean, channel);                                                                      \
    value[e] -= (AT(XT, sums)[channel * pieces] + off * scale * scale * AT(XT, products)[channel * pieces]) / s.all;         \
  }                                                                                                                          \
  value[e] *= scale;                                                                                                         \
  if (weighted) value[e] *= PARAMETER(weight, channel);                                                                      \
  STORE(T, AT(MEM_TYPE(T), out) + (i), value[e])
  LINEAR(n, READ, WRITE)
}
