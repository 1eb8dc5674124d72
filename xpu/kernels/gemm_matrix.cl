// out = alpha * a b + beta * c for half and bfloat, by the matrix units of a sub-group (cl_intel_subgroup_matrix_multiply_accumulate: dpas).
// MATRIX: lanes of a sub-group, 16 (Xe-HPC) or 8 (Xe-HPG): the device says which (xpu/opencl/find.cpp). The compiler declares neither these
// functions nor their macro, and takes them for devices without such units, too: it is ours to ask only where they are.
// MATRIX_EMULATED: the same by work items and local memory, so that the order of values can be tested anywhere.
typedef float Sum;

// One step: 8 rows of a by 16 of k, times 16 of k by MATRIX columns of b. A lane has one column: of the sums 8 rows, of b 16 values of k, two an int,
// the lower one first. Of a it has for each row one value of k (the lane's) or, with 8 lanes, two.
#define DEPTH 16
#define STEP_ROWS 8
#define STEPS_ACROSS 2  // of a sub-group: its tile is 8 * STEPS_DOWN rows by 2 * MATRIX columns
#define SUB_GROUPS 4    // of a group, below each other: they read the same columns of b
#if MATRIX == 16
#define STEPS_DOWN 4
typedef short8 Left;
typedef short LeftValue;
#else
#define STEPS_DOWN 2
typedef int8 Left;
typedef int LeftValue;
#endif

#ifdef MATRIX_EMULATED
#define LANE ((int)get_local_id(0))
#define SUB_GROUP_OF_LANES
#define UNROLL  // barriers inside: a CPU's compiler would take a minute
inline float8 multiply(Left a, int8 b, float8 sums, __local ushort *left) {
  LeftValue mine[STEP_ROWS];
  int right[8];
  float sum[STEP_ROWS];
  vstore8(a, 0, mine);
  vstore8(b, 0, right);
  vstore8(sums, 0, sum);
  left += get_local_id(1) * STEP_ROWS * DEPTH;
  for (int r = 0; r < STEP_ROWS; ++r) {
#if MATRIX == 16
    left[r * DEPTH + LANE] = (ushort)mine[r];
#else
    left[r * DEPTH + 2 * LANE] = (ushort)mine[r];
    left[r * DEPTH + 2 * LANE + 1] = (ushort)((uint)mine[r] >> 16);
#endif
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int r = 0; r < STEP_ROWS; ++r)
    for (int k = 0; k < DEPTH; ++k) {
      ushort bits = (ushort)((uint)right[k / 2] >> (k % 2 * 16));
      sum[r] += LOAD(T, (__local MEM_TYPE(T) *)left + r * DEPTH + k) * LOAD(T, (MEM_TYPE(T) *)&bits);
    }
  barrier(CLK_LOCAL_MEM_FENCE);
  return vload8(0, sum);
}
#else
#define LANE ((int)get_sub_group_local_id())
#define UNROLL _Pragma("unroll")
#define SUB_GROUP_OF_LANES __attribute__((intel_reqd_sub_group_size(MATRIX)))
#define MULTIPLY_half intel_sub_group_f16_f16_matrix_mad_k16
#define MULTIPLY_bfloat intel_sub_group_bf16_bf16_matrix_mad_k16
float8 __attribute__((overloadable)) JOIN(MULTIPLY_, T)(Left a, int8 b, float8 sums);
#define multiply(a, b, sums, left) JOIN(MULTIPLY_, T)(a, b, sums)
#endif

__kernel __attribute__((reqd_work_group_size(MATRIX, SUB_GROUPS, 1))) SUB_GROUP_OF_LANES void gemm_matrix(MEM(out), MEM(a), MEM(b), MEM(c), Product shape,
                                                                                                       float alpha, float beta) {
#ifdef MATRIX_EMULATED
  __local ushort left[SUB_GROUPS * STEP_ROWS * DEPTH];
#endif
  const int lane = LANE;
  const long first_column = (long)get_group_id(0) * (STEPS_ACROSS * MATRIX) + lane;
  const long first_row = ((long)get_group_id(1) * SUB_GROUPS + get_local_id(1)) * (STEPS_DOWN * STEP_ROWS);
  const long batch = get_global_id(2);
  __global const ushort *a = AT(const ushort, a) + batch * shape.a_batch;
  __global const ushort *b = AT(const ushort, b) + batch * shape.b_batch;
  float8 sums[STEPS_DOWN][STEPS_ACROSS];
UNROLL
  for (int i = 0; i < STEPS_DOWN; ++i)
UNROLL
    for (int j = 0; j < STEPS_ACROSS; ++j) sums[i][j] = (float8)(0);
  for (long k = 0; k < shape.k; k += DEPTH) {  // no lane may leave before the others: what lies beyond an edge is 0
    int8 right[STEPS_ACROSS];
UNROLL
    for (int j = 0; j < STEPS_ACROSS; ++j) {
      const long column = first_column + j * MATRIX;
      int values[8];
UNROLL
      for (int i = 0; i < 8; ++i) {
        const long deep = k + 2 * i;
        const uint low = column < shape.n && deep < shape.k ? b[deep * shape.b_row + column * shape.b_col] : 0;
        const uint high = column < shape.n && deep + 1 < shape.k ? b[(deep + 1) * shape.b_row + column * shape.b_col] : 0;
        values[i] = (int)(low | high << 16);
      }
      right[j] = vload8(0, values);
    }
UNROLL
    for (int i = 0; i < STEPS_DOWN; ++i) {
      LeftValue values[STEP_ROWS];
UNROLL
      for (int r = 0; r < STEP_ROWS; ++r) {
        const long row = first_row + i * STEP_ROWS + r;
#if MATRIX == 16
        values[r] = row < shape.m && k + lane < shape.k ? (short)a[row * shape.a_row + (k + lane) * shape.a_col] : (short)0;
#else
        const long deep = k + 2 * lane;
        const uint low = row < shape.m && deep < shape.k ? a[row * shape.a_row + deep * shape.a_col] : 0;
        const uint high = row < shape.m && deep + 1 < shape.k ? a[row * shape.a_row + (deep + 1) * shape.a_col] : 0;
        values[r] = (int)(low | high << 16);
#endif
      }
      const Left rows = vload8(0, values);
UNROLL
      for (int j = 0; j < STEPS_ACROSS; ++j) sums[i][j] = multiply(rows, right[j], sums[i][j], left);
    }
  }
UNROLL
  for (int i = 0; i < STEPS_DOWN; ++i)
UNROLL
    for (int j = 0; j < STEPS_ACROSS; ++j) {
      float values[STEP_ROWS];
      vstore8(sums[i][j], 0, values);
      const long column = first_column + j * MATRIX;
UNROLL
      for (int r = 0; r < STEP_ROWS; ++r) {
        const long row = first_row + i * STEP_ROWS + r;
        if (row >= shape.m || column >= shape.n) continue;
        STORE_PRODUCT(row, column, values[r])
      }
    }
}
