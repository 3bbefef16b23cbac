// A memory full of symbols instead of numbers: what each element holds, and who touched it last.
// Elements with the same history are one cell, so the size of a memory does not matter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checker/symbols.h"

namespace tnt {

// A point in the life of a rank.
struct Epoch {
  std::int32_t rank = -1;  // -1: never
  std::uint32_t tick = 0;
};

struct Cell {
  Content content;
  Epoch writer;
  std::vector<Epoch> readers;  // since it was written
};

class Cells {
 public:
  explicit Cells(std::size_t count = 0) : begins_{0, count}, cells_(1) {}

  std::size_t count() const { return begins_.back(); }

  // Calls visit(cell, begin, end) for the cells that make up [begin, end), cut where needed.
  template <class Visit>
  void visit(std::size_t begin, std::size_t end, Visit visit) {
    if (begin == end) return;
    std::size_t i = cut(begin);
    const std::size_t last = cut(end);
    for (; i < last; ++i) visit(cells_[i], begins_[i], begins_[i + 1]);
  }

  // Makes one cell of those that make up [begin, end), which have the same history, if they are
  // more than `pieces`, of which they are about to be made up.
  void merge(std::size_t begin, std::size_t end, std::size_t pieces) {
    if (begin == end) return;
    const auto i = static_cast<std::ptrdiff_t>(cut(begin)) + 1;
    const auto last = static_cast<std::ptrdiff_t>(cut(end));
    if (last - i < static_cast<std::ptrdiff_t>(pieces)) return;
    cells_.erase(cells_.begin() + i, cells_.begin() + last);
    begins_.erase(begins_.begin() + i, begins_.begin() + last);
  }

 private:
  // The cell that begins there; one past the last at the end.
  std::size_t cut(std::size_t at) {
    const auto place = std::lower_bound(begins_.begin(), begins_.end(), at);
    const auto index = static_cast<std::size_t>(place - begins_.begin());
    if (*place == at) return index;
    Cell cell = cells_[index - 1];
    cell.content = cell.content.after(at - begins_[index - 1]);
    begins_.insert(place, at);
    cells_.insert(cells_.begin() + static_cast<std::ptrdiff_t>(index), std::move(cell));
    return index;
  }

  std::vector<std::size_t> begins_;  // of the cells, and the end of the last
  std::vector<Cell> cells_;
};

}  // namespace tnt
