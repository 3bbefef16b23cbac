// What a schedule is made for: a collective, as one rank sees it; how long its vectors are, and
// which of its ranks share a node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace tnt {

enum class Collective : std::uint8_t {
  allreduce,       // input[count] of all, reduced -> output[count] of all
  reduce_scatter,  // input[offsets.back()] of all, reduced -> output: block `rank` of it
  allgather,       // input: block `rank` -> output[offsets.back()], blocks in rank order
  broadcast,       // input[count] of the root -> output[count] of all
  reduce,          // input[count] of all, reduced -> output[count] of the root
  alltoall,        // block q of input[size * count] of rank r -> block r of output of rank q
  barrier,         // nobody leaves before all have entered
  alltoallv,       // flows of input of one rank -> output of another: see Task::flows
};
inline constexpr const char* collective_names[] = {"allreduce", "reduce_scatter", "allgather",
                                                   "broadcast", "reduce",         "alltoall",
                                                   "barrier",   "alltoallv"};

inline const char* name_of(Collective collective) {
  const auto number = static_cast<std::size_t>(collective);
  return number < std::size(collective_names) ? collective_names[number] : "unknown collective";
}

// So many elements go from one rank to another, or to itself.
struct Flow {
  int from = 0, to = 0;
  std::size_t count = 0;

  bool operator==(const Flow& other) const {
    return from == other.from && to == other.to && count == other.count;
  }
};

struct Task {
  Collective collective = Collective::allreduce;
  int rank = 0, size = 1;
  std::size_t count = 0;
  std::size_t element_bytes = 4;
  // Where the blocks of a reduce-scatter or allgather begin, and where the last ends: size + 1.
  std::vector<std::size_t> offsets;
  int root = 0;
  // node[r]: number of the node of rank r; ranks of one node share memory. Empty: nobody does.
  std::vector<int> node;
  // The data memory holds the input and takes the output: whatever the collective, both are ranges
  // of data[0, ...). They begin at 0, but an allgather's input and a reduce-scatter's output, each
  // one block, at offsets[rank]. Without it the schedule copies from Memory::input and to
  // Memory::output, which may be the same memory, or no element in common.
  bool in_place = false;
  // Of an alltoallv, those of all ranks, in an order that they agree on: a rank's input has the
  // elements that it gives, and its output those that it gets, flow after flow. `count` is the sum.
  std::vector<Flow> flows = {};
};

// Elements that the rank of the task gives, and that it gets.
std::size_t input_count(const Task& task);
std::size_t output_count(const Task& task);

// Elements of the whole: of data memory in place, whatever the rank gives and gets of them.
std::size_t whole_count(const Task& task);

// Where in the whole the rank's input and output begin.
std::size_t input_begin(const Task& task);
std::size_t output_begin(const Task& task);

// All ranks share memory. So does a rank that is alone.
bool on_one_node(const Task& task);

bool share_memory(const Task& task, int a, int b);

// The ranks of each node, ascending; nodes in the order in which the ranks name them.
std::vector<std::vector<int>> ranks_by_node(const Task& task);

}  // namespace tnt
