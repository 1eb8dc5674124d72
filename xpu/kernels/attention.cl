// softmax(scale * q k^T + mask) v for devices whose items are lanes, without the matrix of scores in memory: a group of 8 x 8 lanes keeps QUERIES rows of
// q and their results, and goes over the keys KEYS at a time. Method: the running maximum and sum of Milakov and Gimelshein (Online normalizer calculation
// for softmax, 2018), in tiles as in FlashAttention (Dao et al., 2022).
//   -DT= type of elements, sums are float's   -DHEAD= elements of a row at most: 32, 64, 96 or 128   -DMASK= type of the mask, which is
//   added, or with -DCHOOSES says which keys count
#if HEAD <= 64
#define QUERIES 64
#else
#define QUERIES 32
#endif
#define KEYS 32
#define LANES 64
#define FOURS (QUERIES / 32)                // a lane's rows come in groups of four side by side, 32 apart
#define VALUES (HEAD / 32)                  // and so do its elements of the result
#define QUERY_LINE (QUERIES + 4)            // of local memory
#define KEY_LINE (KEYS + 4)
#define VALUE_LINE (HEAD + 4)

typedef struct {
  int heads, shared, queries, keys, width, value_width, causal;  // shared: heads of q that share one of k and v
  int unused;
  long q[3], k[3], v[3], out[3];  // strides of batch, head and row, in elements
  long mask[4];                   // of batch, head, query and key
} Attention;

#ifdef CHOOSES
#define MASKED(value, given) ((given) ? (value) : -INFINITY)
#else
#define MASKED(value, given) ((value) + (given))
#endif
// Four rows of sums.
#define FOUR_SUMS(sum, rows, columns)       \
  sum[0] = fma((float4)((rows).x), columns, sum[0]); \
  sum[1] = fma((float4)((rows).y), columns, sum[1]); \
  sum[2] = fma((float4)((rows).z), columns, sum[2]); \
  sum[3] = fma((float4)((rows).w), columns, sum[3])

