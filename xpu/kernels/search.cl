// Where the largest or smallest element of a row of n is, and running sums along rows. A work group a row, or a piece of one.
// -DT= type of elements, -DX= type they are compared and added in, -DOUT= of sums. NaN counts as the largest and as the smallest, the first of equals wins, as in torch.
#ifndef LANES
#define LANES 64
#endif
#define XT TYPE(X)
#define ROWS_OF_LANES __kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void

#ifdef BEST  // 1: the largest, -1: the smallest
// Whether (a, i) comes before (b, j); an index of -1: nothing was seen yet.
inline bool before(XT a, long i, XT b, long j) {
  if (i < 0 || j < 0) return j < 0 && i >= 0;
  const bool no_number = a != a;
  if (no_number != (b != b)) return no_number;
  if (no_number || a == b) return i < j;
  return BEST > 0 ? a > b : a < b;
}

// which[row, piece], and values[row, piece] of the elements, for a piece of `part_size` elements. -DAGAIN: the elements are results of a first pass, and
// `given` says where they were.
ROWS_OF_LANES best(MEM(which), MEM(values), MEM(in), MEM(given), long n, long part_size, long pieces) {
  __local XT value_of[LANES];
  __local long place_of[LANES];
  const int lane = get_local_id(0);
  const long row = get_group_id(0) / pieces, first = get_group_id(0) % pieces * part_size, end = min(n, first + part_size);
  XT value = 0;
  long place = -1;
  for (long i = first + lane; i < end; i += LANES) {
    const XT one = CONVERT(X, LOAD(T, AT(MEM_TYPE(T), in) + row * n + i));
#ifdef AGAIN
    const long at = AT(long, given)[row * n + i];
#else
    const long at = i;
#endif
    if (before(one, at, value, place)) {
      value = one;
      place = at;
    }
  }
  value_of[lane] = value;
  place_of[lane] = place;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {
    if (lane < half_ && before(value_of[lane + half_], place_of[lane + half_], value_of[lane], place_of[lane])) {
      value_of[lane] = value_of[lane + half_];
      place_of[lane] = place_of[lane + half_];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (lane == 0) {
    AT(long, which)[get_group_id(0)] = place_of[0];
    STORE(T, AT(MEM_TYPE(T), values) + get_group_id(0), CONVERT(T, value_of[0]));
  }
}
#else

// out[row, i] = in[row, 0] + ... + in[row, i], LANES elements at a time. Method: Hillis and Steele, Data parallel algorithms, 1986.
ROWS_OF_LANES running_sum(MEM(out), MEM(in), long n) {
  __local XT part[2][LANES];
  const int lane = get_local_id(0);
  const long row = get_group_id(0);
  XT before = 0;
  for (long first = 0; first < n; first += LANES) {
    const long i = first + lane;
    part[0][lane] = i < n ? CONVERT(X, LOAD(T, AT(MEM_TYPE(T), in) + row * n + i)) : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    int from = 0;
    for (int step = 1; step < LANES; step *= 2) {
      part[1 - from][lane] = part[from][lane] + (lane >= step ? part[from][lane - step] : 0);
      from = 1 - from;
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (i < n) STORE(OUT, AT(MEM_TYPE(OUT), out) + row * n + i, CONVERT(OUT, before + part[from][lane]));
    before += part[from][LANES - 1];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
#endif
