// Sets elements. -DRAW=: an integer type of the element's size; 16 bytes: ulong2.
#define READ(e, i)
__kernel void linear_fill(MEM(out), RAW value, long n) {
#define WRITE(e, i) AT(RAW, out)[i] = value
  LINEAR(n, READ, WRITE)
#undef WRITE
}

__kernel void strided_fill(MEM(out), RAW value, int axis, Grid grid) {
  long at[1];
#define WRITE(e, steps) *(__global RAW *)(out_base + out_offset + at[0] + (steps)*AXIS_STRIDE(0)) = value
  STRIDED(1, READ, WRITE)
}
