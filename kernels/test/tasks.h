// Tasks to prove algorithms on: ranks, elements and nodes of all kinds.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "checker/cost.h"
#include "collective/algorithms.h"
#include "collective/task.h"

namespace tnt::test {

// Blocks of `count` elements in all, of very different sizes; some are empty.
inline std::vector<std::size_t> uneven_offsets(int size, std::size_t count) {
  std::size_t total = 0;
  const auto weight = [](int rank) -> std::size_t { return rank * 5 % 4 + rank % 7 / 6; };
  for (int rank = 0; rank < size; ++rank) total += weight(rank);
  std::vector<std::size_t> offsets{0};
  std::size_t seen = 0;
  for (int rank = 0; rank < size; ++rank) {
    seen += weight(rank);
    offsets.push_back(total == 0 ? count : count * seen / total);
  }
  offsets.back() = count;
  return offsets;
}

// From each rank to itself, its neighbours and one more, about `count` elements in all; some flows
// are empty, and two ranks may have several.
inline std::vector<Flow> uneven_flows(int size, std::size_t count) {
  std::vector<Flow> flows;
  const auto share = (count + size - 1) / size;
  for (int rank = 0; rank < size; ++rank) {
    flows.push_back({rank, (rank + 1) % size, share * (rank % 3) / 4});
    flows.push_back({rank, rank, share / 2});
    flows.push_back({(rank + 1) % size, rank, share / 4 + rank % 2});
    flows.push_back({rank, (rank * 5 + 2) % size, rank % 2 == 0 ? share / 3 : 0});
  }
  return flows;
}

// In all about `count` elements, whatever the collective.
inline Task make_task(Collective collective, int size, std::size_t count,
                      std::vector<int> node = {}, bool in_place = false) {
  Task task;
  task.collective = collective;
  task.size = size;
  task.count = collective == Collective::alltoall ? (count + 15) / 16 : count;
  task.root = static_cast<int>(count * 7 % size);
  if (collective == Collective::reduce_scatter || collective == Collective::allgather)
    task.offsets = uneven_offsets(size, count);
  if (collective == Collective::alltoallv) {
    task.flows = uneven_flows(size, count);
    task.count = 0;
    for (const Flow& flow : task.flows) task.count += flow.count;
  }
  task.node = std::move(node);
  task.in_place = in_place;
  return task;
}

inline std::vector<int> one_node(int size) { return std::vector<int>(size, 0); }

// So many ranks a node, one after another; the last may have fewer.
inline std::vector<int> nodes_of(int size, int ranks_a_node) {
  std::vector<int> node;
  for (int rank = 0; rank < size; ++rank) node.push_back(rank / ranks_a_node);
  return node;
}

// Ranks dealt out like cards.
inline std::vector<int> dealt_nodes(int size, int nodes) {
  std::vector<int> node;
  for (int rank = 0; rank < size; ++rank) node.push_back(rank % nodes);
  return node;
}

// Nodes 7, 3, 7, 7, 7, 3, 7, 7, ...
inline std::vector<int> uneven_nodes(int size) {
  std::vector<int> node;
  for (int rank = 0; rank < size; ++rank) node.push_back(rank % 4 == 1 ? 3 : 7);
  return node;
}

// When the last rank has finished, by the model.
inline double seconds(const Algorithm& algorithm, const Task& task, const Costs& costs = {}) {
  const auto finished = predict(schedules_of_all(algorithm, task), task, costs);
  return *std::max_element(finished.begin(), finished.end());
}

inline const Algorithm& algorithm(Collective collective, const char* name) {
  const Algorithm* found = find_algorithm(collective, name);
  if (found == nullptr) throw std::runtime_error(std::string("no algorithm ") + name);
  return *found;
}

}  // namespace tnt::test
