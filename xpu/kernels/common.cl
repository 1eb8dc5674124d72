// What all kernels share. An address is a pointer and an offset in bytes (xpu/opencl/device.h).
#define MEM(name) __global char *name##_base, ulong name##_offset
#define AT(type, name) ((__global type *)(name##_base + name##_offset))

#ifdef HAS_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

// Types of elements: how they lie in memory (M_x), how they are computed with (C_x), how one becomes the other.
// half and bfloat16 compute in float, so that a device without cl_khr_fp16 has them too.
#define M_float float
#define C_float float
#define LOAD_float(p) (*(p))
#define STORE_float(p, v) (*(p) = (v))
#define M_half half
#define C_half float
#define LOAD_half(p) vload_half(0, p)
#define STORE_half(p, v) vstore_half(v, 0, p)
// PoCL 3.1 calls a function for each half, which keeps loops over work items out of vectors. Where the CPU has instructions for it, clang has words for them.
#if !defined(GPU) && defined(__F16C__) && defined(__has_builtin)
#if __has_builtin(__builtin_load_halff) && __has_builtin(__builtin_store_halff)
#undef LOAD_half
#undef STORE_half
#define LOAD_half(p) __builtin_load_halff(p)
#define STORE_half(p, v) __builtin_store_halff(v, p)
#endif
#endif
#define M_bfloat ushort
#define C_bfloat float
#define LOAD_bfloat(p) as_float((uint)(*(p)) << 16)
inline ushort to_bfloat(float v) {
  uint bits = as_uint(v);
  if (isnan(v)) return (ushort)0x7fc0;
  return (ushort)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);  // to nearest, ties to even
}
#define STORE_bfloat(p, v) (*(p) = to_bfloat(v))
#define M_double double
#define C_double double
#define LOAD_double(p) (*(p))
#define STORE_double(p, v) (*(p) = (v))
#define M_long long
#define C_long long
#define LOAD_long(p) (*(p))
#define STORE_long(p, v) (*(p) = (v))
#define M_int int
#define C_int int
#define LOAD_int(p) (*(p))
#define STORE_int(p, v) (*(p) = (v))
#define M_short short
#define C_short short
#define LOAD_short(p) (*(p))
#define STORE_short(p, v) (*(p) = (v))
#define M_char char
#define C_char char
#define LOAD_char(p) (*(p))
#define STORE_char(p, v) (*(p) = (v))
#define M_uchar uchar
#define C_uchar uchar
#define LOAD_uchar(p) (*(p))
#define STORE_uchar(p, v) (*(p) = (v))
#define M_bool uchar
#define C_bool uchar
#define LOAD_bool(p) ((uchar)(*(p) != 0))
#define STORE_bool(p, v) (*(p) = (uchar)((v) != 0))

// From any computing type to that of t. Whatever is not zero is true.
#define CONVERT_float(v) ((float)(v))
#define CONVERT_half(v) ((float)(v))
#define CONVERT_bfloat(v) ((float)(v))
#define CONVERT_double(v) ((double)(v))
#define CONVERT_long(v) ((long)(v))
#define CONVERT_int(v) ((int)(v))
#define CONVERT_short(v) ((short)(v))
#define CONVERT_char(v) ((char)(v))
#define CONVERT_uchar(v) ((uchar)(v))
#define CONVERT_bool(v) ((uchar)((v) != 0))

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define MEM_TYPE(t) JOIN(M_, t)
#define TYPE(t) JOIN(C_, t)
#define CONVERT(t, v) JOIN(CONVERT_, t)(v)
#define LOAD(t, p) JOIN(LOAD_, t)(p)
#define STORE(t, p, v) JOIN(STORE_, t)(p, v)

#ifndef GPU
// Vectors of 16 elements for devices whose work items are a CPU's, which makes none of its own of loops inside an item: VECTOR(t) of the computing
// type, LOADS and STORES between it and memory, VECTOR_AS(t, v) from another one.
#define IS_SINGLE_float 1
#define IS_REAL_float 1
#define IS_REAL_half 1
#define IS_REAL_bfloat 1
#ifdef HAS_FP64
#define IS_REAL_double 1
#endif
#define V_float float16
#define V_half float16
#define V_bfloat float16
#define V_double double16
#define LOADS_float(p) vload16(0, p)
#define LOADS_double(p) vload16(0, p)
#define LOADS_half(p) vload_half16(0, p)
#define LOADS_bfloat(p) as_float16(convert_uint16(vload16(0, p)) << 16)
#define STORES_float(p, v) vstore16(v, 0, p)
#define STORES_double(p, v) vstore16(v, 0, p)
#define STORES_half(p, v) vstore_half16(v, 0, p)
#define STORES_bfloat(p, v) vstore16(to_bfloats(v), 0, p)
inline ushort16 to_bfloats(float16 v) {
  const uint16 bits = as_uint16(v), rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return convert_ushort16(select(rounded, (uint16)(0x7fc0u), isnan(v)));
}
#define VECTOR_AS_float(v) convert_float16(v)
#define VECTOR_AS_double(v) convert_double16(v)
#define VECTOR(t) JOIN(V_, t)
#define LOADS(t, p) JOIN(LOADS_, t)(p)
#define STORES(t, p, v) JOIN(STORES_, t)(p, v)
#define VECTOR_AS(t, v) JOIN(VECTOR_AS_, t)(v)
#endif