__kernel __attribute__((reqd_work_group_size(8, 8, 1))) void attention(MEM(out), MEM(q), MEM(k), MEM(v), MEM(mask), Attention s, float scale) {
  __local float query[HEAD * QUERY_LINE] __attribute__((aligned(16)));
  __local float tile[HEAD * KEY_LINE > KEYS * VALUE_LINE ? HEAD * KEY_LINE : KEYS * VALUE_LINE] __attribute__((aligned(16)));  // of k, then of v
  __local float weight[KEYS * QUERY_LINE] __attribute__((aligned(16)));
  __local float top[QUERIES], total[QUERIES], factor[QUERIES] __attribute__((aligned(16)));
  const int x = (int)get_local_id(0), y = (int)get_local_id(1), lane = y * 8 + x;
  const int batch = (int)get_group_id(1) / s.heads, head = (int)get_group_id(1) % s.heads, first = (int)get_group_id(0) * QUERIES;
  __global MEM_TYPE(T) *q = AT(MEM_TYPE(T), q) + batch * s.q[0] + head * s.q[1];
  __global MEM_TYPE(T) *k = AT(MEM_TYPE(T), k) + batch * s.k[0] + head / s.shared * s.k[1];
  __global MEM_TYPE(T) *v = AT(MEM_TYPE(T), v) + batch * s.v[0] + head / s.shared * s.v[1];
#pragma unroll 8
  for (int i = lane; i < QUERIES * HEAD; i += LANES) {
    const int row = i / HEAD, d = i % HEAD;
    query[d * QUERY_LINE + row] = first + row < s.queries && d < s.width ? LOAD(T, q + (first + row) * s.q[2] + d) * scale : 0;
  }
  if (lane < QUERIES) {
    top[lane] = -INFINITY;
    total[lane] = 0;
  }
  float4 result[FOURS * 4][VALUES];
#pragma unroll
  for (int i = 0; i < FOURS * 4; ++i)
#pragma unroll
    for (int j = 0; j < VALUES; ++j) result[i][j] = (float4)(0);
  const int end = s.causal ? min(s.keys, first + QUERIES) : s.keys;
  for (int begin = 0; begin < end; begin += KEYS) {
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 8
    for (int i = lane; i < KEYS * HEAD; i += LANES) {
      const int row = i / HEAD, d = i % HEAD;
      tile[d * KEY_LINE + row] = begin + row < s.keys && d < s.width ? LOAD(T, k + (begin + row) * s.k[2] + d) : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float4 score[FOURS * 4];
#pragma unroll
    for (int i = 0; i < FOURS * 4; ++i) score[i] = (float4)(0);
#pragma unroll 8
    for (int d = 0; d < HEAD; ++d) {
      const float4 columns = *(const __local float4 *)(tile + d * KEY_LINE + x * 4);
#pragma unroll
      for (int f = 0; f < FOURS; ++f) {
        const float4 rows = *(const __local float4 *)(query + d * QUERY_LINE + f * 32 + y * 4);
        FOUR_SUMS((score + f * 4), rows, columns);
      }
    }
#pragma unroll
    for (int i = 0; i < FOURS * 4; ++i) {
      const int row = i / 4 * 32 + y * 4 + i % 4;
      const float values[4] = {score[i].x, score[i].y, score[i].z, score[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int key = begin + x * 4 + j;
        float value = values[j];
        if (key >= end || (s.causal && key > first + row)) value = -INFINITY;
#ifdef MASK
        if (key < s.keys && first + row < s.queries) {
          const TYPE(MASK) added =
              LOAD(MASK, AT(MEM_TYPE(MASK), mask) + batch * s.mask[0] + head * s.mask[1] + (first + row) * s.mask[2] + key * s.mask[3]);
          value = MASKED(value, added);
        }
#endif
        weight[(x * 4 + j) * QUERY_LINE + row] = value;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < QUERIES) {
      const float before = top[lane];
      float now = before, sum = 0;
#pragma unroll 8
      for (int i = 0; i < KEYS; ++i) now = fmax(now, weight[i * QUERY_LINE + lane]);
      const float from = now == -INFINITY ? 0 : now;  // nothing but masked keys so far: weights of 0
#pragma unroll 8
      for (int i = 0; i < KEYS; ++i) {
        const float one = exp(weight[i * QUERY_LINE + lane] - from);
        weight[i * QUERY_LINE + lane] = one;
        sum += one;
      }
      const float shrunk = exp(before - from);
      top[lane] = now;
      factor[lane] = shrunk;
      total[lane] = total[lane] * shrunk + sum;
    }
#pragma unroll 8
    for (int i = lane; i < KEYS * HEAD; i += LANES) {
      const int row = i / HEAD, d = i % HEAD;
      tile[row * VALUE_LINE + d] = begin + row < s.keys && d < s.value_width ? LOAD(T, v + (begin + row) * s.v[2] + d) : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int i = 0; i < FOURS * 4; ++i) {
      const float shrunk = factor[i / 4 * 32 + y * 4 + i % 4];
#pragma unroll
      for (int j = 0; j < VALUES; ++j) result[i][j] *= shrunk;
    }
#pragma unroll 4
    for (int key = 0; key < KEYS; ++key) {
      float4 columns[VALUES];
#pragma unroll
      for (int j = 0; j < VALUES; ++j) columns[j] = *(const __local float4 *)(tile + key * VALUE_LINE + j * 32 + x * 4);
#pragma unroll
      for (int f = 0; f < FOURS; ++f) {
        const float4 rows = *(const __local float4 *)(weight + key * QUERY_LINE + f * 32 + y * 4);
#pragma unroll
        for (int j = 0; j < VALUES; ++j) {
          result[f * 4][j] = fma((float4)(rows.x), columns[j], result[f * 4][j]);
          result[f * 4 + 1][j] = fma((float4)(rows.y), columns[j], result[f * 4 + 1][j]);
          result[f * 4 + 2][j] = fma((float4)(rows.z), columns[j], result[f * 4 + 2][j]);
          result[f * 4 + 3][j] = fma((float4)(rows.w), columns[j], result[f * 4 + 3][j]);
        }
      }
    }
  }
  __global MEM_TYPE(T) *out = AT(MEM_TYPE(T), out) + batch * s.out[0] + head * s.out[1];
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int i = 0; i < FOURS * 4; ++i) {
    const int row = i / 4 * 32 + y * 4 + i % 4;
    if (first + row >= s.queries) continue;
    const float by = total[row] == 0 ? 0 : 1 / total[row];
#pragma unroll
    for (int j = 0; j < VALUES; ++j) {
      const float values[4] = {result[i][j].x, result[i][j].y, result[i][j].z, result[i][j].w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int d = j * 32 + x * 4 + e;
        if (d < s.value_width) STORE(T, out + (first + row) * s.out[2] + d, values[e] * by);
      }
    }
  }
}
