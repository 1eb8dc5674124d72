// out = alpha * a b + beta * c for a batch of matrices of type T; c may be broadcast (strides of 0). Strides in elements.
// A work item makes ROWS elements of a column: what the items of a group load of b lies side by side, and they share what they load of a.
#define ROWS 8
#if defined(WIDE)
typedef double Sum;
#else
typedef float Sum;
#endif

typedef struct {
  long m, n, k;
  long a_row, a_col, a_batch;
  long b_row, b_col, b_batch;
  long c_row, c_col, c_batch;
  long out_row, out_col, out_batch;
} Shape;

__kernel void gemm(MEM(out), MEM(a), MEM(b), MEM(c), Shape shape, Sum alpha, Sum beta) {
  const long column = get_global_id(0);
  const long first = (long)get_global_id(1) * ROWS;
  const long batch = get_global_id(2);
  if (column >= shape.n || first >= shape.m) return;
  __global MEM_TYPE(T) *a = AT(MEM_TYPE(T), a) + batch * shape.a_batch;
  __global MEM_TYPE(T) *b = AT(MEM_TYPE(T), b) + batch * shape.b_batch + column * shape.b_col;
  Sum sum[ROWS];
  long row[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    sum[r] = 0;
    row[r] = min(first + r, shape.m - 1) * shape.a_row;  // rows beyond the end repeat the last one and are not stored
  }
  for (long k = 0; k < shape.k; ++k) {
    const Sum right = LOAD(T, b + k * shape.b_row);
    for (int r = 0; r < ROWS; ++r) sum[r] += (Sum)LOAD(T, a + row[r] + k * shape.a_col) * right;
  }
  for (int r = 0; r < ROWS; ++r) {
    if (first + r >= shape.m) return;
    Sum value = alpha * sum[r];
    if (beta != 0) {
      __global MEM_TYPE(T) *c = AT(MEM_TYPE(T), c) + batch * shape.c_batch + (first + r) * shape.c_row + column * shape.c_col;
      value += beta * (Sum)LOAD(T, c);
    }
    STORE(T, AT(MEM_TYPE(T), out) + batch * shape.out_batch + (first + r) * shape.out_row + column * shape.out_col, value);
  }
}
