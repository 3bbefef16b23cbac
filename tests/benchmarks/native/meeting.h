// A meeting point of processes in shared memory: a barrier that costs about one cache line
// transfer.
//
// Every rank has a seat, a cache line that only it writes: how often it has arrived. It goes on
// when all other seats say the same number.
#pragma once

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { PAUSES_BEFORE_YIELD = 1000, PAUSES_WHERE_CORES_ARE_SHARED = 20 };

typedef struct {
  _Alignas(64) atomic_uint arrivals;
} seat;

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static inline double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline unsigned arrive(seat* seats, int rank) {
  unsigned turn = atomic_load_explicit(&seats[rank].arrivals, memory_order_relaxed) + 1;
  atomic_store_explicit(&seats[rank].arrivals, turn, memory_order_release);
  return turn;
}

// Whether all ranks have arrived for this turn within so many seconds.
static inline int all_there(seat* seats, int ranks, unsigned turn, int shared_cores,
                            double patience) {
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

static inline void meet(seat* seats, int rank, int ranks, int shared_cores) {
  unsigned turn = arrive(seats, rank);
  while (!all_there(seats, ranks, turn, shared_cores, 1)) {
  }
}
