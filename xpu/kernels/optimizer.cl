// One step of an optimizer for many parameters a launch. -DT= type of parameters and of what is kept for them, -DX= of numbers.
//   -DIN_TABLE   their addresses lie in a table (common.cl)
//   otherwise    up to eight parameters are arguments, one after the other: for devices that follow no addresses in memory. Each has work groups of
//                its own, whose items take EACH elements, a group's width apart.
// Lists: p parameters, g gradients, m, v, w what is kept for them, s counts of steps.
#define XT TYPE(X)
#ifdef IN_TABLE
#define LISTS TABLE
#define ENDS
#define TENSOR TABLE_ROW
#define ELEMENTS(READ, WRITE) TABLE_EACH(READ, WRITE)
#define PLACE_p 0
#define PLACE_g 1
#define PLACE_m 2
#define PLACE_v 3
#define PLACE_w 4
#define PLACE_s 5
#define PICK(n) ((__global char *)row_->address[PLACE_##n])
#else
#define LIST(n)                                                                                                                          \
  __global char *n##0_base, ulong n##0_offset, __global char *n##1_base, ulong n##1_offset, __global char *n##2_base, ulong n##2_offset, \
      __global char *n##3_base, ulong n##3_offset, __global char *n##4_base, ulong n##4_offset, __global char *n##5_base,                \
      ulong n##5_offset, __global char *n##6_base, ulong n##6_offset, __global char *n##7_base, ulong n##7_offset
#define LISTS LIST(p), LIST(g), LIST(m), LIST(v), LIST(w), LIST(s)
#define ONE_OF(n, k) (n##k##_base + n##k##_offset)
#define PICK(n)                                                                                      \
  (t < 4 ? (t < 2 ? (t == 0 ? ONE_OF(n, 0) : ONE_OF(n, 1)) : (t == 2 ? ONE_OF(n, 2) : ONE_OF(n, 3))) \
         : (t < 6 ? (t == 4 ? ONE_OF(n, 4) : ONE_OF(n, 5)) : (t == 6 ? ONE_OF(n, 6) : ONE_OF(n, 7))))
typedef struct {
  long groups[8];  // where each tensor's work groups end, all counted together
  long sizes[8];   // elements
} Ends;
#define ENDS , Ends ends
#define TENSOR                                                                            \
  int t = 0;                                                                              \
  long group_ = get_group_id(0);                                                          \
  if (group_ >= ends.groups[7]) return;                                                   \
  while (group_ >= ends.groups[t]) ++t;                                                   \
  if (t > 0) group_ -= ends.groups[t - 1];                                                \
  const long step_ = get_local_size(0), first_ = group_ * step_ * EACH + get_local_id(0)
#define ELEMENTS(READ, WRITE) EACH_FROM(first_, step_, ends.sizes[t], READ, WRITE)
#endif
#define AT_PICK(n) ((__global MEM_TYPE(T) *)PICK(n))
#define GET_ONE(p, i) CONVERT(X, LOAD(T, (p) + (i)))
#define PUT_ONE(p, i, v) STORE(T, (p) + (i), CONVERT(T, v))
// An item of a CPU takes its chunk in vectors of 16 elements, the last ones with what is missing as 0; XV: the type of elements of these kernels.
#if defined(IN_TABLE) && !defined(GPU)
typedef VECTOR(T) XV;
inline XV get_some(__global MEM_TYPE(T) *from, int many) {
  if (many == 16) return LOADS(T, from);
  XT values[16];
  for (int e = 0; e < 16; ++e) values[e] = e < many ? LOAD(T, from + e) : 0;
  return vload16(0, values);
}
inline void put_some(__global MEM_TYPE(T) *to, XV value, int many) {
  if (many == 16) {
    STORES(T, to, value);
    return;
  }
  XT values[16];
  vstore16(value, 0, values);
  for (int e = 0; e < many; ++e) STORE(T, to + e, values[e]);
}
#define GET(p, i) get_some((p) + (i), many_)
#define PUT(p, i, v) put_some((p) + (i), v, many_)
#define WIDE_ELEMENTS(READ, WRITE)                       \
  for (long i_ = begin_; i_ < end_; i_ += 16) {          \
    const int many_ = (int)min(end_ - i_, 16L);          \
    READ(0, i_);                                         \
    WRITE(0, i_);                                        \
  }
