// Rows in order, with the places that their elements came from. Method: Batcher's bitonic sorting network (Sorting networks and their applications,
// 1968); rows are filled up to a power of two, equal elements stay in the order of their places, so the order is the only one there is.
// -DT= type of elements, -DX= type they are compared in, -DLANES= items of a group. NaN comes behind every number, in front of it where the order descends.
#define XT TYPE(X)
#define BLOCK 1024  // elements that a group sorts in local memory
#define OF_LANES __kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void

// Whether (a, i) belongs before (b, j); a place of -1: behind the row's end.
inline bool before(XT a, long i, XT b, long j, int descending) {
  if (i < 0 || j < 0) return j < 0 && i >= 0;
  const bool a_none = a != a, b_none = b != b;
  if (a_none != b_none) return descending ? a_none : b_none;
  if (a_none || a == b) return i < j;
  return descending ? a > b : a < b;
}

// Steps of the network over the `size` elements in local memory, the first of which is number `first` of its row: for runs of `run` elements, distances of
// `distance` and less.
#define STEPS(run, from_distance)                                                                                 \
  for (int distance_ = (from_distance); distance_ > 0; distance_ /= 2) {                                          \
    for (int pair_ = lane; pair_ < size / 2; pair_ += LANES) {                                                    \
      const int i = pair_ / distance_ * 2 * distance_ + pair_ % distance_, j = i + distance_;                     \
      const bool rising = ((first + i) & (run)) == 0;                                                             \
      if (before(value[j], place[j], value[i], place[i], descending) == rising) {                                 \
        const XT value_ = value[i];                                                                               \
        value[i] = value[j];                                                                                      \
        value[j] = value_;                                                                                        \
        const long place_ = place[i];                                                                             \
        place[i] = place[j];                                                                                      \
        place[j] = place_;                                                                                        \
      }                                                                                                           \
    }                                                                                                             \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                 \
  }
#define IN_LOCAL_MEMORY                                                              \
  __local XT value[BLOCK];                                                           \
  __local long place[BLOCK];                                                         \
  const int lane = get_local_id(0);                                                  \
  const long row = get_group_id(0) / blocks, first = get_group_id(0) % blocks * size

// Blocks of `size` elements, from the rows of n: runs that rise and fall in turn.
OF_LANES sort_blocks(MEM(values), MEM(places), MEM(in), long n, long blocks, int size, int descending) {
  IN_LOCAL_MEMORY;
  for (int i = lane; i < size; i += LANES) {
    const bool inside = first + i < n;
    value[i] = inside ? CONVERT(X, LOAD(T, AT(MEM_TYPE(T), in) + row * n + first + i)) : 0;
    place[i] = inside ? first + i : -1;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int run_ = 2; run_ <= size; run_ *= 2) {
    STEPS((long)run_, run_ / 2)
  }
  for (int i = lane; i < size; i += LANES) {
    STORE(T, AT(MEM_TYPE(T), values) + (row * blocks * size + first + i), CONVERT(T, value[i]));
    AT(long, places)[row * blocks * size + first + i] = place[i];
  }
}

// One step between elements that no block has both of.
__kernel void sort_step(MEM(values), MEM(places), long pairs, long length, long run, long distance, int descending) {
  const long pair = get_global_id(0);
  if (pair >= pairs) return;
  const long all = pair / distance * 2 * distance + pair % distance, other = all + distance;
  __global MEM_TYPE(T) *values = AT(MEM_TYPE(T), values);
  __global long *places = AT(long, places);
  const bool rising = ((all % length) & run) == 0;
  const long i = places[all], j = places[other];
  const XT a = CONVERT(X, LOAD(T, values + all)), b = CONVERT(X, LOAD(T, values + other));
  if (before(b, j, a, i, descending) != rising) return;
  STORE(T, values + all, CONVERT(T, b));
  STORE(T, values + other, CONVERT(T, a));
  places[all] = j;
  places[other] = i;
}

// The rest of the steps for runs of `run` elements.
OF_LANES sort_rest(MEM(values), MEM(places), long run, long blocks, int size, int descending) {
  IN_LOCAL_MEMORY;
  __global MEM_TYPE(T) *values = AT(MEM_TYPE(T), values) + (row * blocks * size + first);
  __global long *places = AT(long, places) + (row * blocks * size + first);
  for (int i = lane; i < size; i += LANES) {
    value[i] = CONVERT(X, LOAD(T, values + i));
    place[i] = places[i];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  STEPS(run, size / 2)
  for (int i = lane; i < size; i += LANES) {
    STORE(T, values + i, CONVERT(T, value[i]));
    places[i] = place[i];
  }
}
