// Broadcast and reduce along a chain that begins at the root: each rank passes a segment on while
// it receives the next.
//
// Source: J. L. Traeff, A. Ripke, "Optimal broadcast for fully connected processor-node networks",
// JPDC 68(7), 2008, on the linear pipeline.
//
//   broadcast, round  0    1    2    3     reduce, round   0    1    2    3    4
//   root              0->  1->  2->        the last        0->  1->  2->
//   the next               0->  1->  2->   the one before       0+   1+   2+
//   the last                    0    1                               0->  1->  2->
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

struct Chain {
  int nearer = here, farther = here;  // here: none
  std::size_t segments = 1;
  Range whole;

  Range segment(std::size_t i) const { return i < segments ? part(whole, segments, i) : Range{}; }
};

Chain chain_of(const Task& task) {
  const Members members = all_ranks(task);
  Chain chain;
  if (task.rank != task.root) chain.nearer = members.around(members.me - 1);
  if (members.around(members.me + 1) != task.root) chain.farther = members.around(members.me + 1);
  chain.segments = pipelined_blocks(task.count * task.element_bytes, task.size - 1);
  chain.whole = {0, task.count};
  return chain;
}

Schedule make_broadcast(const Task& task) {
  const Chain chain = chain_of(task);
  Writer writer(task);
  writer.reserve(chain.segments * 3);
  for (std::size_t round = 0; round <= chain.segments; ++round) {
    const Range coming = chain.segment(round);
    const Range going = round > 0 ? chain.segment(round - 1) : Range{};
    if (chain.nearer != here) writer.receive(chain.nearer, data_at(coming.begin), coming.count);
    if (chain.farther != here) writer.send(chain.farther, data_at(going.begin), going.count);
    writer.copy_out(going);
    if (chain.nearer == here) writer.copy_in(coming);
    writer.next_round();
  }
  return writer.finish();
}

Schedule make_reduce(const Task& task) {
  const Chain chain = chain_of(task);
  const std::size_t slot_count = chain.segment(0).count;
  const bool adds = chain.farther != here, sends = chain.nearer != here;
  Writer writer(task);
  writer.reserve(chain.segments * 4);
  for (std::size_t round = 0; round < chain.segments + 2; ++round) {
    const Range coming = chain.segment(round);
    const Range adding = round > 0 ? chain.segment(round - 1) : Range{};
    const Range ready = round > 1 ? chain.segment(round - 2) : Range{};
    const Range going = adds ? ready : adding;
    // Two slots take turns: one is received into while the other is added.
    if (adds) writer.receive(chain.farther, scratch_at(round % 2 * slot_count), coming.count);
    if (sends) writer.send(chain.nearer, data_at(going.begin), going.count);
    if (adds)
      writer.reduce(sends ? data_at(adding.begin) : writer.result_at(adding.begin),
                    writer.given_at(adding.begin), scratch_at((round + 1) % 2 * slot_count),
                    adding.count);
    if (!adds) writer.copy_in(coming);
    writer.next_round();
  }
  return writer.finish();
}

}  // namespace

std::vector<Algorithm> chain_algorithms() {
  return {{"chain", Collective::broadcast, fits_all, make_broadcast},
          {"chain", Collective::reduce, fits_all, make_reduce}};
}

}  // namespace tnt
