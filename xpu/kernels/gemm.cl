// out = alpha * a b + beta * c for a batch of matrices of type T; c may be broadcast (strides of 0). Strides in elements.
#define ROWS 8  // of a work item on a CPU
#if defined(WIDE)
typedef double Sum;
#else
typedef float Sum;
#endif

// For a few rows, of which a tile would be mostly empty: an item makes ROWS results of a column.
__kernel void gemm(MEM(out), MEM(a), MEM(b), MEM(c), Product shape, Sum alpha, Sum beta) {
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
    STORE_PRODUCT(first + r, column, sum[r])
  }
}

#ifdef GPU
// For devices whose work items are lanes: a group of 16 x 16 makes a tile of 64 x 64 results, 4 x 4 a lane, from tiles of a and b that it has put
// into local memory. Neighbours load what lies side by side, whichever of the two dimensions that is; what lies beyond an edge is 0. A lane's
// results are 16 apart, so that stores and reads of local memory are side by side, too.
#define TILE 64
#define DEPTH 16
#define SIDE 16
#define EACH (TILE / SIDE)
#define PITCH (TILE + 1)  // of local memory: no two lanes of a column in one bank

__kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1))) void gemm_tiles(MEM(out), MEM(a), MEM(b), MEM(c), Product shape, Sum alpha, Sum beta) {
  __local Sum left[DEPTH * PITCH], right[DEPTH * PITCH];
  const int x = (int)get_local_id(0), y = (int)get_local_id(1), lane = y * SIDE + x;
  const long first_row = (long)get_group_id(1) * TILE, first_column = (long)get_group_id(0) * TILE;
  const long batch = get_global_id(2);
  __global MEM_TYPE(T) *a = AT(MEM_TYPE(T), a) + batch * shape.a_batch;
  __global MEM_TYPE(T) *b = AT(MEM_TYPE(T), b) + batch * shape.b_batch;
  Sum sum[EACH][EACH];
  for (int i = 0; i < EACH; ++i)
    for (int j = 0; j < EACH; ++j) sum[i][j] = 0;
  for (long k = 0; k < shape.k; k += DEPTH) {
    for (int i = lane; i < TILE * DEPTH; i += SIDE * SIDE) {
      const int row = shape.a_col == 1 ? i / DEPTH : i % TILE, deep = shape.a_col == 1 ? i % DEPTH : i / TILE;
      const bool inside = first_row + row < shape.m && k + deep < shape.k;
      left[deep * PITCH + row] = inside ? (Sum)LOAD(T, a + (first_row + row) * shape.a_row + (k + deep) * shape.a_col) : 0;
    }
    for (int i = lane; i < TILE * DEPTH; i += SIDE * SIDE) {
      const int column = shape.b_row == 1 ? i / DEPTH : i % TILE, deep = shape.b_row == 1 ? i % DEPTH : i / TILE;
      const bool inside = first_column + column < shape.n && k + deep < shape.k;
      right[deep * PITCH + column] = inside ? (Sum)LOAD(T, b + (k + deep) * shape.b_row + (first_column + column) * shape.b_col) : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int deep = 0; deep < DEPTH; ++deep) {
      Sum rows[EACH], columns[EACH];
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        rows[i] = left[deep * PITCH + y + i * SIDE];
        columns[i] = right[deep * PITCH + x + i * SIDE];
      }
#pragma unroll
      for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int j = 0; j < EACH; ++j) sum[i][j] = fma(rows[i], columns[j], sum[i][j]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < EACH; ++i) {
    const long row = first_row + y + i * SIDE;
    for (int j = 0; j < EACH; ++j) {
      const long column = first_column + x + j * SIDE;
      if (row >= shape.m || column >= shape.n) continue;
      STORE_PRODUCT(row, column, sum[i][j])
    }
  }
}

// The end of a product whose k was computed in parts, each into floats of its own as a batch of parts: shape.a_ are their strides, shape.k is their
// number, b is not looked at.
__kernel void gemm_sum(MEM(out), MEM(a), MEM(b), MEM(c), Product shape, Sum alpha, Sum beta) {
  const long column = get_global_id(0), row = get_global_id(1), batch = 0;
  if (column >= shape.n || row >= shape.m) return;
  __global float *part = AT(float, a) + row * shape.a_row + column * shape.a_col;
  Sum total = 0;
  for (long k = 0; k < shape.k; ++k) total += part[k * shape.a_batch];
  STORE_PRODUCT(row, column, total)
}

