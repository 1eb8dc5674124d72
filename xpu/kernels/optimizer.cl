// One step of an optimizer for up to eight parameters a launch, the tensors one after the other: each has work groups of its own, whose
// items take EACH elements (common.cl), a group's width apart. -DT= type of parameters and of what is kept for them, -DX= of numbers.
#define XT TYPE(X)
#define LIST(n)                                                                                                                          \
  __global char *n##0_base, ulong n##0_offset, __global char *n##1_base, ulong n##1_offset, __global char *n##2_base, ulong n##2_offset, \
      __global char *n##3_base, ulong n##3_offset, __global char *n##4_base, ulong n##4_offset, __global char *n##5_base,                \
      ulong n##5_offset, __global char *n##6_base, ulong n##6_offset, __global char *n##7_base, ulong n##7_offset
#define ONE_OF(n, k) (n##k##_base + n##k##_offset)
#define PICK(n)                                                                                      \
  (t < 4 ? (t < 2 ? (t == 0 ? ONE_OF(n, 0) : ONE_OF(n, 1)) : (t == 2 ? ONE_OF(n, 2) : ONE_OF(n, 3))) \
         : (t < 6 ? (t == 4 ? ONE_OF(n, 4) : ONE_OF(n, 5)) : (t == 6 ? ONE_OF(n, 6) : ONE_OF(n, 7))))
#define AT_PICK(n) ((__global MEM_TYPE(T)*)PICK(n) + i)
#define GET(p) CONVERT(X, LOAD(T, p))
#define PUT(p, v) STORE(T, p, CONVERT(T, v))

typedef struct {
  long groups[8];  // where each tensor's work groups end, all counted together
  long sizes[8];   // elements
} Ends;
#define TENSOR                                                                            \
  int t = 0;                                                                              \
  long group_ = get_group_id(0);                                                          \
  if (group_ >= ends.groups[7]) return;                                                   \
  while (group_ >= ends.groups[t]) ++t;                                                   \
  if (t > 0) group_ -= ends.groups[t - 1];                                                \
  const long step_ = get_local_size(0), first_ = group_ * step_ * EACH + get_local_id(0); \
  const long end_ = min(ends.sizes[t], first_ + step_ * EACH)
#define ELEMENTS for (long i = first_; i < end_; i += step_)

typedef struct {
  XT lr, weight_decay, eps, log_beta1, log_beta2, beta1, beta2, momentum, dampening;
  int decoupled, amsgrad, maximize, nesterov, first, scaled, guarded;
} Numbers;
// The gradient as the optimizer takes it; scaled ones are put back without their scale, as torch's fused kernels do.
#define SKIPPED (k.guarded && *(__global float*)(found_base + found_offset) == 1.0f)
#define GRADIENT                                                       \
  __global MEM_TYPE(T)*gradient = AT_PICK(g), *parameter = AT_PICK(p); \
  XT grad = GET(gradient), value = GET(parameter);                     \
  if (k.scaled) {                                                      \
    grad /= (XT) * (__global float*)(scale_base + scale_offset);       \
    PUT(gradient, grad);                                               \
  }                                                                    \
  if (k.maximize) grad = -grad

__kernel void adam(LIST(p), LIST(g), LIST(m), LIST(v), LIST(w), LIST(s), MEM(scale), MEM(found), Numbers k, Ends ends) {
  TENSOR;
  if (SKIPPED) return;
  const XT step = (XT) * (__global float*)PICK(s);
  // 1 - beta^step, exact also where beta is near 1
  const XT size = k.lr / -expm1(step * k.log_beta1), correction = sqrt(-expm1(step * k.log_beta2));
  ELEMENTS {
    GRADIENT;
    if (k.decoupled) {
      value -= k.lr * k.weight_decay * value;
    } else {
      grad += k.weight_decay * value;
    }
    __global MEM_TYPE(T)*mean = AT_PICK(m), *square = AT_PICK(v);
    XT first = GET(mean), second = GET(square);
    first += (1 - k.beta1) * (grad - first);
    second = k.beta2 * second + (1 - k.beta2) * grad * grad;
    PUT(mean, first);
    PUT(square, second);
    if (k.amsgrad) {
      __global MEM_TYPE(T)* most = AT_PICK(w);
      second = fmax(GET(most), second);
      PUT(most, second);
    }
    PUT(parameter, value - size * first / (sqrt(second) / correction + k.eps));
  }
}

__kernel void sgd(LIST(p), LIST(g), LIST(m), MEM(scale), MEM(found), Numbers k, Ends ends) {
  TENSOR;
  if (SKIPPED) return;
  ELEMENTS {
    GRADIENT;
    grad += k.weight_decay * value;
    if (k.momentum != 0) {
      __global MEM_TYPE(T)* kept = AT_PICK(m);
      const XT moved = k.first ? grad : k.momentum * GET(kept) + (1 - k.dampening) * grad;
      PUT(kept, moved);
      grad = k.nesterov ? grad + k.momentum * moved : moved;
    }
    PUT(parameter, value - k.lr * grad);
  }
}

// dampening: the decay of the rate.
__kernel void adagrad(LIST(p), LIST(g), LIST(m), LIST(s), MEM(scale), MEM(found), Numbers k, Ends ends) {
  TENSOR;
  if (SKIPPED) return;
  const XT step = (XT) * (__global float*)PICK(s);
  ELEMENTS {
    GRADIENT;
    grad += k.weight_decay * value;
    __global MEM_TYPE(T)* kept = AT_PICK(m);
    const XT sum = GET(kept) + grad * grad;
    PUT(kept, sum);
    PUT(parameter, value - k.lr / (1 + (step - 1) * k.dampening) * grad / (sqrt(sum) + k.eps));
  }
}

__kernel void add_number(LIST(p), XT number, Ends ends) {
  TENSOR;
  ELEMENTS {
    __global MEM_TYPE(T)* at = AT_PICK(p);
    PUT(at, GET(at) + number);
  }
}
