// The algorithms: each a function that yields the schedule of one rank.
//
// Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005 (ring, recursive doubling, binomial tree);
// D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization", IJPP 17(1), 1988.
#pragma once

#include "collective/schedule.h"

namespace tnt {

// Allreduce of `count` elements in place. Each element is reduced along one fixed path, so the
// result has the same bits on all ranks.
Schedule allreduce_recursive_doubling(int rank, int size, std::size_t count);
Schedule allreduce_ring(int rank, int size, std::size_t count);

// The algorithm that is faster for this many bytes: latency below, bandwidth above.
Schedule allreduce(int rank, int size, std::size_t count, std::size_t element_bytes);

// Rank r contributes elements [offsets[r], offsets[r + 1]), and all ranks end with all of them.
Schedule allgather_ring(int rank, int size, const std::vector<std::size_t>& offsets);

Schedule broadcast_binomial(int rank, int size, std::size_t count, int root);

// No rank leaves before all have entered. Moves one element a message.
Schedule barrier_dissemination(int rank, int size);

}  // namespace tnt