#if !defined(WIDE)
// More results a lane: a group makes BLOCK x BLOCK of them, 8 x 8 a lane (4 x 4 in each quarter), so that 64 multiplications follow on each 16
// values read from local memory. While one tile of a and b is multiplied the next one is on its way. -DBLOCK=: 128, or 64 for smaller products.
#ifndef BLOCK
#define BLOCK 128
#endif
#define SHALLOW 8
#define LINE (BLOCK + 4)  // of local memory: stores of four rows side by side fall into different banks, rows stay aligned for float4
#define BLOCK_SIDE (BLOCK / 8)
#define LOADED (BLOCK * SHALLOW / (BLOCK_SIDE * BLOCK_SIDE))

// -DKERNEL_HEIGHT= -DKERNEL_WIDTH=: b is the matrix of a convolution's columns, which nobody has written: its row is a channel and a place in the
// window, its column an output place of one of the images, and an element is read from the image. out and c then have that column's image as batch.
#ifdef KERNEL_HEIGHT
typedef struct {
  int in[2], out[2], stride[2], padding[2], dilation[2];  // height, width
  long image;                                             // elements of an image
} Window;
#define WINDOW_PARAMETER , Window window
#define B_OF_LANE int b_y[LOADED], b_x[LOADED]
#define FIND_B(e, column, deep)                                                                \
  const int place_ = (int)((column) % (window.out[0] * window.out[1]));                        \
  b_at[e] = b + (column) / (window.out[0] * window.out[1]) * window.image;                     \
  b_y[e] = place_ / window.out[1] * window.stride[0] - window.padding[0];                      \
  b_x[e] = place_ % window.out[1] * window.stride[1] - window.padding[1]
#define NEXT_B(e)
inline float from_image(__global MEM_TYPE(T) *image, const Window *window, int y, int x, int k) {
  const int channel = k / (KERNEL_HEIGHT * KERNEL_WIDTH), rest = k % (KERNEL_HEIGHT * KERNEL_WIDTH);
  y += rest / KERNEL_WIDTH * window->dilation[0];
  x += rest % KERNEL_WIDTH * window->dilation[1];
  if (y < 0 || y >= window->in[0] || x < 0 || x >= window->in[1]) return 0;
  return LOAD(T, image + ((long)channel * window->in[0] + y) * window->in[1] + x);
}
#define LOAD_B(e, k) from_image(b_at[e], &window, b_y[e], b_x[e], (int)(k) + right_deep[e])
#define STORE_BLOCK(row, any_column, value)                                                                  \
  {                                                                                                          \
    const int places_ = window.out[0] * window.out[1];                                                       \
    const long batch = (any_column) / places_, place_ = (any_column) % places_;                              \
    STORE_PRODUCT(row, place_, value)                                                                        \
  }
#else
#define WINDOW_PARAMETER
#define B_OF_LANE
#define FIND_B(e, column, deep) b_at[e] = b + (column) * shape.b_col + (deep) * shape.b_row
#define NEXT_B(e) b_at[e] += SHALLOW * shape.b_row
#define LOAD_B(e, k) LOAD(T, b_at[e])
#define STORE_BLOCK(row, column, value) STORE_PRODUCT(row, column, value)
#endif