// Up to 8 dimensions, the first one fastest, and strides in bytes of up to 4 operands. The first three dimensions are the launch's axes;
// the third carries the product of the rest.
typedef struct {
  long sizes[8];
  long strides[4][8];
} Grid;

inline void offsets_of(const Grid *grid, long i0, long i1, long i2, int operands, long *offset) {
  for (int k = 0; k < operands; ++k) offset[k] = i0 * grid->strides[k][0] + i1 * grid->strides[k][1];
  long rest = i2;
  for (int d = 2; d < 8 && rest != 0; ++d) {
    const long size = grid->sizes[d];
    long here = rest, above = 0;
    if (d < 7 && rest >= size) {
      // Divisions of 64 bits are slow.
      above = (rest | size) >> 32 == 0 ? (long)((uint)rest / (uint)size) : rest / size;
      here = rest - above * size;
    }
    rest = above;
    for (int k = 0; k < operands; ++k) offset[k] += here * grid->strides[k][d];
  }
}
inline long rows_of(const Grid *grid) {
  long out = 1;
  for (int d = 2; d < 8; ++d) out *= grid->sizes[d];
  return out;
}

// -DGPU: the device's work items are lanes. There a work item of a linear or strided kernel takes EACH elements, a group's width apart, and reads
// all before it writes the first: groups of one element a lane are begun more slowly than memory could feed them.
#ifndef EACH
#ifdef GPU
#define EACH 4
#else
#define EACH 1
#endif
#endif
// For each element i of a linear kernel over n: READ(e, i), then WRITE(e, i) (e: a constant where the loop is unrolled). EACH_FROM: of the items'
// elements that begin at `first` and lie `step` apart.
#define EACH_FROM(first, step, n, READ, WRITE)                                               \
  if ((first) + (EACH - 1) * (step) < (n)) {                                                 \
    _Pragma("unroll") for (int e_ = 0; e_ < EACH; ++e_) { READ(e_, (first) + e_ * (step)); }  \
    _Pragma("unroll") for (int e_ = 0; e_ < EACH; ++e_) { WRITE(e_, (first) + e_ * (step)); } \
  } else {                                                                                   \
    for (long j_ = (first); j_ < (n); j_ += (step)) {                                        \
      READ(0, j_);                                                                           \
      WRITE(0, j_);                                                                          \
    }                                                                                        \
  }
#if EACH == 1
#define LINEAR(n, READ, WRITE)        \
  const long i_ = get_global_id(0);   \
  if (i_ < (n)) {                     \
    READ(0, i_);                      \
    WRITE(0, i_);                     \
  }
#else
#define LINEAR(n, READ, WRITE)                                                                 \
  const long step_ = get_local_size(0), i_ = get_group_id(0) * step_ * EACH + get_local_id(0); \
  EACH_FROM(i_, step_, n, READ, WRITE)
#endif
// Kernels over many tensors at once: a table in memory has a Row for a tensor of each of up to six lists (preload/xpu/tables.h), and a work group takes
// a chunk of CHUNK elements of one of them. TABLE_ROW declares row_, TABLE_EACH is EACH_FROM over the elements of the chunk.
typedef struct {
  ulong address[6];
  long elements;
  ulong number;  // bits of what belongs to this tensor alone
  long first;    // where its chunks begin, all counted together
  long unused;
} Row;
#define CHUNK 4096
#define TABLE MEM(table), int table_rows
#define TABLE_ROW                                                      \
  const long chunk_ = get_group_id(0);                                 \
  __global const Row *row_ = AT(const Row, table);                     \
  for (int many_ = table_rows; many_ > 1;) {                           \
    const int half_ = many_ / 2;                                       \
    if (row_[half_].first <= chunk_) row_ += half_, many_ -= half_;    \
    else many_ = half_;                                                \
  }                                                                    \
  const long begin_ = (chunk_ - row_->first) * CHUNK, end_ = min(begin_ + CHUNK, row_->elements), step_ = get_local_size(0)
#define TABLE_EACH(READ, WRITE)                                                                      \
  for (long first_ = begin_ + get_local_id(0); first_ < end_; first_ += step_ * EACH) {              \
    EACH_FROM(first_, step_, end_, READ, WRITE)                                                      \
  }
// Likewise for kernels over a grid with `int axis` (0 or 1): at[k] of `operands` operands is set, READ and WRITE get the steps along the axis.
#define AXIS_STRIDE(k) (axis == 0 ? grid.strides[k][0] : grid.strides[k][1])
#if EACH == 1
#define STRIDED(operands, READ, WRITE)                                                       \
  const long i0_ = get_global_id(0), i1_ = get_global_id(1), i2_ = get_global_id(2);         \
  if (i0_ >= grid.sizes[0] || i1_ >= grid.sizes[1] || i2_ >= rows_of(&grid)) return;         \
  offsets_of(&grid, i0_, i1_, i2_, operands, at);                                            \
  READ(0, 0);                                                                                \
  WRITE(0, 0);
