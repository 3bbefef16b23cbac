// Boxes of arrays: from which index up to which, in each dimension. In memory a box is a number of
// runs, each of elements that follow each other:
//
//   an array of 4 x 6, and its box [1:3, 2:5]       . . . . . .
//                                                   . . x x x .      two runs of three
//                                                   . . x x x .
//                                                   . . . . . .
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tnt {

struct Interval {
  std::size_t begin = 0, end = 0;  // in one dimension; `end` is not in it
  std::size_t count() const { return end - begin; }
};

using Box = std::vector<Interval>;  // an interval for each dimension

inline std::size_t volume(const Box& box) {
  std::size_t count = 1;
  for (const Interval& rows : box) count *= rows.count();
  return count;
}

inline bool overlap(const Box& a, const Box& b) {
  for (std::size_t dim = 0; dim < a.size(); ++dim)
    if (std::max(a[dim].begin, b[dim].begin) >= std::min(a[dim].end, b[dim].end)) return false;
  return true;
}

// Calls visit(first element in the array, count) for the runs of a box of an array, in their order.
template <class Visit>
void runs(const std::vector<std::size_t>& sizes, const Box& box, Visit&& visit) {
  if (volume(box) == 0) return;
  // Dimensions from `outer` on are one run: of all of them but the first the box has everything.
  std::size_t outer = box.size(), count = 1, stride = 1;
  bool whole = true;
  while (outer > 0 && whole) {
    --outer;
    count = box[outer].count() * stride;
    whole = box[outer].count() == sizes[outer];
    stride *= sizes[outer];
  }
  std::vector<std::size_t> index(outer);
  for (std::size_t dim = 0; dim < outer; ++dim) index[dim] = box[dim].begin;
  const std::size_t inner = box.empty() ? 0 : box[outer].begin * (stride / sizes[outer]);
  while (true) {
    std::size_t first = 0;
    for (std::size_t dim = 0; dim < outer; ++dim) first = first * sizes[dim] + index[dim];
    visit(first * stride + inner, count);
    std::size_t dim = outer;
    while (dim > 0 && ++index[dim - 1] == box[dim - 1].end) {
      --dim;
      index[dim] = box[dim].begin;
    }
    if (dim == 0) return;
  }
}

// Calls visit(box) for boxes that together are what an outer box has beside an inner one.
template <class Visit>
void around(const Box& outer, const Box& inner, Visit&& visit) {
  Box rest = outer;
  for (std::size_t dim = 0; dim < outer.size(); ++dim) {
    rest[dim] = {outer[dim].begin, inner[dim].begin};
    if (volume(rest) != 0) visit(rest);
    rest[dim] = {inner[dim].end, outer[dim].end};
    if (volume(rest) != 0) visit(rest);
    rest[dim] = inner[dim];
  }
}

}  // namespace tnt