__kernel __attribute__((reqd_work_group_size(BLOCK_SIDE, BLOCK_SIDE, 1))) void gemm_blocks(MEM(out), MEM(a), MEM(b), MEM(c), Product shape, Sum alpha, Sum beta WINDOW_PARAMETER) {
  __local float left[2 * SHALLOW * LINE] __attribute__((aligned(16)));
  __local float right[2 * SHALLOW * LINE] __attribute__((aligned(16)));
  const int x = (int)get_local_id(0), y = (int)get_local_id(1), lane = y * BLOCK_SIDE + x;
  const long first_row = (long)get_group_id(1) * BLOCK, first_column = (long)get_group_id(0) * BLOCK;
  const long batch = get_global_id(2);
  __global MEM_TYPE(T) *a = AT(MEM_TYPE(T), a) + batch * shape.a_batch;
  __global MEM_TYPE(T) *b = AT(MEM_TYPE(T), b) + batch * shape.b_batch;
  // What a lane loads of each tile: where it lies in memory, and where in local memory; what is beyond an edge repeats the edge, and its
  // products are never stored.
  __global MEM_TYPE(T) *a_at[LOADED], *b_at[LOADED];
  int left_at[LOADED], right_at[LOADED], left_deep[LOADED], right_deep[LOADED];
  B_OF_LANE;
#pragma unroll
  for (int e = 0; e < LOADED; ++e) {
    const int i = lane + e * BLOCK_SIDE * BLOCK_SIDE;
    const int row = shape.a_col == 1 ? i / SHALLOW : i % BLOCK, a_deep = shape.a_col == 1 ? i % SHALLOW : i / BLOCK;
    const int column = shape.b_row == 1 ? i / SHALLOW : i % BLOCK, b_deep = shape.b_row == 1 ? i % SHALLOW : i / BLOCK;
    a_at[e] = a + min(first_row + row, shape.m - 1) * shape.a_row + a_deep * shape.a_col;
    const long b_column = min(first_column + column, shape.n - 1);
    FIND_B(e, b_column, b_deep);
    left_at[e] = a_deep * LINE + row;
    right_at[e] = b_deep * LINE + column;
    left_deep[e] = a_deep;
    right_deep[e] = b_deep;
  }
  float4 sum[8][2];
#pragma unroll
  for (int i = 0; i < 8; ++i) sum[i][0] = sum[i][1] = (float4)(0);
  float next_a[LOADED], next_b[LOADED];
#pragma unroll
  for (int e = 0; e < LOADED; ++e) {
    next_a[e] = left_deep[e] < shape.k ? LOAD(T, a_at[e]) : 0;
    next_b[e] = right_deep[e] < shape.k ? LOAD_B(e, 0) : 0;
  }
  int half_at = 0;
  for (long k = 0; k < shape.k; k += SHALLOW) {
#pragma unroll
    for (int e = 0; e < LOADED; ++e) {
      left[half_at + left_at[e]] = next_a[e];
      right[half_at + right_at[e]] = next_b[e];
      a_at[e] += SHALLOW * shape.a_col;
      NEXT_B(e);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (k + 2 * SHALLOW <= shape.k) {
#pragma unroll
      for (int e = 0; e < LOADED; ++e) {
        next_a[e] = LOAD(T, a_at[e]);
        next_b[e] = LOAD_B(e, k + SHALLOW);
      }
    } else if (k + SHALLOW < shape.k) {
#pragma unroll
      for (int e = 0; e < LOADED; ++e) {
        next_a[e] = k + SHALLOW + left_deep[e] < shape.k ? LOAD(T, a_at[e]) : 0;
        next_b[e] = k + SHALLOW + right_deep[e] < shape.k ? LOAD_B(e, k + SHALLOW) : 0;
      }
    }
#pragma unroll
    for (int deep = 0; deep < SHALLOW; ++deep) {
      const __local float4 *rows = (const __local float4 *)(left + half_at + deep * LINE);
      const __local float4 *columns = (const __local float4 *)(right + half_at + deep * LINE);
      const float4 r0 = rows[y], r1 = rows[y + BLOCK_SIDE], c0 = columns[x], c1 = columns[x + BLOCK_SIDE];
#define STEP(i, value)                            \
  sum[i][0] = fma((float4)(value), c0, sum[i][0]); \
  sum[i][1] = fma((float4)(value), c1, sum[i][1])
      STEP(0, r0.x);
      STEP(1, r0.y);
      STEP(2, r0.z);
      STEP(3, r0.w);
      STEP(4, r1.x);
      STEP(5, r1.y);
      STEP(6, r1.z);
      STEP(7, r1.w);
    }
    half_at = SHALLOW * LINE - half_at;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const long row = first_row + (i / 4) * (BLOCK / 2) + y * 4 + i % 4;
    if (row >= shape.m) continue;
    const float values[8] = {sum[i][0].x, sum[i][0].y, sum[i][0].z, sum[i][0].w, sum[i][1].x, sum[i][1].y, sum[i][1].z, sum[i][1].w};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const long column = first_column + (j / 4) * (BLOCK / 2) + x * 4 + j % 4;
      if (column >= shape.n) continue;
      STORE_BLOCK(row, column, values[j])
    }
  }
}
#endif