#else
#define STRIDED(operands, READ, WRITE)                                                                              \
  const long step_ = get_local_size(axis);                                                                          \
  const long i0_ = axis == 0 ? get_group_id(0) * step_ * EACH + get_local_id(0) : get_global_id(0);                 \
  const long i1_ = axis == 0 ? get_global_id(1) : get_group_id(1) * step_ * EACH + get_local_id(1);                 \
  const long i2_ = get_global_id(2), here_ = axis == 0 ? i0_ : i1_, end_ = axis == 0 ? grid.sizes[0] : grid.sizes[1]; \
  if (i0_ >= grid.sizes[0] || i1_ >= grid.sizes[1] || i2_ >= rows_of(&grid)) return;                                \
  offsets_of(&grid, i0_, i1_, i2_, operands, at);                                                                   \
  if (here_ + (EACH - 1) * step_ < end_) {                                                                          \
    _Pragma("unroll") for (int e_ = 0; e_ < EACH; ++e_) { READ(e_, e_ * step_); } \
    _Pragma("unroll") for (int e_ = 0; e_ < EACH; ++e_) { WRITE(e_, e_ * step_); } \
  } else {                                                                                                          \
    for (long j_ = 0; here_ + j_ < end_; j_ += step_) {                                                             \
      READ(0, j_);                                                                                                  \
      WRITE(0, j_);                                                                                                 \
    }                                                                                                               \
  }
#endif

#ifndef GPU
// Kernels over lines of a grid, for devices whose work items are a CPU's: an item has element i_ of a line along axis 0. Loops over a group's items go into
// vectors where places are sums of products with arguments, and the steps along the line constants (neighbours, or 0: one element for the whole line):
// LINE, for three dimensions of a grid, whose line starts at line_out, line_a, ... in each operand.
#define LINES_OF_GRID \
  long line_n, long out_0, long out_1, long out_2, long a_0, long a_1, long a_2, long b_0, long b_1, long b_2, long c_0, long c_1, long c_2
#define LINE                                                                              \
  const long i_ = get_global_id(0), y_ = get_global_id(1), z_ = get_global_id(2);         \
  if (i_ >= line_n) return;                                                               \
  const long line_out = out_0 + y_ * out_1 + z_ * out_2, line_a = a_0 + y_ * a_1 + z_ * a_2; \
  const long line_b = b_0 + y_ * b_1 + z_ * b_2, line_c = c_0 + y_ * c_1 + z_ * c_2
// For any grid: where the line lies is found once a group, at[k] for each operand.
#define ANY_LINE(operands)                                                            \
  __local long at[4];                                                                 \
  if (get_local_id(0) == 0) {                                                         \
    long at_[4];                                                                      \
    offsets_of(&grid, 0, get_global_id(1), get_global_id(2), operands, at_);          \
    for (int k_ = 0; k_ < (operands); ++k_) at[k_] = at_[k_];                         \
  }                                                                                   \
  barrier(CLK_LOCAL_MEM_FENCE);                                                       \
  const long i_ = (long)get_group_id(0) * get_local_size(0) + get_local_id(0);        \
  if (i_ >= grid.sizes[0]) return
#endif

// A batch of products of matrices, out = alpha * a b + beta * c (gemm.cl, gemm_matrix.cl); strides in elements.
typedef struct {
  long m, n, k;
  long a_row, a_col, a_batch;
  long b_row, b_col, b_batch;
  long c_row, c_col, c_batch;
  long out_row, out_col, out_batch;
} Product;
// The result at row and column, of the sum of products. Sum is a type; shape, batch, alpha and beta are the kernel's. -DO=: the type of out and c,
// where it is not T.
#ifndef O
#define O T
#endif
#define STORE_PRODUCT(row, column, sum)                                                                                           \
  {                                                                                                                               \
    Sum value_ = alpha * (sum);                                                                                                   \
    if (beta != 0)                                                                                                                \
      value_ += beta * (Sum)LOAD(O, AT(MEM_TYPE(O), c) + batch * shape.c_batch + (row) * shape.c_row + (column) * shape.c_col);   \
    STORE(O, AT(MEM_TYPE(O), out) + batch * shape.out_batch + (row) * shape.out_row + (column) * shape.out_col, value_);          \
  }

// An index from `low` (0, or -size where counting from the end is allowed) to size - 1 becomes 0 to size - 1. Others are marked
// (preload/xpu/index_check.h) and become -1.
#define MARK(name) atomic_or((volatile __global int *)(name##_base + name##_offset), 1)
#define WRAPPED(index, size, low, mark) ((index) >= (low) && (index) < (size) ? ((index) < 0 ? (index) + (size) : (index)) : (MARK(mark), -1L))
