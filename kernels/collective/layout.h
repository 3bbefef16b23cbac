// How long the vectors of a task are, and which of its ranks share a node.
#pragma once

#include <vector>

#include "collective/task.h"

namespace tnt {

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
