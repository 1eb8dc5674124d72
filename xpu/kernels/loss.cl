// Negative log likelihood over [N, C, S] and targets [N, S]. -DT= -DX=.
#define LANES 256
#define XT TYPE(X)
#define GET(name, i) CONVERT(X, LOAD(T, AT(MEM_TYPE(T), name) + (i)))
#define PUT(name, i, v) STORE(T, AT(MEM_TYPE(T), name) + (i), v)

typedef struct {
  long all, classes, inner, ignored;  // all: N S
} Shape;
// The class of target i, or -1: nothing to count.
inline long class_of(const Shape *s, __global const long *target, long i, __global char *mark_base, ulong mark_offset) {
  const long label = target[i];
  if (label == s->ignored) return -1;
  if (label >= 0 && label < s->classes) return label;
  MARK(mark);
  return -1;
}
#define CLASS class_of(&s, AT(long, target), i, mark_base, mark_offset)
#define PLACE (((i / s.inner) * s.classes + label) * s.inner + i % s.inner)
#define WEIGHT (weighted ? GET(weight, label) : (XT)1)

__kernel void each_loss(MEM(out), MEM(in), MEM(target), MEM(weight), MEM(mark), int weighted, Shape s) {
  const long i = get_global_id(0);
  if (i >= s.all) return;
  const long label = CLASS;
  PUT(out, i, label < 0 ? 0 : -GET(in, PLACE) * WEIGHT);
}

// One work group: their sum or mean, and the sum of weights.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void whole_loss(MEM(out), MEM(total), MEM(in), MEM(target), MEM(weight), MEM(mark),
                                                                            int weighted, int mean, Shape s) {
  __local XT part[LANES], weights[LANES];
  const int lane = get_local_id(0);
  XT sum = 0, count = 0;
  for (long i = lane; i < s.all; i += LANES) {
    const long label = CLASS;
    if (label < 0) continue;
    sum -= GET(in, PLACE) * WEIGHT;
    count += WEIGHT;
  }
  part[lane] = sum;
  weights[lane] = count;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {
    if (lane < half_) {
      part[lane] += part[lane + half_];
      weights[lane] += weights[lane + half_];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (lane == 0) {
    PUT(out, 0, mean ? part[0] / weights[0] : part[0]);
    PUT(total, 0, weights[0]);
  }
}

// reduction: 0 none, 1 mean, 2 sum. `out` holds zeros.
__kernel void loss_gradient(MEM(out), MEM(grad), MEM(total), MEM(target), MEM(weight), MEM(mark), int weighted, int reduction, Shape s) {
  const long i = get_global_id(0);
  if (i >= s.all) return;
  const long label = CLASS;
  if (label < 0) return;
  XT value = -GET(grad, reduction == 0 ? i : 0) * WEIGHT;
  if (reduction == 1) value /= GET(total, 0);
  PUT(out, PLACE, value);
}
