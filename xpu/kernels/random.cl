// Dropout. Random numbers are Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011): the counter is the place of
// four elements, the key is drawn from the generator for each call. -DT= -DX=.
inline uint4 philox(uint4 counter, uint2 key) {
  for (int round = 0; round < 10; ++round) {
    const uint high0 = mul_hi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
    const uint high1 = mul_hi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
    counter = (uint4)(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key += (uint2)(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter;
}

// kept: how many of the 2^32 numbers keep an element.
__kernel void dropout(MEM(out), MEM(mask), MEM(in), ulong key, ulong kept, TYPE(X) scale, long n) {
  const long four = get_global_id(0);
  if (four * 4 >= n) return;
  const uint4 draw = philox((uint4)((uint)four, (uint)(four >> 32), 0, 0), (uint2)((uint)key, (uint)(key >> 32)));
  const uint each[4] = {draw.x, draw.y, draw.z, draw.w};
  const int many = (int)min(n - four * 4, 4L);
  for (int k = 0; k < many; ++k) {
    const long i = four * 4 + k;
    const bool keep = (ulong)each[k] < kept;
    AT(uchar, mask)[i] = keep;
    STORE(T, AT(MEM_TYPE(T), out) + i, keep ? LOAD(T, AT(MEM_TYPE(T), in) + i) * scale : 0);
  }
}
__kernel void dropout_backward(MEM(out), MEM(grad), MEM(mask), TYPE(X) scale, long n) {
  const long i = get_global_id(0);
  if (i < n) STORE(T, AT(MEM_TYPE(T), out) + i, AT(uchar, mask)[i] ? LOAD(T, AT(MEM_TYPE(T), grad) + i) * scale : 0);
}
