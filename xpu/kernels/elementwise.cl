// One operator over 1 to 3 operands of any layout and type.
//   -DOP=op_x -DN=1..3 -DX=    what is computed, of how many operands, in which type (common.cl)
//   -DA= -DB= -DC= -DOUT=      types of the operands and of the result
//   -DREAL                     X is float or double
//   -DVALUE_A ...              that operand is one value, passed as an X
//   -DIN_TABLE                 of many tensors, all of type A: kernel `table` (common.cl)
// s and t are parameters of the operator (alpha, bounds, ...).
#define XT TYPE(X)
#define ONE ((XT)1)
#define ZERO ((XT)0)

// A CPU's compilers have erf one element at a time (PoCL 3.1: 32 ns). This quotient of polynomials, fitted to erf(x) / x in x^2 by least squares, is at most
// 4e-7 of it away, and 7e-8 of 1 in the mean; beyond the ends erf is 1 in float.
#if !defined(GPU) && JOIN(IS_SINGLE_, X)
inline float near_erf(float x) {
  x = x > 3.92f ? 3.92f : x < -3.92f ? -3.92f : x;
  const float y = x * x;
  const float over =
      1.1283791065216064f +
      y * (0.18996334075927734f + y * (0.052690278738737106f + y * (0.0037468934893333384f + y * (0.0002845127892214805f + y * 2.054016704278183e-06f))));
  const float under =
      1.0f + y * (0.5016834139823914f + y * (0.11392616480588913f + y * (0.014931370504200459f + y * (0.001158109400421381f + y * 3.8113394111860543e-05f))));
  return x * over / under;
}
#define ERF(a) near_erf(a)
#else
#define ERF(a) erf(a)
#endif
#define op_copy(a, b, c) (a)
#define op_zero(a, b, c) ZERO
#define op_second(a, b, c) (b)
#define op_add(a, b, c) ((a) + s * (b))
#define op_sub(a, b, c) ((a) - s * (b))
#define op_rsub(a, b, c) ((b) - s * (a))
#define op_mul(a, b, c) ((a) * (b))
#define op_div(a, b, c) ((a) / (b))
// NaN on either side is the result, as in torch.
#define op_max(a, b, c) (((a) > (b) || (a) != (a)) ? (a) : (b))
#define op_min(a, b, c) (((a) < (b) || (a) != (a)) ? (a) : (b))
#define op_eq(a, b, c) ((a) == (b))
#define op_ne(a, b, c) ((a) != (b))
#define op_lt(a, b, c) ((a) < (b))
#define op_le(a, b, c) ((a) <= (b))
#define op_gt(a, b, c) ((a) > (b))
#define op_ge(a, b, c) ((a) >= (b))
#define op_and(a, b, c) ((a) != 0 && (b) != 0)
#define op_or(a, b, c) ((a) != 0 || (b) != 0)
#define op_not(a, b, c) ((a) == 0)
#define op_bit_and(a, b, c) ((a) & (b))
#define op_bit_or(a, b, c) ((a) | (b))
#define op_bit_not(a, b, c) (~(a))
#define op_isnan(a, b, c) ((a) != (a))
#define op_isneginf(a, b, c) ((a) == -INFINITY)
#define op_isposinf(a, b, c) ((a) == INFINITY)
#define op_sign(a, b, c) ((a) > ZERO ? ONE : (a) < ZERO ? -ONE : ZERO)
#define op_log1p(a, b, c) log1p(a)
#define op_expm1(a, b, c) expm1(a)
#define op_round(a, b, c) rint(a)
#define op_leaky_relu(a, b, c) ((a) > ZERO ? (a) : (a) * s)
#define op_leaky_relu_backward(a, b, c) ((b) > ZERO ? (a) : (a) * s)
#define op_hardtanh_backward(a, b, c) ((b) <= s || (b) >= t ? ZERO : (a))
#define op_pow(a, b, c) pow(a, b)
#define op_neg(a, b, c) (-(a))
#define op_abs(a, b, c) ((a) < ZERO ? -(a) : (a) == ZERO ? ZERO : (a))
#define op_relu(a, b, c) ((a) < ZERO ? ZERO : (a))
#define op_exp(a, b, c) exp(a)
#define op_log(a, b, c) log(a)
#define op_sqrt(a, b, c) sqrt(a)
#define op_rsqrt(a, b, c) (ONE / sqrt(a))
#define op_reciprocal(a, b, c) (ONE / (a))
#define op_sin(a, b, c) sin(a)
#define op_cos(a, b, c) cos(a)
#define op_tanh(a, b, c) tanh(a)
#define op_erf(a, b, c) ERF(a)
#define op_floor(a, b, c) floor(a)
#define op_ceil(a, b, c) ceil(a)
#define op_sigmoid(a, b, c) (ONE / (ONE + exp(-(a))))
#define op_silu(a, b, c) ((a) / (ONE + exp(-(a))))
#define op_gelu(a, b, c) ((a) * (XT)0.5 * (ONE + ERF((a) * (XT)0.70710678118654752440)))
#define GELU_INNER(a) ((XT)0.79788456080286535588 * ((a) + (XT)0.044715 * (a) * (a) * (a)))
#define op_gelu_tanh(a, b, c) ((XT)0.5 * (a) * (ONE + tanh(GELU_INNER(a))))
// Bounds: NaN stays. Where the lower one is above the upper one, the upper one is the result.
#define op_clamp(a, b, c) ((a) < s && s <= t ? s : (a) < s || (a) > t ? t : (a))
#define op_clamp_min(a, b, c) ((a) < s ? s : (a))
#define op_clamp_max(a, b, c) ((a) > s ? s : (a))
// Gradients: a is that of the result, b the saved operand or result.
#define op_threshold_backward(a, b, c) ((b) <= s ? ZERO : (a))
#define op_tanh_backward(a, b, c) ((a) * (ONE - (b) * (b)))
#define op_sigmoid_backward(a, b, c) ((a) * (ONE - (b)) * (b))
#ifdef REAL
inline XT silu_gradient(XT a, XT b) {
  const XT gate = ONE / (ONE + exp(-b));
  return a * gate * (ONE + b * (ONE - gate));
}
inline XT gelu_gradient(XT a, XT b) {
  const XT below = (XT)0.5 * (ONE + ERF(b * (XT)0.70710678118654752440));
  return a * (below + b * exp((XT)-0.5 * b * b) * (XT)0.39894228040143267794);
}
inline XT gelu_tanh_gradient(XT a, XT b) {
  const XT inner = tanh(GELU_INNER(b));
  const XT slope = (XT)0.79788456080286535588 * (ONE + (XT)0.134145 * b * b);
  return a * ((XT)0.5 * (ONE + inner) + (XT)0.5 * b * (ONE - inner * inner) * slope);
}
#endif
#define op_silu_backward(a, b, c) silu_gradient(a, b)
#define op_gelu_backward(a, b, c) gelu_gradient(a, b)
#define op_gelu_tanh_backward(a, b, c) gelu_tanh_gradient(a, b)
#define op_where(a, b, c) ((a) != 0 ? (b) : (c))
#define op_masked(a, b, c) ((b) != 0 ? s : (a))
#define op_masked_tensor(a, b, c) ((b) != 0 ? (c) : (a))
#define op_addcmul(a, b, c) ((a) + s * (b) * (c))
#define op_addcdiv(a, b, c) ((a) + s * ((b) / (c)))
#define op_lerp(a, b, c) (fabs(s) < (XT)0.5 ? (a) + s * ((b) - (a)) : (b) - ((b) - (a)) * (ONE - s))

