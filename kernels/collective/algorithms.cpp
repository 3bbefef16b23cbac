#include "collective/algorithms.h"

#include "collective/families.h"

namespace tnt {

// For a collective, the first that fits is taken where no rule says which.
const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> all = [] {
    std::vector<Algorithm> algorithms;
    for (const auto& family :
         {ring_algorithms(), recursive_doubling_algorithms(), rabenseifner_algorithms(),
          double_tree_algorithms(), hierarchical_algorithms(), direct_algorithms(),
          binomial_algorithms(), chain_algorithms(), bruck_algorithms(), pairwise_algorithms(),
          dissemination_algorithms(), direct_block_algorithms()})
      algorithms.insert(algorithms.end(), family.begin(), family.end());
    return algorithms;
  }();
  return all;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  return nullptr;
}

}  // namespace tnt
