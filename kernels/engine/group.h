// Ranks that take part in a collective: all of the world, or some of them.
#pragma once

#include <vector>

namespace tnt {

struct Group {
  std::vector<int> ranks;  // of the world, ascending
  int index = 0;           // of this rank in `ranks`
  std::vector<int> node;   // node[i]: number of the node of ranks[i]

  int size() const { return static_cast<int>(ranks.size()); }
};

}  // namespace tnt