#ifndef IN_TABLE
#ifdef VALUE_A
#define PARAMETER_A , XT value_a
#define GET_A(at) value_a
#else
#define PARAMETER_A , MEM(a)
#define GET_A(at) CONVERT(X, LOAD(A, (__global MEM_TYPE(A) *)(a_base + a_offset + (at))))
#endif
#define PARAMETER_B
#define PARAMETER_C
#define GET_B(at) ZERO
#define GET_C(at) ZERO
#if N >= 2
#undef PARAMETER_B
#undef GET_B
#ifdef VALUE_B
#define PARAMETER_B , XT value_b
#define GET_B(at) value_b
#else
#define PARAMETER_B , MEM(b)
#define GET_B(at) CONVERT(X, LOAD(B, (__global MEM_TYPE(B) *)(b_base + b_offset + (at))))
#endif
#endif
#if N >= 3
#undef PARAMETER_C
#undef GET_C
#ifdef VALUE_C
#define PARAMETER_C , XT value_c
#define GET_C(at) value_c
#else
#define PARAMETER_C , MEM(c)
#define GET_C(at) CONVERT(X, LOAD(C, (__global MEM_TYPE(C) *)(c_base + c_offset + (at))))
#endif
#endif

__kernel void linear(MEM(out) PARAMETER_A PARAMETER_B PARAMETER_C, XT s, XT t, long n) {
  XT a[EACH], b[EACH], c[EACH];
#define READ(e, i)                       \
  a[e] = GET_A((i) * sizeof(MEM_TYPE(A))); \
  b[e] = GET_B((i) * sizeof(MEM_TYPE(B))); \
  c[e] = GET_C((i) * sizeof(MEM_TYPE(C)))
#define WRITE(e, i) STORE(OUT, AT(MEM_TYPE(OUT), out) + (i), CONVERT(OUT, OP(a[e], b[e], c[e])))
  LINEAR(n, READ, WRITE)
#undef READ
#undef WRITE
}

