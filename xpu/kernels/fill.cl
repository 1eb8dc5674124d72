// Sets n elements. -DRAW=: an integer type of the element's size; 16 bytes: ulong2.
__kernel void linear_fill(MEM(out), RAW value, long n) {
  const long i = get_global_id(0);
  if (i < n) AT(RAW, out)[i] = value;
}

__kernel void strided_fill(MEM(out), RAW value, Grid grid) {
  const long i0 = get_global_id(0), i1 = get_global_id(1), i2 = get_global_id(2);
  if (i0 >= grid.sizes[0] || i1 >= grid.sizes[1] || i2 >= rows_of(&grid)) return;
  long offset[1];
  offsets_of(&grid, i0, i1, i2, 1, offset);
  *(__global RAW *)(out_base + out_offset + offset[0]) = value;
}
