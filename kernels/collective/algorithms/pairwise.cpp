// Alltoall in pairs: in round k the ranks whose numbers add up to k, modulo the size, exchange
// their blocks. So a block is sent before the block that comes from the same rank takes its place.
//
//   four ranks:   (1 3)  |  (0 1) (2 3)  |  (0 2)  |  (0 3) (1 2)       0 and 2 rest in round 0
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005, on all-to-all (there the pairs are those of a power of
// two).
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

Schedule make(const Task& task) {
  Writer writer(task);
  writer.reserve(task.size * 4);
  const auto block_of = [&](int rank) { return rank * task.count; };
  // Two slots take turns: one is filled while the other is copied out.
  std::size_t slot = 0;
  int last = here;
  const auto copy_last_out = [&] {
    if (last != here)
      writer.copy(writer.result_at(block_of(last)), scratch_at((1 - slot) * task.count),
                  task.count);
  };
  for (int k = 0; k < task.size; ++k) {
    const int peer = (k - task.rank + task.size) % task.size;
    if (peer == task.rank) {
      if (!task.in_place)
        writer.copy(output_at(block_of(peer)), input_at(block_of(peer)), task.count);
      continue;
    }
    const Place own = data_at(task.in_place ? block_of(peer) : slot * task.count);
    writer.receive(peer, scratch_at(slot * task.count), task.count);
    if (!task.in_place) writer.copy(own, input_at(block_of(peer)), task.count);
    writer.send(peer, own, task.count);
    copy_last_out();
    writer.next_round();
    last = peer;
    slot = 1 - slot;
  }
  copy_last_out();
  return writer.finish();
}

}  // namespace

std::vector<Algorithm> pairwise_algorithms() {
  return {{"pairwise", Collective::alltoall, fits_all, make}};
}

}  // namespace tnt