// A work item's elements lie along `axis`, 0 or 1.
__kernel void strided(MEM(out) PARAMETER_A PARAMETER_B PARAMETER_C, XT s, XT t, int axis, Grid grid) {
  long at[4];
  XT a[EACH], b[EACH], c[EACH];
#define READ(e, steps)                             \
  a[e] = GET_A(at[1] + (steps) * AXIS_STRIDE(1)); \
  b[e] = GET_B(at[2] + (steps) * AXIS_STRIDE(2)); \
  c[e] = GET_C(at[3] + (steps) * AXIS_STRIDE(3))
#define WRITE(e, steps) \
  STORE(OUT, (__global MEM_TYPE(OUT) *)(out_base + out_offset + at[0] + (steps) * AXIS_STRIDE(0)), CONVERT(OUT, OP(a[e], b[e], c[e])))
  STRIDED(1 + N, READ, WRITE)
#undef READ
#undef WRITE
}

#ifndef GPU
// The same along lines, for a CPU (common.cl): lines_ and for each operand 1: neighbours, 0: one element. `lines`: anything.
#define LINES(name, step_a, step_b, step_c)                                                               \
  __kernel void name(MEM(out) PARAMETER_A PARAMETER_B PARAMETER_C, XT s, XT t, LINES_OF_GRID) {           \
    LINE;                                                                                                 \
    const XT a = GET_A(line_a + i_ * (step_a)), b = GET_B(line_b + i_ * (step_b)), c = GET_C(line_c + i_ * (step_c)); \
    STORE(OUT, (__global MEM_TYPE(OUT) *)(out_base + out_offset + line_out) + i_, CONVERT(OUT, OP(a, b, c)));         \
  }
#define NEXT(t) (long)sizeof(MEM_TYPE(t))
__kernel void lines(MEM(out) PARAMETER_A PARAMETER_B PARAMETER_C, XT s, XT t, Grid grid) {
  ANY_LINE(1 + N);
  const XT a = GET_A(at[1] + i_ * grid.strides[1][0]), b = GET_B(at[2] + i_ * grid.strides[2][0]), c = GET_C(at[3] + i_ * grid.strides[3][0]);
  STORE(OUT, (__global MEM_TYPE(OUT) *)(out_base + out_offset + at[0] + i_ * grid.strides[0][0]), CONVERT(OUT, OP(a, b, c)));
}
#if N == 1
LINES(lines_1, NEXT(A), 0, 0)
LINES(lines_0, 0, 0, 0)
#elif N == 2
LINES(lines_11, NEXT(A), NEXT(B), 0)
LINES(lines_10, NEXT(A), 0, 0)
LINES(lines_01, 0, NEXT(B), 0)
#else
LINES(lines_111, NEXT(A), NEXT(B), NEXT(C))
LINES(lines_110, NEXT(A), NEXT(B), 0)
LINES(lines_101, NEXT(A), 0, NEXT(C))
LINES(lines_011, 0, NEXT(B), NEXT(C))
#endif
#endif
#else

// The result's address is the first of a row, those of the operands follow. Instead of being in a list, an operand may be
//   -DVALUE_A ...   one value, passed as an X
//   -DNUMBER_B      each row's number
//   -DELEMENT_B     one element in memory
// and s each row's number (-DNUMBER_S).
#define LISTED(k, i) CONVERT(X, LOAD(A, (__global MEM_TYPE(A) *)row_->address[k] + (i)))
#define NUMBER_OF_ROW (*(__global const XT *)&row_->number)
#ifdef VALUE_A
#define PARAMETER_A , XT value_a
#define GET_A(i) value_a
#else
#define PARAMETER_A
#define GET_A(i) LISTED(1, i)
#endif
#define PARAMETER_B
#if defined(VALUE_B)
#undef PARAMETER_B
#define PARAMETER_B , XT value_b
#define GET_B(i) value_b
#elif defined(NUMBER_B)
#define GET_B(i) NUMBER_OF_ROW
#elif defined(ELEMENT_B)
#undef PARAMETER_B
#define PARAMETER_B , MEM(b)
#define GET_B(i) CONVERT(X, LOAD(A, AT(MEM_TYPE(A), b)))
#elif N >= 2
#define GET_B(i) LISTED(2, i)
#else
#define GET_B(i) ZERO
#endif
#if N >= 3
#define GET_C(i) LISTED(3, i)
#else
#define GET_C(i) ZERO
#endif
__kernel void table(TABLE PARAMETER_A PARAMETER_B, XT given_s) {
  TABLE_ROW;
#ifdef NUMBER_S
  const XT s = NUMBER_OF_ROW;
#else
  const XT s = given_s;
#endif
  __global MEM_TYPE(A) *out = (__global MEM_TYPE(A) *)row_->address[0];
  XT a[EACH], b[EACH], c[EACH];
#define READ(e, i)  \
  a[e] = GET_A(i); \
  b[e] = GET_B(i); \
  c[e] = GET_C(i)
#define WRITE(e, i) STORE(A, out + (i), CONVERT(A, OP(a[e], b[e], c[e])))
  TABLE_EACH(READ, WRITE)
}
#endif
