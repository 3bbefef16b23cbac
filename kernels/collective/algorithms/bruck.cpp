// Allgather in a logarithmic number of rounds: each doubles the run of blocks that a rank has.
//
// Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient algorithms for
// all-to-all communications in multiport message-passing systems", IEEE TPDS 8(11), 1997, on
// concatenation.
//
// What rank 1 of five has, and receives from ranks 2, 3 and 0:
//
//   1 | 2        1 2 | 3 4      1 2 3 4 | 0
//
// Blocks lie in their final place. A run that goes around the end is two messages.
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

// The blocks first, first + 1, ..., as one or two ranges.
std::pair<Range, Range> run_of(const Task& task, int first, int blocks) {
  const auto between = [&](int begin, int end) {
    const std::size_t at = task.offsets[begin];
    return Range{at, task.offsets[end] - at};
  };
  first %= task.size;
  const int end = std::min(first + blocks, task.size);
  return {between(first, end), between(0, first + blocks - end)};
}

Schedule make(const Task& task) {
  Writer writer(task);
  const Range own = run_of(task, task.rank, 1).first;
  writer.copy_in(own, own.begin);
  for (int have = 1; have < task.size; have *= 2) {
    const int blocks = std::min(have, task.size - have);
    const int source = (task.rank + have) % task.size;
    const int target = (task.rank - have + task.size) % task.size;
    const auto [first, rest] = run_of(task, source, blocks);
    writer.receive(source, data_at(first.begin), first.count);
    writer.receive(source, data_at(rest.begin), rest.count);
    const auto [own_first, own_rest] = run_of(task, task.rank, blocks);
    writer.send(target, data_at(own_first.begin), own_first.count);
    writer.send(target, data_at(own_rest.begin), own_rest.count);
    writer.next_round();
  }
  writer.copy_out({0, task.offsets.back()});
  return writer.finish();
}

}  // namespace

std::vector<Algorithm> bruck_algorithms() {
  return {{"bruck", Collective::allgather, fits_all, make}};
}

}  // namespace tnt
