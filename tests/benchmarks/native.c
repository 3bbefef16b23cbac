// The C parts of the benchmarks: where ranks meet, the floor of an allreduce, and the probe of a
// cache line.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// A meeting point of processes in shared memory: a barrier that costs about one cache line
// transfer.
//
// Every rank has a seat, a cache line that only it writes: how often it has arrived. It goes on
// when all other seats say the same number.
typedef struct {
  _Alignas(64) atomic_uint arrivals;
} seat;

enum { PAUSES_BEFORE_YIELD = 1000, PAUSES_WHERE_CORES_ARE_SHARED = 20 };

// Whether all ranks have arrived for this turn within so many seconds.
int all_there(seat* seats, int ranks, int shared_cores, double patience, unsigned turn) {
  int pauses = shared_cores ? PAUSES_WHERE_CORES_ARE_SHARED : PAUSES_BEFORE_YIELD;
  double deadline = 0;
  for (int peer = 0; peer < ranks; ++peer)
    for (int tries = 1;
         (int)(atomic_load_explicit(&seats[peer].arrivals, memory_order_acquire) - turn) < 0;
         ++tries) {
      if (tries < pauses) {
        relax();
        continue;
      }
      sched_yield();
      if (deadline == 0) deadline = seconds_now() + patience;
      if (seconds_now() > deadline) return 0;
    }
  return 1;
}

// Arrives, and says whether all others have come within so many seconds. If not, the turn to wait
// for is stored, so that the caller can do something else and ask `all_there` again.
int meet_within(seat* seats, int rank, int ranks, int shared_cores, double patience,
                unsigned* turn) {
  *turn = atomic_load_explicit(&seats[rank].arrivals, memory_order_relaxed) + 1;
  atomic_store_explicit(&seats[rank].arrivals, *turn, memory_order_release);
  return all_there(seats, ranks, shared_cores, patience, *turn);
}

// The floor: the least that an allreduce of float32 over shared memory can cost on this machine. It
// knows that all ranks are there and what they will do; a library has to find out first.
//
//   zero copy   the vectors themselves are shared: rank r sums its part of all of them, and stores
//               the sum into all of them
//   staging     vectors are private: chunk by chunk, each is copied into shared memory, and summed
//               from there by every rank; two chunks in turn, so that one meeting a chunk suffices.
//               The plain way to do it, for comparison: a bound it is not
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

static void gather(const floor_place* p) {
  unsigned turn;
  int met = meet_within(p->seats, p->rank, p->ranks, p->shared_cores, 1, &turn);
  while (!met) met = all_there(p->seats, p->ranks, p->shared_cores, 1, turn);
}

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

// How long a cache line takes from one core to another and back: some 50 ns where two virtual cores
// share a physical one, some 100 to 300 ns where they do not. Hypervisors move virtual cores, and
// with them every figure about two processes.
enum { BATCHES = 50, TRIPS = 1000, LAST = 2 * BATCHES * TRIPS };

typedef struct {
  _Alignas(64) atomic_int turn;
  int core;  // of the one who gives it back
} ball;

static void wait_for(ball* b, int turn) {
  while (atomic_load_explicit(&b->turn, memory_order_acquire) != turn) relax();
}

static void* give_back(void* argument) {
  ball* b = argument;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(b->core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  for (int turn = 1; turn < LAST; turn += 2) {
    wait_for(b, turn);
    atomic_store_explicit(&b->turn, turn + 1, memory_order_release);
  }
  return 0;
}

// Seconds of the fastest of some batches of round trips from the core of the caller, who is bound
// to it; 0 where no thread could be had.
double cache_line_round_trip(int other_core) {
  ball shared = {.core = other_core};
  pthread_t other;
  if (pthread_create(&other, 0, give_back, &shared)) return 0;
  double best = 1;
  for (int batch = 0, turn = 0; batch < BATCHES; ++batch) {
    double began = seconds_now();
    for (int trip = 0; trip < TRIPS; ++trip) {
      atomic_store_explicit(&shared.turn, ++turn, memory_order_release);
      wait_for(&shared, ++turn);
    }
    double each = (seconds_now() - began) / TRIPS;
    if (each < best) best = each;
  }
  pthread_join(other, 0);
  return best;
}
