// Barrier: in round k each rank tells the one at distance 2^k that it, and all of whom it has
// heard, have entered.
//
// Source: D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization",
// IJPP 17(1), 1988.
//
//   five ranks, as seen by rank 0:   4 -> 0 -> 1  |  3 -> 0 -> 2  |  1 -> 0 -> 4
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

Schedule make(const Task& task) {
  Writer writer(task);
  for (int distance = 1; distance < task.size; distance *= 2) {
    writer.await((task.rank - distance + task.size) % task.size);
    writer.signal((task.rank + distance) % task.size);
    writer.next_round();
  }
  return writer.finish();
}

}  // namespace

std::vector<Algorithm> dissemination_algorithms() {
  return {{"dissemination", Collective::barrier, fits_all, make}};
}

}  // namespace tnt
