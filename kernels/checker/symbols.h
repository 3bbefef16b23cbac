// Symbols in place of numbers: who contributed to an element, and in which order it was added up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/task.h"

namespace tnt {

// What consecutive elements hold: sums of contributions to the elements first, first + 1, ... of
// the whole vector.
struct Content {
  std::uint64_t sum = 0;    // of the random numbers of those who contributed: who did, how often
  std::uint64_t shape = 0;  // of the tree of additions: equal shapes mean equal bits. 0: undefined
  std::size_t first = 0;

  bool defined() const { return shape != 0; }
  Content after(std::size_t elements) const { return {sum, shape, first + elements}; }
};

// The elements [begin, end) of something, and what they hold.
struct Piece {
  std::size_t begin = 0, end = 0;
  Content content;
};

// Adds a piece at the end of others, to the last of them if it goes on there.
void append(std::vector<Piece>& pieces, const Piece& piece);

// What a rank contributes in an operation; `first` is 0.
Content contribution(int operation, int rank);

// a + b, which has the same bits as b + a.
Content sum(const Content& a, const Content& b);

// What the result of the task's rank has to hold; shapes are left open.
std::vector<Piece> expected_result(const Task& task, int operation);

}  // namespace tnt
