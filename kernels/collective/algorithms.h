// The registry of algorithms: each a function that yields the schedule of one rank.
//
//   const Algorithm* ring = find_algorithm(Collective::allreduce, "ring");
//   if (ring->fits(task)) Schedule schedule = ring->make(task);
//
// All take any number of ranks and elements, in place and not, and give results with the same bits
// on all ranks: each element is reduced along one path. In place, a reduce-scatter leaves its block
// at offsets[rank]; a reduce may overwrite the data of all ranks, not of the root alone.
#pragma once

#include <string_view>
#include <vector>

#include "collective/schedule.h"
#include "collective/task.h"

namespace tnt {

struct Algorithm {
  const char* name;
  Collective collective;
  bool (*fits)(const Task&);            // whether it can be made for these ranks and nodes
  Schedule (*of_several)(const Task&);  // of two ranks or more

  Schedule make(const Task& task) const;
};

const std::vector<Algorithm>& algorithms();

// One a rank; the task's own rank is ignored.
std::vector<Schedule> schedules_of_all(const Algorithm& algorithm, Task task);

// Null if there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

}  // namespace tnt
