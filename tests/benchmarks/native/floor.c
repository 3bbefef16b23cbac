// The floor: the least that an allreduce of float32 over shared memory can cost on this machine. It
// knows that all ranks are there and what they will do; a library has to find out first.
//
//   zero copy   the vectors themselves are shared: rank r sums its part of all of them, and stores
//               the sum into all of them
//   staging     vectors are private: chunk by chunk, each is copied into shared memory, and summed
//               from there by every rank; two chunks in turn, so that one meeting a chunk suffices.
//               The plain way to do it, for comparison: a bound it is not
#include <stddef.h>
#include <string.h>

#include "meeting.h"

enum { MAX_RANKS = 64, CHUNK = (256 << 10) / sizeof(float) };

typedef struct {
  seat* seats;
  int rank, ranks, shared_cores;
  float* vectors;  // one of `capacity` elements for each rank
  float* staging;  // two chunks for each rank
  size_t capacity;
} floor_place;

size_t floor_bytes(int ranks, size_t capacity) {
  return MAX_RANKS * sizeof(seat) + (size_t)ranks * (capacity + 2 * CHUNK) * sizeof(float);
}

static floor_place place(char* shared, int rank, int ranks, int shared_cores, size_t capacity) {
  float* vectors = (float*)(shared + MAX_RANKS * sizeof(seat));
  return (floor_place){(seat*)shared, rank,    ranks,
                       shared_cores,  vectors, vectors + (size_t)ranks * capacity,
                       capacity};
}

static void gather(const floor_place* p) { meet(p->seats, p->rank, p->ranks, p->shared_cores); }

static void add_two(float* restrict a, float* restrict b, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = b[i] = a[i] + b[i];
}

static void add_four(float* restrict a, float* restrict b, float* restrict c, float* restrict d,
                     size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = b[i] = c[i] = d[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

static void add_all(float** v, int ranks, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    float sum = v[0][i];
    for (int r = 1; r < ranks; ++r) sum += v[r][i];
    for (int r = 0; r < ranks; ++r) v[r][i] = sum;
  }
}

static void zero_copy(const floor_place* p, size_t n) {
  size_t from = n * p->rank / p->ranks, to = n * (p->rank + 1) / p->ranks;
  float* v[MAX_RANKS];
  for (int r = 0; r < p->ranks; ++r) v[r] = p->vectors + (size_t)r * p->capacity + from;
  if (p->ranks == 2)
    add_two(v[0], v[1], to - from);
  else if (p->ranks == 4)
    add_four(v[0], v[1], v[2], v[3], to - from);
  else
    add_all(v, p->ranks, to - from);
  gather(p);
}

static void sum_into(float* restrict out, float** in, int ranks, size_t n) {
  const float* restrict a = in[0], * restrict b = in[1 % ranks];
  for (size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
  for (int r = 2; r < ranks; ++r) {
    const float* restrict c = in[r];
    for (size_t i = 0; i < n; ++i) out[i] += c[i];
  }
}

static void staging(const floor_place* p, const float* input, float* output, size_t n) {
  for (size_t at = 0, turn = 0; at < n; at += CHUNK, turn ^= 1) {
    size_t length = n - at < CHUNK ? n - at : CHUNK;
    float* chunks[MAX_RANKS];
    for (int r = 0; r < p->ranks; ++r) chunks[r] = p->staging + (2 * (size_t)r + turn) * CHUNK;
    memcpy(chunks[p->rank], input + at, length * sizeof(float));
    gather(p);
    sum_into(output + at, chunks, p->ranks, length);
  }
}

// Seconds of each iteration. Input and output are used by staging only; the result of zero copy is
// found in `shared`, see floor_vector.
void floor_measure(char* shared, int rank, int ranks, int shared_cores, size_t capacity,
                   int is_zero_copy, float* input, float* output, size_t n, int iterations,
                   double* seconds) {
  floor_place p = place(shared, rank, ranks, shared_cores, capacity);
  float* mine = is_zero_copy ? p.vectors + (size_t)rank * capacity : input;
  for (int k = 0; k < iterations; ++k) {
    for (size_t i = 0; i < n; ++i) mine[i] = (float)(rank + 1);
    gather(&p);
    double began = seconds_now();
    if (is_zero_copy)
      zero_copy(&p, n);
    else
      staging(&p, input, output, n);
    seconds[k] = seconds_now() - began;
    gather(&p);  // nobody fills again what others still read
  }
}

float* floor_vector(char* shared, int rank, int ranks, size_t capacity) {
  return place(shared, rank, ranks, 0, capacity).vectors + (size_t)rank * capacity;
}