#define FINITE(v) all(isfinite(v))
#else
typedef XT XV;
#define GET GET_ONE
#define PUT PUT_ONE
#define WIDE_ELEMENTS ELEMENTS
#define FINITE(v) isfinite(v)
#endif

typedef struct {
  XT lr, weight_decay, decay, eps, log_beta1, log_beta2, beta2, rest1, rest2, momentum, dampening;  // rest: 1 - beta, decay: 1 - lr * weight_decay, which float would not have from them
  int decoupled, amsgrad, maximize, nesterov, first, scaled, guarded, numbered;
} Numbers;
#define NUMBER_AT(name) (*(__global float *)(name##_base + name##_offset))
#define SKIPPED (k.guarded && NUMBER_AT(found) == 1.0f)
// numbered: the host counts steps, and they are in the table.
#ifdef IN_TABLE
#define STEP_OF_TENSOR ((XT)(k.numbered ? as_float((uint)row_->number) : *(__global float *)PICK(s)))
#else
#define STEP_OF_TENSOR ((XT)(*(__global float *)PICK(s)))
#endif
#define TENSORS_OF_ALL __global MEM_TYPE(T) *parameter = AT_PICK(p), *gradient = AT_PICK(g)
#define READ_ALL(e, i)           \
  grad[e] = GET(gradient, i);    \
  value[e] = GET(parameter, i)
// Means of the gradient and of its square, which Adam and Lamb keep.
#define READ_MOMENTS(e, i)   \
  READ_ALL(e, i);            \
  first[e] = GET(mean, i);   \
  second[e] = GET(square, i)
#define MOVE_MOMENTS(e, i)                                       \
  first[e] += k.rest1 * (grad[e] - first[e]);                    \
  second[e] = k.beta2 * second[e] + k.rest2 * grad[e] * grad[e]; \
  PUT(mean, i, first[e]);                                        \
  PUT(square, i, second[e])
// Without decay nothing is added: 0 times an infinite parameter is none.
#define DECAY_GRADIENT(e) \
  if (k.weight_decay != 0) grad[e] += k.weight_decay * value[e]
// The gradient as the optimizer takes it; scaled ones are put back without their scale, as torch's fused kernels do.
#define PREPARE(e, i)                    \
  if (k.scaled) {                        \
    grad[e] /= (XT)NUMBER_AT(scale);     \
    PUT(gradient, i, grad[e]);           \
  }                                      \
  if (k.maximize) grad[e] = -grad[e]

__kernel void adam(LISTS, MEM(scale), MEM(found), Numbers k ENDS) {
  TENSOR;
  if (SKIPPED) return;
  TENSORS_OF_ALL;
  __global MEM_TYPE(T) *mean = AT_PICK(m), *square = AT_PICK(v), *most = AT_PICK(w);
  // 1 - beta^step, exact also where beta is near 1
  const XT step = STEP_OF_TENSOR, size = k.lr / -expm1(step * k.log_beta1), correction = sqrt(-expm1(step * k.log_beta2));
  XV grad[EACH], value[EACH], first[EACH], second[EACH];
#define READ(e, i) READ_MOMENTS(e, i)
#define WRITE(e, i)                                                                   \
  PREPARE(e, i);                                                                      \
  if (k.decoupled) {                                                                  \
    value[e] *= k.decay;                                                              \
  } else {                                                                            \
    DECAY_GRADIENT(e);                                                                \
  }                                                                                   \
  MOVE_MOMENTS(e, i);                                                                 \
  if (k.amsgrad) {                                                                    \
    const XV before_ = GET(most, i);                                                  \
    second[e] = (second[e] > before_) | (second[e] != second[e]) ? second[e] : before_; \
    PUT(most, i, second[e]);                                                          \
  }                                                                                   \
  PUT(parameter, i, value[e] - size * first[e] / (sqrt(second[e]) / correction + k.eps))
  WIDE_ELEMENTS(READ, WRITE)
#undef READ
#undef WRITE
}

