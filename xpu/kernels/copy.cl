// Copies between layouts and types. -DFROM=, -DTO=: element types of common.cl, or RAW (bytes moved as they are, -DRAW=uint ...).
__kernel void strided_copy(MEM(out), MEM(in), Grid grid) {
  const long i0 = get_global_id(0), i1 = get_global_id(1), i2 = get_global_id(2);
  if (i0 >= grid.sizes[0] || i1 >= grid.sizes[1] || i2 >= rows_of(&grid)) return;
  long offset[2];
  offsets_of(&grid, i0, i1, i2, 2, offset);
#ifdef RAW
  *(__global RAW *)(out_base + out_offset + offset[0]) = *(__global RAW *)(in_base + in_offset + offset[1]);
#else
  STORE(TO, (__global MEM_TYPE(TO) *)(out_base + out_offset + offset[0]),
        CONVERT(TO, LOAD(FROM, (__global MEM_TYPE(FROM) *)(in_base + in_offset + offset[1]))));
#endif
}

// Both contiguous, of n elements.
__kernel void linear_copy(MEM(out), MEM(in), long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
#ifdef RAW
  AT(RAW, out)[i] = AT(RAW, in)[i];
#else
  STORE(TO, AT(MEM_TYPE(TO), out) + i, CONVERT(TO, LOAD(FROM, AT(MEM_TYPE(FROM), in) + i)));
#endif
}
