// The meeting point for processes that are not written in C.
#include "meeting.h"

// Arrives, and says whether all others have come within so many seconds. If not, the turn to wait
// for is stored, so that the caller can do something else and ask `met` again.
int meet_within(seat* seats, int rank, int ranks, int shared_cores, double patience,
                unsigned* turn) {
  *turn = arrive(seats, rank);
  return all_there(seats, ranks, *turn, shared_cores, patience);
}

int met(seat* seats, int ranks, int shared_cores, double patience, unsigned turn) {
  return all_there(seats, ranks, turn, shared_cores, patience);
}
