// Alltoallv over messages: every rank posts all that it gets, and sends all that it gives, first to
// the ranks behind it, so that not all send to the same one at once.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005, on all-to-all of medium size.
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

bool fits(const Task& task) { return !task.in_place; }

// A flow of this rank, and where it begins in its input or output.
struct End {
  int distance;  // of the other rank
  int peer;
  Range range;
};

std::vector<End> ends_of(const Task& task, int Flow::* own, int Flow::* other, int direction) {
  std::vector<End> ends;
  std::size_t begin = 0;
  for (const Flow& flow : task.flows) {
    if (flow.*own != task.rank) continue;
    const int distance = (direction * (flow.*other - task.rank) + task.size) % task.size;
    ends.push_back({distance, flow.*other, {begin, flow.count}});
    begin += flow.count;
  }
  const auto nearer = [](const End& a, const End& b) { return a.distance < b.distance; };
  std::stable_sort(ends.begin(), ends.end(), nearer);
  return ends;
}

Schedule make(const Task& task) {
  Writer writer(task);
  const std::vector<End> given = ends_of(task, &Flow::from, &Flow::to, 1);
  const std::vector<End> got = ends_of(task, &Flow::to, &Flow::from, -1);
  writer.reserve(2 * (given.size() + got.size()));
  for (const End& end : got)
    if (end.peer != task.rank)
      writer.receive(end.peer, scratch_at(end.range.begin), end.range.count);
  for (const End& end : given) {
    if (end.peer == task.rank) continue;
    writer.copy(data_at(end.range.begin), input_at(end.range.begin), end.range.count);
    writer.send(end.peer, data_at(end.range.begin), end.range.count);
  }
  // What stays is copied while messages travel; to oneself the distance is 0, and so it is first.
  for (std::size_t i = 0; i < given.size() && given[i].peer == task.rank; ++i)
    writer.copy(output_at(got[i].range.begin), input_at(given[i].range.begin),
                given[i].range.count);
  writer.next_round();
  for (const End& end : got)
    if (end.peer != task.rank)
      writer.copy(output_at(end.range.begin), scratch_at(end.range.begin), end.range.count);
  return writer.finish();
}

}  // namespace

std::vector<Algorithm> spread_algorithms() {
  return {{"spread", Collective::alltoallv, fits, make}};
}

}  // namespace tnt
