// Copies between layouts and types. -DFROM=, -DTO=: element types of common.cl, or RAW (bytes moved as they are, -DRAW=uint ...).
#ifdef RAW
#define FROM_TYPE RAW
#define TO_TYPE RAW
#define VALUE_TYPE RAW
#define READ_FROM(p) (*(p))
#define WRITE_TO(p, v) (*(p) = (v))
#else
#define FROM_TYPE MEM_TYPE(FROM)
#define TO_TYPE MEM_TYPE(TO)
#define VALUE_TYPE TYPE(TO)
#define READ_FROM(p) CONVERT(TO, LOAD(FROM, p))
#define WRITE_TO(p, v) STORE(TO, p, v)
#endif

__kernel void strided_copy(MEM(out), MEM(in), int axis, Grid grid) {
  long at[2];
  VALUE_TYPE value[EACH];
#define READ(e, steps) value[e] = READ_FROM((__global FROM_TYPE *)(in_base + in_offset + at[1] + (steps)*AXIS_STRIDE(1)))
#define WRITE(e, steps) WRITE_TO((__global TO_TYPE *)(out_base + out_offset + at[0] + (steps)*AXIS_STRIDE(0)), value[e])
  STRIDED(2, READ, WRITE)
#undef READ
#undef WRITE
}

// Both contiguous, of n elements.
__kernel void linear_copy(MEM(out), MEM(in), long n) {
  VALUE_TYPE value[EACH];
#define READ(e, i) value[e] = READ_FROM(AT(FROM_TYPE, in) + (i))
#define WRITE(e, i) WRITE_TO(AT(TO_TYPE, out) + (i), value[e])
  LINEAR(n, READ, WRITE)
}