#else
// The same for devices whose work items are a CPU's: one item makes ROWS x 16 results in vectors. b's columns lie side by side.
typedef VECTOR(T) Sums;

__kernel void gemm_vectors(MEM(out), MEM(a), MEM(b), MEM(c), Product shape, Sum alpha, Sum beta) {
  const long first_column = (long)get_global_id(0) * 16;
  const long first = (long)get_global_id(1) * ROWS;
  const long batch = get_global_id(2);
  if (first_column >= shape.n || first >= shape.m) return;
  const int columns = (int)min(shape.n - first_column, 16L), rows = (int)min(shape.m - first, (long)ROWS);
  __global MEM_TYPE(T) *a = AT(MEM_TYPE(T), a) + batch * shape.a_batch;
  __global MEM_TYPE(T) *b = AT(MEM_TYPE(T), b) + batch * shape.b_batch + first_column;
  Sums sum[ROWS];
  __global MEM_TYPE(T) *row[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    sum[r] = (Sums)(0);
    row[r] = a + min(first + r, shape.m - 1) * shape.a_row;
  }
  if (columns == 16) {
    for (long k = 0; k < shape.k; ++k) {
      const Sums right = LOADS(T, b + k * shape.b_row);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sum[r] = fma((Sums)((Sum)LOAD(T, row[r] + k * shape.a_col)), right, sum[r]);
    }
  } else {
    for (long k = 0; k < shape.k; ++k) {
      Sum few[16];
      for (int i = 0; i < 16; ++i) few[i] = i < columns ? (Sum)LOAD(T, b + k * shape.b_row + i) : 0;
      const Sums right = vload16(0, few);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sum[r] = fma((Sums)((Sum)LOAD(T, row[r] + k * shape.a_col)), right, sum[r]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    Sum values[16];
    vstore16(sum[r], 0, values);
    for (int i = 0; i < columns; ++i) {
      STORE_PRODUCT(first + r, first_column + i, values[i])
    }
  }
}

// For a few rows where k is what lies side by side, in a and in b (a weight of a linear layer): an item makes a column of results, 16 products at
// a time. What a row beyond the last one computes is not stored.
__kernel void gemm_rows(MEM(out), MEM(a), MEM(b), MEM(c), Product shape, Sum alpha, Sum beta) {
  const long column = get_global_id(0);
  const long first = (long)get_global_id(1) * ROWS;
  const long batch = get_global_id(2);
  if (column >= shape.n || first >= shape.m) return;
  const int rows = (int)min(shape.m - first, (long)ROWS);
  __global MEM_TYPE(T) *a = AT(MEM_TYPE(T), a) + batch * shape.a_batch;
  __global MEM_TYPE(T) *b = AT(MEM_TYPE(T), b) + batch * shape.b_batch + column * shape.b_col;
  Sums sum[ROWS];
  __global MEM_TYPE(T) *row[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    sum[r] = (Sums)(0);
    row[r] = a + min(first + r, shape.m - 1) * shape.a_row;
  }
  const long whole = shape.k / 16 * 16;
  if (rows == 1) {
    for (long k = 0; k < whole; k += 16) sum[0] = fma(LOADS(T, row[0] + k), LOADS(T, b + k), sum[0]);
  } else {
    for (long k = 0; k < whole; k += 16) {
      const Sums right = LOADS(T, b + k);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sum[r] = fma(LOADS(T, row[r] + k), right, sum[r]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    Sum values[16], total = 0;
    vstore16(sum[r], 0, values);
    for (int i = 0; i < 16; ++i) total += values[i];
    for (long k = whole; k < shape.k; ++k) total += (Sum)LOAD(T, row[r] + k) * (Sum)LOAD(T, b + k);
    STORE_PRODUCT(first + r, column, total)
  }
}
#endif
