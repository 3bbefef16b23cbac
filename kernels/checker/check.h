// Proves that an algorithm does what its collective promises, for given ranks, nodes and counts:
//
//   const std::string fault = check(algorithm, task);   // "" or
//   "allreduce ring of 5 ranks: rank 2, round 3, step 7 (receive): waits for ever for rank 1, ..."
//
// The schedules of all ranks run together on symbols, twice in a row (three times where data memory
// alternates, so that each memory is used again). It is proved that
// - all messages meet one of the same count, and nobody waits for ever;
// - steps stay within data_count, scratch_count and the caller's memory, read nothing undefined,
//   and touch nothing that a message under way reads or writes;
// - other ranks' data is touched on the same node only, after a message from there, and where
//   messages order what conflicts, whatever the speed of the ranks; in place also with the caller,
//   who reads the result and writes the next input between two operations;
// - schedules that touch it are `shared` on all ranks, and no rank of a node ends before all of the
//   node have begun;
// - no input is read after output was written there, as both may be the same memory;
// - in the end the result holds each contribution once at its element; on all ranks of an allreduce
//   added up in the same way, so with the same bits; and nobody leaves a barrier before all
//   entered.
//
// Messages go from and to data and scratch memory; output is read by reduces only, and input is
// never written.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collective/algorithms.h"

namespace tnt {

// A sentence that names the first fault, with rank, round and step; empty if there is none. The
// task's rank is ignored.
std::string check(const Algorithm& algorithm, const Task& task);
std::string check(const std::function<Schedule(const Task&)>& make, Task task);

// The same of schedules that are there already, one a rank.
std::string check_schedules(const std::vector<Schedule>& schedules, const Task& task);

}  // namespace tnt
