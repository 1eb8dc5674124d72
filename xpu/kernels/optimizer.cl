// One step of an optimizer for up to eight parameters a launch: a work item an element, the tensors one after the other.
// -DT= type of parameters and of what is kept for them, -DX= of numbers.
#define XT TYPE(X)
#define LIST(n)                                                                                                                            \
  __global char *n##0_base, ulong n##0_offset, __global char *n##1_base, ulong n##1_offset, __global char *n##2_base, ulong n##2_offset,   \
      __global char *n##3_base, ulong n##3_offset, __global char *n##4_base, ulong n##4_offset, __global char *n##5_base,                  \
      ulong n##5_offset, __global char *n##6_base, ulong n##6_offset, __global char *n##7_base, ulong n##7_offset
#define ONE_OF(n, k) (n##k##_base + n##k##_offset)
#define PICK(n)                                                                                                                            \
  (t < 4 ? (t < 2 ? (t == 0 ? ONE_OF(n, 0) : ONE_OF(n, 1)) : (t == 2 ? ONE_OF(n, 2) : ONE_OF(n, 3)))                                        \
         : (t < 6 ? (t == 4 ? ONE_OF(n, 4) : ONE_OF(n, 5)) : (t == 6 ? ONE_OF(n, 6) : ONE_OF(n, 7))))
#define AT_PICK(n) ((__global MEM_TYPE(T) *)PICK(n) + i)
#define GET(p) CONVERT(X, LOAD(T, p))
#define PUT(p, v) STORE(T, p, CONVERT(T, v))

typedef struct {
  long ends[8];  // where each tensor ends, all counted together
} Ends;
#define ELEMENT                                   \
  long i = get_global_id(0);                      \
  int t = 0;                                      \
  if (i >= ends.ends[7]) return;                  \
  while (i >= ends.ends[t]) ++t;                  \
  if (t > 0) i -= ends.ends[t - 1]

typedef struct {
  XT lr, weight_decay, eps, log_beta1, log_beta2, beta1, beta2, momentum, dampening;
  int decoupled, amsgrad, maximize, nesterov, first, scaled, guarded;
} Numbers;
// The gradient as the optimizer takes it; scaled ones are put back without their scale, as torch's fused kernels do.
#define GRADIENT                                                                       \
  if (k.guarded && *(__global float *)(found_base + found_offset) == 1.0f) return;     \
  __global MEM_TYPE(T) *gradient = AT_PICK(g), *parameter = AT_PICK(p);                \
  XT grad = GET(gradient), value = GET(parameter);                                     \
  if (k.scaled) {                                                                      \
    grad /= (XT)*(__global float *)(scale_base + scale_offset);                        \
    PUT(gradient, grad);                                                               \
  }                                                                                    \
  if (k.maximize) grad = -grad

__kernel void adam(LIST(p), LIST(g), LIST(m), LIST(v), LIST(w), LIST(s), MEM(scale), MEM(found), Numbers k, Ends ends) {
  ELEMENT;
  GRADIENT;
  const XT step = (XT)*(__global float *)PICK(s);
  if (k.decoupled) {
    value -= k.lr * k.weight_decay * value;
  } else {
    grad += k.weight_decay * value;
  }
  __global MEM_TYPE(T) *mean = AT_PICK(m), *square = AT_PICK(v);
  XT first = GET(mean), second = GET(square);
  first += (1 - k.beta1) * (grad - first);
  second = k.beta2 * second + (1 - k.beta2) * grad * grad;
  PUT(mean, first);
  PUT(square, second);
  if (k.amsgrad) {
    __global MEM_TYPE(T) *most = AT_PICK(w);
    second = fmax(GET(most), second);
    PUT(most, second);
  }
  // 1 - beta^step, exact also where beta is near 1
  const XT size = k.lr / -expm1(step * k.log_beta1), correction = sqrt(-expm1(step * k.log_beta2));
  PUT(parameter, value - size * first / (sqrt(second) / correction + k.eps));
}

__kernel void sgd(LIST(p), LIST(g), LIST(m), MEM(scale), MEM(found), Numbers k, Ends ends) {
  ELEMENT;
  GRADIENT;
  grad += k.weight_decay * value;
  if (k.momentum != 0) {
    __global MEM_TYPE(T) *kept = AT_PICK(m);
    const XT moved = k.first ? grad : k.momentum * GET(kept) + (1 - k.dampening) * grad;
    PUT(kept, moved);
    grad = k.nesterov ? grad + k.momentum * moved : moved;
  }
  PUT(parameter, value - k.lr * grad);
}

// dampening: the decay of the rate.
__kernel void adagrad(LIST(p), LIST(g), LIST(m), LIST(s), MEM(scale), MEM(found), Numbers k, Ends ends) {
  ELEMENT;
  GRADIENT;
  const XT step = (XT)*(__global float *)PICK(s);
  grad += k.weight_decay * value;
  __global MEM_TYPE(T) *kept = AT_PICK(m);
  const XT sum = GET(kept) + grad * grad;
  PUT(kept, sum);
  PUT(parameter, value - k.lr / (1 + (step - 1) * k.dampening) * grad / (sqrt(sum) + k.eps));
}

__kernel void add_number(LIST(p), XT number, Ends ends) {
  ELEMENT;
  __global MEM_TYPE(T) *at = AT_PICK(p);
  PUT(at, GET(at) + number);
}
