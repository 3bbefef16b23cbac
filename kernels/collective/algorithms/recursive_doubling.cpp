// Allreduce in as few rounds as there are: in each, ranks at twice the distance add up their sums.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005, on reduce and allreduce.
//
// Ranks beyond the largest power of two hand their vector to a partner, and get the result back:
//
//   five ranks:   4 -> 0 | 0 <-> 1, 2 <-> 3 | 0 <-> 2, 1 <-> 3 | 0 -> 4
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

Schedule make(const Task& task) {
  Writer writer(task);
  write_recursive_doubling(writer, all_ranks(task), {0, task.count}, Ends::caller);
  return writer.finish();
}

}  // namespace

void write_recursive_doubling(Writer& writer, const Members& members, Range range, Ends ends) {
  const bool copies = ends == Ends::caller;
  const Place own = data_at(range.begin);
  int core = 1;
  while (core * 2 <= members.size()) core *= 2;

  if (members.me >= core) {
    const int partner = members.rank(members.me - core);
    if (copies) writer.copy_in(range);
    writer.send(partner, own, range.count);
    writer.next_round();
    writer.receive(partner, own, range.count);
    writer.next_round();
    if (copies) writer.copy_out(range);
    return;
  }

  // Two slots take turns: one is received into while the other is added.
  std::size_t slot = 0;
  bool pending = false;
  const auto receive = [&](int peer) {
    writer.receive(peer, scratch_at(slot * range.count), range.count);
  };
  const auto add_last_to = [&](Place to) {
    if (pending) writer.reduce(to, own, scratch_at((1 - slot) * range.count), range.count);
  };
  const auto end_round = [&] {
    writer.next_round();
    slot = 1 - slot;
    pending = true;
  };

  const bool has_partner = members.me + core < members.size();
  if (has_partner) receive(members.rank(members.me + core));
  if (copies) writer.copy_in(range);
  if (has_partner) end_round();
  for (int distance = 1; distance < core; distance *= 2) {
    const int peer = members.rank(members.me ^ distance);
    receive(peer);
    add_last_to(own);
    writer.send(peer, own, range.count);
    end_round();
  }
  if (has_partner) {
    add_last_to(own);
    writer.send(members.rank(members.me + core), own, range.count);
    if (copies) writer.copy_out(range);
  } else {
    add_last_to(copies ? writer.result_at(range.begin) : own);
  }
  writer.next_round();
}

std::vector<Algorithm> recursive_doubling_algorithms() {
  return {{"recursive_doubling", Collective::allreduce, fits_all, make}};
}

}  // namespace tnt
