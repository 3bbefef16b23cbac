// How long a cache line takes from one core to another and back: some 50 ns where two virtual cores
// share a physical one, some 100 to 300 ns where they do not. Hypervisors move virtual cores, and
// with them every figure about two processes.
#define _GNU_SOURCE
#include <pthread.h>

#include "meeting.h"

enum { BATCHES = 50, TRIPS = 1000, LAST = 2 * BATCHES * TRIPS };

typedef struct {
  _Alignas(64) atomic_int turn;
} ball;

typedef struct {
  ball* ball;
  int core;
  double best;
} player;

static void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void wait_for(ball* b, int turn) {
  while (atomic_load_explicit(&b->turn, memory_order_acquire) != turn) relax();
}

static void* serve(void* argument) {
  player* me = argument;
  stay_on(me->core);
  int turn = 0;
  for (int batch = 0; batch < BATCHES; ++batch) {
    double began = seconds_now();
    for (int trip = 0; trip < TRIPS; ++trip) {
      atomic_store_explicit(&me->ball->turn, ++turn, memory_order_release);
      wait_for(me->ball, ++turn);
    }
    double each = (seconds_now() - began) / TRIPS;
    if (batch == 0 || each < me->best) me->best = each;
  }
  return 0;
}

static void* give_back(void* argument) {
  player* me = argument;
  stay_on(me->core);
  for (int turn = 1; turn < LAST; turn += 2) {
    wait_for(me->ball, turn);
    atomic_store_explicit(&me->ball->turn, turn + 1, memory_order_release);
  }
  return 0;
}

// Seconds of the fastest of some batches of round trips; 0 where no threads could be had.
double cache_line_round_trip(int core, int other_core) {
  ball shared;
  atomic_init(&shared.turn, 0);
  player one = {&shared, core, 0}, other = {&shared, other_core, 0};
  pthread_t serving, giving_back;
  if (pthread_create(&giving_back, 0, give_back, &other)) return 0;
  // Whoever gives back would wait for ever without somebody who serves: so this thread does it.
  if (pthread_create(&serving, 0, serve, &one))
    serve(&one);
  else
    pthread_join(serving, 0);
  pthread_join(giving_back, 0);
  return one.best;
}
