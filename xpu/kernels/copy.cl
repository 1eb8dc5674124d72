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

#ifndef GPU
// Along lines, for a CPU (common.cl), of neighbours, of one element, of anything.
#define LINES(name, step)                                                                          \
  __kernel void name(MEM(out), MEM(in), LINES_OF_GRID) {                                           \
    LINE;                                                                                          \
    const VALUE_TYPE value = READ_FROM((__global FROM_TYPE *)(in_base + in_offset + line_a) + i_ * (step)); \
    WRITE_TO((__global TO_TYPE *)(out_base + out_offset + line_out) + i_, value);                  \
  }
LINES(lines_1, 1)
LINES(lines_0, 0)
__kernel void lines(MEM(out), MEM(in), Grid grid) {
  ANY_LINE(2);
  const VALUE_TYPE value = READ_FROM((__global FROM_TYPE *)(in_base + in_offset + at[1] + i_ * grid.strides[1][0]));
  WRITE_TO((__global TO_TYPE *)(out_base + out_offset + at[0] + i_ * grid.strides[0][0]), value);
}

#define WHOLE_uchar 1
#define WHOLE_ushort 1
#define WHOLE_uint 1
#define WHOLE_ulong 1
#if defined(RAW) && JOIN(WHOLE_, RAW)
// Neighbours along axis 0 of `out` are neighbours along axis 1 of `in`: an item takes a block of 16 x 16. Each of the four steps turns the eight bits of an
// element's row and column in its block by one: the row's last bit becomes the column's first, the column's last the row's first.
#define LINES_OF_BLOCK JOIN(RAW, 16)
#define TURN(to, from)                                                                                      \
  _Pragma("unroll") for (int r_ = 0; r_ < 8; ++r_) {                                                        \
    to[r_] = (LINES_OF_BLOCK)(from[2 * r_].even, from[2 * r_ + 1].even);                                    \
    to[r_ + 8] = (LINES_OF_BLOCK)(from[2 * r_].odd, from[2 * r_ + 1].odd);                                  \
  }
__kernel void transpose(MEM(out), MEM(in), Grid grid) {
  const long i0 = get_global_id(0) * 16, i1 = get_global_id(1) * 16;
  if (i0 >= grid.sizes[0] || i1 >= grid.sizes[1] || get_global_id(2) >= rows_of(&grid)) return;
  long at[2];
  offsets_of(&grid, i0, i1, get_global_id(2), 2, at);
  __global char *to = out_base + out_offset + at[0], *from = in_base + in_offset + at[1];
  const long to_row = grid.strides[0][1], from_row = grid.strides[1][0];
  if (i0 + 16 <= grid.sizes[0] && i1 + 16 <= grid.sizes[1]) {
    LINES_OF_BLOCK x[16], y[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) x[r] = vload16(0, (__global RAW *)(from + r * from_row));
    TURN(y, x)
    TURN(x, y)
    TURN(y, x)
    TURN(x, y)
#pragma unroll
    for (int r = 0; r < 16; ++r) vstore16(x[r], 0, (__global RAW *)(to + r * to_row));
    return;
  }
  for (long r = 0; r < min(16L, grid.sizes[1] - i1); ++r)
    for (long c = 0; c < min(16L, grid.sizes[0] - i0); ++c)
      *(__global RAW *)(to + r * to_row + c * (long)sizeof(RAW)) = *(__global RAW *)(from + c * from_row + r * (long)sizeof(RAW));
}
#endif
#endif