__kernel void sgd(LISTS, MEM(scale), MEM(found), Numbers k ENDS) {
  TENSOR;
  if (SKIPPED) return;
  TENSORS_OF_ALL;
  __global MEM_TYPE(T) *kept = AT_PICK(m);
  XV grad[EACH], value[EACH], before[EACH];
#define READ(e, i) \
  READ_ALL(e, i);  \
  before[e] = k.momentum != 0 && !k.first ? GET(kept, i) : (XV)(0)
#define WRITE(e, i)                                                                                       \
  PREPARE(e, i);                                                                                          \
  DECAY_GRADIENT(e);                                                                                      \
  if (k.momentum != 0) {                                                                                  \
    const XV moved = k.first ? grad[e] : k.momentum * before[e] + k.rest1 * grad[e];                      \
    PUT(kept, i, moved);                                                                                  \
    grad[e] = k.nesterov ? grad[e] + k.momentum * moved : moved;                                          \
  }                                                                                                       \
  PUT(parameter, i, value[e] - k.lr * grad[e])
  WIDE_ELEMENTS(READ, WRITE)
#undef READ
#undef WRITE
}

// dampening: the decay of the rate.
__kernel void adagrad(LISTS, MEM(scale), MEM(found), Numbers k ENDS) {
  TENSOR;
  if (SKIPPED) return;
  TENSORS_OF_ALL;
  __global MEM_TYPE(T) *kept = AT_PICK(m);
  const XT rate = k.lr / (1 + (STEP_OF_TENSOR - 1) * k.dampening);
  XV grad[EACH], value[EACH], sum[EACH];
#define READ(e, i) \
  READ_ALL(e, i);  \
  sum[e] = GET(kept, i)
#define WRITE(e, i)                       \
  PREPARE(e, i);                          \
  DECAY_GRADIENT(e);                      \
  sum[e] += grad[e] * grad[e];            \
  PUT(kept, i, sum[e]);                   \
  PUT(parameter, i, value[e] - rate * grad[e] / (sqrt(sum[e]) + k.eps))
  WIDE_ELEMENTS(READ, WRITE)
#undef READ
#undef WRITE
}

#ifdef IN_TABLE
// Gradients times *scale; where one is not finite, *found becomes 1.
__kernel void unscale(LISTS, MEM(scale), MEM(found)) {
  TENSOR;
  __global MEM_TYPE(T) *at = AT_PICK(p);
  const XT by = (XT)NUMBER_AT(scale);
  int bad = 0;
  XV value[EACH];
#define READ(e, i) value[e] = GET(at, i)
#define WRITE(e, i)              \
  bad |= !FINITE(value[e]);      \
  PUT(at, i, by == (XT)1 ? value[e] : value[e] * by)
  WIDE_ELEMENTS(READ, WRITE)
#undef READ
#undef WRITE
  if (bad) NUMBER_AT(found) = 1.0f;
}

#undef GET
#undef PUT
#define GET GET_ONE  // what is missing of a vector would count in its norms
#define PUT PUT_ONE

