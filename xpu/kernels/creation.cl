// Tensors made of a rule. -DT= type of elements, -DX= type that values are computed in; -DRAW=: an integer of the element's size.
#ifdef RAW
// Of matrices [rows, columns]: what is on or below (lower) the diagonal k, or on or above it.
__kernel void triangle(MEM(out), MEM(in), long rows, long columns, long k, int lower, long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  const long off = i % columns - i / columns % rows;
  AT(RAW, out)[i] = (lower ? off <= k : off >= k) ? AT(RAW, in)[i] : (RAW)(0);
}
#else
__kernel void sequence(MEM(out), TYPE(X) start, TYPE(X) step, long n) {
  const long i = get_global_id(0);
  if (i < n) STORE(T, AT(MEM_TYPE(T), out) + i, CONVERT(T, start + (TYPE(X))i * step));
}
#endif
