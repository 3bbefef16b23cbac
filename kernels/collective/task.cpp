#include "collective/task.h"

#include <algorithm>
#include <map>

namespace tnt {
namespace {

std::size_t own_block(const Task& task) {
  return task.offsets[task.rank + 1] - task.offsets[task.rank];
}

// Elements of the flows that are meant.
template <class Meant>
std::size_t flowing(const Task& task, Meant&& meant) {
  std::size_t count = 0;
  for (const Flow& flow : task.flows)
    if (meant(flow)) count += flow.count;
  return count;
}

}  // namespace

std::size_t whole_count(const Task& task) {
  switch (task.collective) {
    case Collective::reduce_scatter:
    case Collective::allgather: return task.offsets.back();
    case Collective::alltoall: return task.size * task.count;
    case Collective::barrier: return 0;
    default: return task.count;
  }
}

std::size_t input_count(const Task& task) {
  if (task.collective == Collective::alltoallv)
    return flowing(task, [&](const Flow& flow) { return flow.from == task.rank; });
  if (task.collective == Collective::allgather) return own_block(task);
  if (task.collective == Collective::broadcast && task.rank != task.root) return 0;
  return whole_count(task);
}

std::size_t output_count(const Task& task) {
  if (task.collective == Collective::alltoallv)
    return flowing(task, [&](const Flow& flow) { return flow.to == task.rank; });
  if (task.collective == Collective::reduce_scatter) return own_block(task);
  if (task.collective == Collective::reduce && task.rank != task.root) return 0;
  return whole_count(task);
}

std::size_t input_begin(const Task& task) {
  const bool at_block = task.collective == Collective::allgather;
  return at_block ? task.offsets[task.rank] : 0;
}

std::size_t output_begin(const Task& task) {
  // Behind the input, as the two are never the same memory.
  if (task.collective == Collective::alltoallv) return input_count(task);
  const bool at_block = task.collective == Collective::reduce_scatter;
  return at_block ? task.offsets[task.rank] : 0;
}

bool on_one_node(const Task& task) {
  if (task.size == 1) return true;
  if (task.node.empty()) return false;
  return std::all_of(task.node.begin(), task.node.end(),
                     [&](int node) { return node == task.node.front(); });
}

bool share_memory(const Task& task, int a, int b) {
  if (a == b) return true;
  return !task.node.empty() && task.node[a] == task.node[b];
}

std::vector<std::vector<int>> ranks_by_node(const Task& task) {
  std::vector<std::vector<int>> nodes;
  std::map<int, std::size_t> index;
  for (int rank = 0; rank < task.size; ++rank) {
    const int node = task.node.empty() ? rank : task.node[rank];
    const auto [place, added] = index.emplace(node, nodes.size());
    if (added) nodes.emplace_back();
    nodes[place->second].push_back(rank);
  }
  return nodes;
}

}  // namespace tnt
