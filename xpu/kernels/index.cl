// Reading and writing where a tensor of indices says. Indices are long; one that points outside is marked and skipped (common.cl). `low`: the least one,
// -size for x[i], which counts from the end as well, else 0.
// -DRAW=: an integer as wide as what is moved; -DINDEX= counts elements; -DT= -DX= types of elements and of sums.

#ifdef RAW
// out[o, i, x] = in[o, index[i], x]; `inner` x's, `many` indices, `size` rows.
__kernel void select_rows(MEM(out), MEM(in), MEM(index), MEM(mark), long inner, long many, long size, long low, long n) {
  const long at = get_global_id(0);
  if (at >= n) return;
  const INDEX row = (INDEX)at / (INDEX)inner, x = (INDEX)at - row * (INDEX)inner;
  const INDEX o = row / (INDEX)many, i = row - o * (INDEX)many;
  const long raw = AT(long, index)[i], from = WRAPPED(raw, size, low, mark);
  RAW value = (RAW)(0);
  if (from >= 0) value = AT(RAW, in)[((long)o * size + from) * inner + x];
  AT(RAW, out)[at] = value;
}

// out[o, index[i], x] = values[o, i, x], or values[0] everywhere (single).
__kernel void put_rows(MEM(out), MEM(values), MEM(index), MEM(mark), long inner, long many, long size, long low, int single, long n) {
  const long at = get_global_id(0);
  if (at >= n) return;
  const INDEX row = (INDEX)at / (INDEX)inner, x = (INDEX)at - row * (INDEX)inner;
  const INDEX o = row / (INDEX)many, i = row - o * (INDEX)many;
  const long raw = AT(long, index)[i], to = WRAPPED(raw, size, low, mark);
  if (to >= 0) AT(RAW, out)[((long)o * size + to) * inner + x] = AT(RAW, values)[single ? 0 : at];
}

#ifndef GPU
// The two above for a CPU and rows of many elements: an item takes a part of a row, in vectors.
#define ROW_PART 1024
#define WHOLE_uchar 1
#define WHOLE_ushort 1
#define WHOLE_uint 1
#define WHOLE_ulong 1
#if JOIN(WHOLE_, RAW)
inline void copy_row(__global RAW *to, __global const RAW *from, long first, long inner) {
  const long end = min(inner, first + ROW_PART);
  long x = first;
  for (; x + 16 <= end; x += 16) vstore16(vload16(0, from + x), 0, to + x);
  for (; x < end; ++x) to[x] = from[x];
}
__kernel void select_whole_rows(MEM(out), MEM(in), MEM(index), MEM(mark), long inner, long many, long size, long low, long rows) {
  const long first = (long)get_global_id(0) * ROW_PART, row = get_global_id(1);
  if (row >= rows) return;
  const long raw = AT(long, index)[row % many], from = WRAPPED(raw, size, low, mark);
  __global RAW *to = AT(RAW, out) + row * inner;
  if (from >= 0) copy_row(to, AT(RAW, in) + (row / many * size + from) * inner, first, inner);
  else
    for (long x = first; x < min(inner, first + ROW_PART); ++x) to[x] = 0;
}
__kernel void put_whole_rows(MEM(out), MEM(values), MEM(index), MEM(mark), long inner, long many, long size, long low, long rows) {
  const long first = (long)get_global_id(0) * ROW_PART, row = get_global_id(1);
  if (row >= rows) return;
  const long raw = AT(long, index)[row % many], to = WRAPPED(raw, size, low, mark);
  if (to >= 0) copy_row(AT(RAW, out) + (row / many * size + to) * inner, AT(RAW, values) + row * inner, first, inner);
}
#endif
#endif

