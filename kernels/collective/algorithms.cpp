#include "collective/algorithms.h"

#include "collective/writer.h"

namespace tnt {

// A row for each file in algorithms/: for a collective, the first that fits is taken where no rule
// says which.
#define TNT_FAMILIES(row)                                                                \
  row(ring) row(recursive_doubling) row(rabenseifner) row(double_tree) row(hierarchical) \
      row(direct) row(binomial) row(chain) row(bruck) row(pairwise) row(dissemination)   \
          row(direct_block) row(direct_flow) row(spread)

#define TNT_DECLARE(family) std::vector<Algorithm> family##_algorithms();
TNT_FAMILIES(TNT_DECLARE)

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> all = [] {
    std::vector<Algorithm> algorithms;
#define TNT_APPEND(family) \
  for (const Algorithm& algorithm : family##_algorithms()) algorithms.push_back(algorithm);
    TNT_FAMILIES(TNT_APPEND)
    return algorithms;
  }();
  return all;
}

Schedule Algorithm::make(const Task& task) const {
  if (task.size > 1) return of_several(task);
  Writer writer(task);
  if (!task.in_place) writer.copy(output_at(0), input_at(0), whole_count(task));
  return writer.finish();
}

std::vector<Schedule> schedules_of_all(const Algorithm& algorithm, Task task) {
  std::vector<Schedule> schedules;
  for (task.rank = 0; task.rank < task.size; ++task.rank) schedules.push_back(algorithm.make(task));
  return schedules;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  return nullptr;
}

}  // namespace tnt
