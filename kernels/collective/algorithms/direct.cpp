// Allreduce and reduce on one node: ranks read and write each other's data memory, and messages
// only say when.
//
// Source: S. Jain, R. Kaleem, M. G. Balmana, A. Langer, D. Durnov, A. Sannikov, M. Garzaran,
// "Framework for scalable intra-node collective operations using shared memory", SC 2018.
//
// In place, rank r owns slice r of the vector: it adds up the slice of all ranks, block by block,
// and stores the sum in the data of all.
//
//            slice 0   slice 1   slice 2
//   rank 0   sum <---- x         x            rank 0 reads column 0 and writes it,
//   rank 1   x         sum       x            rank 1 column 1, ...
//   rank 2   x         x         sum
//
// Else the vector goes through small staging memories that stay in cache. Ranks with few elements
// add up everything themselves: output = data of 0 + data of 1 + ... Others add up slices of a
// chunk, while the next chunk is copied in and the one before copied out; the own slice comes from
// the input and goes to the output without that:
//
//   round       0        1        2        3        4
//   copy in     0 in A   1 in B   2 in C   3 in A
//   reduce               0 in A   1 in B   2 in C   3 in A
//   copy out                      0 of A   1 of B   2 of C ...
#include "collective/algorithms/direct.h"

#include "collective/algorithms/family.h"

namespace tnt {
namespace {

constexpr std::size_t block_bytes = 32 * 1024;
constexpr std::size_t most_uses_of_blocks = 4096;
constexpr std::size_t chunk_bytes = 256 * 1024;
constexpr std::size_t slice_bytes = 8 * 1024;  // a rank's share of a chunk, where there are many
constexpr std::size_t most_chunks = 1024;
constexpr std::size_t most_bytes_read_by_all = 64 * 1024;

Range whole_of(const Task& task) { return {0, task.count}; }

Range slice_of(Range range, const Members& members, int i, const Task& task) {
  return part(range, members.size(), i, line_of(task));
}

// Chunks that go through staging memory.
struct Staging {
  const Task& task;
  std::size_t chunks;