// gather: out = in at the element's own place, moved by its index along one dimension. Operands: out, in, index (strides in bytes).
__kernel void gather(MEM(out), MEM(in), MEM(index), MEM(mark), long size, long stride, Grid grid) {
  const long i0 = get_global_id(0), i1 = get_global_id(1), i2 = get_global_id(2);
  if (i0 >= grid.sizes[0] || i1 >= grid.sizes[1] || i2 >= rows_of(&grid)) return;
  long at[3];
  offsets_of(&grid, i0, i1, i2, 3, at);
  const long raw = *(__global long *)(index_base + index_offset + at[2]), from = WRAPPED(raw, size, 0, mark);
  RAW value = (RAW)(0);
  if (from >= 0) value = *(__global RAW *)(in_base + in_offset + at[1] + from * stride);
  *(__global RAW *)(out_base + out_offset + at[0]) = value;
}
__kernel void scatter(MEM(out), MEM(in), MEM(index), MEM(mark), long size, long stride, Grid grid) {
  const long i0 = get_global_id(0), i1 = get_global_id(1), i2 = get_global_id(2);
  if (i0 >= grid.sizes[0] || i1 >= grid.sizes[1] || i2 >= rows_of(&grid)) return;
  long at[3];
  offsets_of(&grid, i0, i1, i2, 3, at);
  const long raw = *(__global long *)(index_base + index_offset + at[2]), to = WRAPPED(raw, size, 0, mark);
  if (to >= 0) *(__global RAW *)(out_base + out_offset + at[0] + to * stride) = *(__global RAW *)(in_base + in_offset + at[1]);
}
// The element of a contiguous tensor that scatter would write, in the order of the indices. Operands: to (long), out, index.
__kernel void destinations(MEM(to), MEM(index), MEM(mark), long size, long stride, long element, Grid grid) {
  const long i0 = get_global_id(0), i1 = get_global_id(1), i2 = get_global_id(2);
  if (i0 >= grid.sizes[0] || i1 >= grid.sizes[1] || i2 >= rows_of(&grid)) return;
  long at[3];
  offsets_of(&grid, i0, i1, i2, 3, at);
  const long raw = *(__global long *)(index_base + index_offset + at[2]), here = WRAPPED(raw, size, 0, mark);
  *(__global long *)(to_base + to_offset + at[0]) = here < 0 ? -1 : (at[1] + here * stride) / element;
}

// Several indices become one: so_far = so_far * size + index.
__kernel void join_index(MEM(so_far), MEM(index), MEM(mark), long size, long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  const long raw = AT(long, index)[i], here = WRAPPED(raw, size, -size, mark), before = AT(long, so_far)[i];
  AT(long, so_far)[i] = here < 0 || before < 0 ? -1 : before * size + here;
}

// Sums over equal indices, without atomic sums: the sources of a row become a list, which one work item then walks.
// head[row]: a source of that row or -1; next[i]: another source of the same row or -1. `skipped`: a row that gets nothing.
__kernel void link(MEM(head), MEM(next), MEM(index), MEM(mark), long size, long low, long skipped, long n) {
  const long i = get_global_id(0);
  if (i >= n) return;
  const long raw = AT(long, index)[i], row = WRAPPED(raw, size, low, mark);
  if (row < 0 || row == skipped) return;
  AT(int, next)[i] = atomic_xchg((volatile __global int *)AT(int, head) + row, (int)i);
}
#else
#define XT TYPE(X)
// out[o, row, x] += scale * sum over the row's sources i of in[o, i, x].
__kernel void add_lists(MEM(out), MEM(in), MEM(head), MEM(next), MEM(index), long inner, long many, long size, XT scale, long n) {
  const long at = get_global_id(0);
  if (at >= n) return;
  const INDEX line = (INDEX)at / (INDEX)inner, x = (INDEX)at - line * (INDEX)inner;
  const INDEX o = line / (INDEX)many, i = line - o * (INDEX)many;
  long row = AT(long, index)[i];
  if (row < 0) row += size;
  if (row < 0 || row >= size || AT(int, head)[row] != (int)i) return;
  XT sum = 0;
  for (int k = (int)i; k >= 0; k = AT(int, next)[k]) sum += CONVERT(X, LOAD(T, AT(MEM_TYPE(T), in) + ((long)o * many + k) * inner + x));
  __global MEM_TYPE(T) *to = AT(MEM_TYPE(T), out) + ((long)o * size + row) * inner + x;
  STORE(T, to, CONVERT(T, CONVERT(X, LOAD(T, to)) + scale * sum));
}
#endif