// Lamb (You et al., Large batch optimization for deep learning, 2019): the step of Adam plus the decay, scaled for each parameter by its norm over that of
// the step; 1 where either is 0. Two launches: the first moves what is kept and adds up the squares of each chunk, the second adds up those of a
// parameter's chunks and moves it. momentum and dampening: 1 - beta1^step and the root of 1 - beta2^step.
#define STEP_OF(first, second, value) ((first) / k.momentum / (sqrt(second) / k.dampening + k.eps) + k.weight_decay * (value))
#ifdef GPU
#define SUM_OF_GROUP(sum)                                                     \
  part[get_local_id(0)] = sum;                                                \
  barrier(CLK_LOCAL_MEM_FENCE);                                               \
  for (int half_ = (int)get_local_size(0) / 2; half_ > 0; half_ /= 2) {       \
    if ((int)get_local_id(0) < half_) part[get_local_id(0)] += part[get_local_id(0) + half_]; \
    barrier(CLK_LOCAL_MEM_FENCE);                                             \
  }                                                                           \
  sum = part[0];                                                              \
  barrier(CLK_LOCAL_MEM_FENCE)
#define LOCAL_PARTS __local XT part[256]
#else  // an item a group
#define SUM_OF_GROUP(sum)
#define LOCAL_PARTS
#endif
__kernel void lamb_norms(LISTS, MEM(sums), Numbers k) {
  LOCAL_PARTS;
  TENSOR;
  TENSORS_OF_ALL;
  __global MEM_TYPE(T) *mean = AT_PICK(m), *square = AT_PICK(v);
  XT of_values = 0, of_steps = 0;
  XT grad[EACH], value[EACH], first[EACH], second[EACH];
#define READ(e, i) READ_MOMENTS(e, i)
#define WRITE(e, i)                                          \
  if (k.maximize) grad[e] = -grad[e];                        \
  MOVE_MOMENTS(e, i);                                        \
  grad[e] = STEP_OF(GET(mean, i), GET(square, i), value[e]); \
  of_values += value[e] * value[e];                          \
  of_steps += grad[e] * grad[e]
  ELEMENTS(READ, WRITE)
#undef READ
#undef WRITE
  SUM_OF_GROUP(of_values);
  SUM_OF_GROUP(of_steps);
  if (get_local_id(0) == 0) {
    AT(XT, sums)[2 * chunk_] = of_values;
    AT(XT, sums)[2 * chunk_ + 1] = of_steps;
  }
}
__kernel void lamb_apply(LISTS, MEM(sums), Numbers k) {
  LOCAL_PARTS;
  TENSOR;
  __global MEM_TYPE(T) *parameter = AT_PICK(p), *mean = AT_PICK(m), *square = AT_PICK(v);
  XT of_values = 0, of_steps = 0;
  for (long i = row_->first + get_local_id(0); i < row_->first + (row_->elements + CHUNK - 1) / CHUNK; i += step_) {
    of_values += AT(XT, sums)[2 * i];
    of_steps += AT(XT, sums)[2 * i + 1];
  }
  SUM_OF_GROUP(of_values);
  SUM_OF_GROUP(of_steps);
  const XT rate = of_values > 0 && of_steps > 0 ? k.lr * sqrt(of_values) / sqrt(of_steps) : k.lr;
  XT value[EACH], first[EACH], second[EACH];
#define READ(e, i)              \
  value[e] = GET(parameter, i); \
  first[e] = GET(mean, i);      \
  second[e] = GET(square, i)
#define WRITE(e, i) PUT(parameter, i, value[e] - rate * STEP_OF(first[e], second[e], value[e]))
  ELEMENTS(READ, WRITE)
#undef READ
#undef WRITE
}
#endif

// What GradScaler does after a step.
__kernel void update_scale(MEM(scale), MEM(tracker), MEM(found), float growth, float backoff, int interval) {
  if (get_global_id(0) != 0) return;
  __global int *steps = AT(int, tracker);
  if (NUMBER_AT(found) > 0.0f) {
    NUMBER_AT(scale) *= backoff;
    *steps = 0;
  } else if (*steps + 1 == interval) {
    const float grown = NUMBER_AT(scale) * growth;
    if (isfinite(grown)) NUMBER_AT(scale) = grown;
    *steps = 0;
  } else {
    *steps += 1;
  }
}