  Range chunk(std::size_t i) const { return part(whole_of(task), chunks, i, line_of(task)); }
  // Where it lies in data memory.
  Range staged(std::size_t i, std::size_t slot) const {
    return {slot * chunk(0).count, chunk(i).count};
  }
};

// All get the sum, or the root alone if there is one.
void write_by_all(Writer& writer, const Task& task, const Members& members, int root) {
  const bool gets = root == here || root == task.rank;
  const Staging staging{task, chunks_of(task.count * task.element_bytes, task.size)};
  const auto give = [&](std::size_t chunk, std::size_t slot) {
    const Range range = staging.chunk(chunk);
    writer.copy(data_at(staging.staged(chunk, slot).begin), input_at(range.begin), range.count);
  };
  const auto take = [&](std::size_t chunk, std::size_t slot) {
    if (!gets) return;
    const Range range = staging.chunk(chunk);
    const std::size_t begin = staging.staged(chunk, slot).begin;
    reduce_from_all(writer, task, output_at(range.begin), begin, range.count);
  };
  pass_chunks(writer, members, staging.chunks, give, take);
}

// From the next one on.
std::vector<int> others_by_index(const Members& members) {
  std::vector<int> others;
  for (int i = 1; i < members.size(); ++i) others.push_back((members.me + i) % members.size());
  return others;
}

// An empty message from all others to one.
void tell(Writer& writer, const Members& members, int one) {
  if (members.rank(members.me) != one) return writer.signal(one);
  for (const int rank : others(members)) writer.await(rank);
}

// Three slots. The next operation begins with the first, when all have copied out the last chunk
// but one; or not even that, where only the root copies, and tells nobody. So that chunk is in
// another.
void write_by_slices(Writer& writer, const Task& task, const Members& members, int root) {
  const bool gets = root == here || root == task.rank;
  std::size_t chunks = chunks_of(task.count * task.element_bytes, task.size);
  if (chunks == 1) writer.alternate();
  while (chunks != 1 && (chunks % 3 == 1 || (chunks % 3 == 2 && root != here))) ++chunks;
  const Staging staging{task, chunks};
  const auto give = [&](std::size_t chunk) {
    const Range range = staging.chunk(chunk), staged = staging.staged(chunk, chunk % 3);
    for (const int i : others_by_index(members)) {
      const Range slice = slice_of(staged, members, i, task);
      writer.copy(data_at(slice.begin), input_at(range.begin + slice.begin - staged.begin),
                  slice.count);
    }
  };
  // The own slice comes from the input and goes to the output, while it is in the cache.
  const auto reduce = [&](std::size_t chunk) {
    const Range staged = staging.staged(chunk, chunk % 3);
    const Range slice = slice_of(staged, members, members.me, task);
    const std::size_t blocks = parts_of(slice.count * task.element_bytes, block_bytes);
    for (std::size_t i = 0; i < blocks; ++i) {
      const Range block = part(slice, blocks, i, line_of(task));
      const std::size_t begin = staging.chunk(chunk).begin + block.begin - staged.begin;
      Place sum = input_at(begin);
      for (const int rank : others(members)) {
        writer.reduce(data_at(block.begin), sum, writer.data_of(rank, block.begin), block.count);
        sum = data_at(block.begin);
      }
      if (gets) writer.copy(output_at(begin), sum, block.count);
    }
  };
  const auto take = [&](std::size_t chunk) {
    const Range range = staging.chunk(chunk), staged = staging.staged(chunk, chunk % 3);
    for (const int i : others_by_index(members)) {
      const Range slice = slice_of(staged, members, i, task);
      writer.copy(output_at(range.begin + slice.begin - staged.begin),
                  writer.data_of(members.rank(i), slice.begin), slice.count);
    }
  };
  for (std::size_t round = 0; round < chunks + 2; ++round) {
    if (round >= 2 && gets) take(round - 2);
    if (round >= 1 && round <= chunks) reduce(round - 1);
    if (round < chunks) give(round);
    if (round < chunks || (round == chunks && root == here))
      synchronise(writer, members);
    else if (round == chunks)
      tell(writer, members, root);  // only the root waits for the last sums
    writer.next_round();
  }
}

void write_staged(Writer& writer, const Task& task, const Members& members) {
  const int root = task.collective == Collective::reduce ? task.root : here;
  const bool few_bytes = task.size * task.count * task.element_bytes <= most_bytes_read_by_all;
  (few_bytes ? write_by_all : write_by_slices)(writer, task, members, root);
}

void write_allreduce_in_place(Writer& writer, const Task& task, const Members& members) {
  const Range slice = slice_of(whole_of(task), members, members.me, task);
  const std::size_t blocks = blocks_in_cache(slice, task.element_bytes, task.size);
  writer.reserve((blocks + 2) * task.size * 2);
  synchronise_round(writer, members);
  for (std::size_t i = 0; i < blocks; ++i) {
    const Range block = part(slice, blocks, i, line_of(task));
    reduce_from_others(writer, members, block);
    copy_to_others(writer, members, block);
  }
  synchronise(writer, members);
}

// The sum of a slice is built in the data of the root.
void write_reduce_in_place(Writer& writer, const Task& task, const Members& members) {
  const Range slice = slice_of(whole_of(task), members, members.me, task);
  const std::size_t blocks = blocks_in_cache(slice, task.element_bytes, task.size);
  synchronise_round(writer, members);
  for (std::size_t i = 0; i < blocks; ++i) {
    const Range block = part(slice, blocks, i, line_of(task));
    const Place sum = writer.data_of(task.root, block.begin);
    for (int k = 0; k < task.size; ++k)
      if (const int rank = members.around(members.me + k); rank != task.root)
        writer.reduce(sum, sum, writer.data_of(rank, block.begin), block.count);
  }
  synchronise(writer, members);
}

}  // namespace

void synchronise(Writer& writer, const Members& members) {
  for (const int peer : others(members)) writer.await(peer);
  for (const int peer : others(members)) writer.signal(peer);
}

void synchronise_round(Writer& writer, const Members& members) {
  synchronise(writer, members);
  writer.next_round();
}

void reduce_from_all(Writer& writer, const Task& task, Place sum, std::size_t begin,
                     std::size_t count) {
  writer.reduce(sum, writer.data_of(0, begin), writer.data_of(1, begin), count);
  for (int rank = 2; rank < task.size; ++rank)
    writer.reduce(sum, sum, writer.data_of(rank, begin), count);
}

std::vector<int> others(const Members& members) {
  std::vector<int> others = others_by_index(members);
  for (int& other : others) other = members.rank(other);
  return others;
}

void reduce_from_others(Writer& writer, const Members& members, Range range) {
  const Place own = data_at(range.begin);
  for (const int rank : others(members))
    writer.reduce(own, own, writer.data_of(rank, range.begin), range.count);
}

void copy_to_others(Writer& writer, const Members& members, Range range) {
  for (const int rank : others(members))
    writer.copy(writer.data_of(rank, range.begin), data_at(range.begin), range.count);
}

std::size_t blocks_in_cache(Range range, std::size_t element_bytes, std::size_t uses) {
  const std::size_t most = std::max<std::size_t>(1, most_uses_of_blocks / uses);
  return std::min(parts_of(range.count * element_bytes, block_bytes), most);
}

std::size_t chunks_of(std::size_t bytes, int size) {
  const std::size_t chunk = std::max(chunk_bytes, slice_bytes * size);
  const std::size_t chunks = std::min(parts_of(bytes, chunk), most_chunks);
  return chunks == 1 ? 1 : chunks + chunks % 2;
}

std::vector<Algorithm> direct_algorithms() {
  return {
      {"direct", Collective::allreduce, on_one_node,
       on_node<write_allreduce_in_place, write_staged>},
      {"direct", Collective::reduce, on_one_node, on_node<write_reduce_in_place, write_staged>}};
}

}  // namespace tnt
