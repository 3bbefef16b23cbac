// What the algorithms for one node share: messages that only order, and work on the data memory
// of others.
#pragma once

#include "collective/writer.h"

namespace tnt {

// The schedule that `in_place` writes for a task in place, or `staged` for another.
using Write = void (*)(Writer& writer, const Task& task, const Members& members);
template <Write in_place, Write staged>
Schedule on_node(const Task& task) {
  Writer writer(task);
  writer.share();
  (task.in_place ? in_place : staged)(writer, task, all_ranks(task));
  return writer.finish();
}

// Empty messages to and from all others: what they have done so far is done before what follows in
// the next rounds here, and the other way round.
void synchronise(Writer& writer, const Members& members);

// The same, and what follows is in the next round.
void synchronise_round(Writer& writer, const Members& members);

std::vector<int> others(const Members& members);

// `sum` = what lies at `begin` of the data of all, added up.
void reduce_from_all(Writer& writer, const Task& task, Place sum, std::size_t begin,
                     std::size_t count);

// Range of the own data += the same range of the data of all others.
void reduce_from_others(Writer& writer, const Members& members, Range range);

// Range of the data of all others = the same range of the own.
void copy_to_others(Writer& writer, const Members& members, Range range);

// Into how many blocks a range is cut in place: `uses` steps on a block stay in cache, and the
// schedule stays short.
std::size_t blocks_in_cache(Range range, std::size_t element_bytes, std::size_t uses);

// In how many chunks a vector goes through staging memory: one, or an even number.
std::size_t chunks_of(std::size_t bytes, int size);

// Goes through the chunks of an operation that is not in place. In each round give(chunk, slot)
// fills a slot of the own staging memory, after take(chunk, slot) has taken from the peers what
// they gave in the round before:
//
//   round      0        1        2        3        4
//   take                0 of A   1 of B   2 of A   3 of B
//   give       0 in A   1 in B   2 in A   3 in B
//
// The next operation begins with slot A, which nobody reads any more. Not so if there is one chunk:
// then it takes other memory.
template <class Give, class Take>
void pass_chunks(Writer& writer, const Members& members, std::size_t chunks, Give give, Take take) {
  if (chunks == 1) writer.alternate();
  for (std::size_t round = 0; round <= chunks; ++round) {
    if (round > 0) take(round - 1, (round - 1) % 2);
    if (round == chunks) break;
    give(round, round % 2);
    synchronise_round(writer, members);
  }
}

}  // namespace tnt
