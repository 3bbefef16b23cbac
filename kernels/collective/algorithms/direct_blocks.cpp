// Broadcast, reduce-scatter, allgather and alltoall on one node: ranks read what they need from the
// data memory of the others, and messages only say when.
//
// Source: S. Jain, R. Kaleem, M. G. Balmana, A. Langer, D. Durnov, A. Sannikov, M. Garzaran,
// "Framework for scalable intra-node collective operations using shared memory", SC 2018.
//
// Not in place, the vectors go through small staging memories in chunks (see pass_chunks). Where
// ranks give a block to each rank, a chunk has a piece of each block:
//
//   input     0000000000 1111111111 2222222222
//   chunk 0   000 111 222
//   chunk 1      000 111 222 ...
#include "collective/algorithms/direct.h"
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

std::vector<Range> blocks_of(const Task& task) {
  std::vector<Range> blocks;
  for (int rank = 0; rank < task.size; ++rank)
    if (task.collective == Collective::alltoall)
      blocks.push_back({rank * task.count, task.count});
    else
      blocks.push_back({task.offsets[rank], task.offsets[rank + 1] - task.offsets[rank]});
  return blocks;
}

// A piece of each block, one after another in a slot of staging memory.
class Pieces {
 public:
  explicit Pieces(const Task& task)
      : blocks_(blocks_of(task)),
        line_(line_of(task)),
        chunks_(chunks_of(whole_count(task) * task.element_bytes, task.size)) {
    for (const Range& block : blocks_) {
      begins_.push_back(slot_count_);
      slot_count_ += part(block, chunks_, 0, line_).count;
    }
  }

  std::size_t chunks() const { return chunks_; }
  Range piece(int block, std::size_t chunk) const {
    return part(blocks_[block], chunks_, chunk, line_);
  }
  std::size_t staged_at(int block, std::size_t slot) const {
    return slot * slot_count_ + begins_[block];
  }

 private:
  std::vector<Range> blocks_;
  std::vector<std::size_t> begins_;
  std::size_t line_, chunks_, slot_count_ = 0;
};

// For pass_chunks: gives a piece of each block. take(chunk, slot) takes some.
template <class Take>
void pass_pieces(Writer& writer, const Members& members, const Pieces& pieces, Take take) {
  const auto give = [&](std::size_t chunk, std::size_t slot) {
    for (int block = 0; block < members.size(); ++block) {
      const Range piece = pieces.piece(block, chunk);
      writer.copy(data_at(pieces.staged_at(block, slot)), input_at(piece.begin), piece.count);
    }
  };
  pass_chunks(writer, members, pieces.chunks(), give, take);
}

// The root hears that all have taken what it gave, and may say that there is more.
void exchange_with_root(Writer& writer, const Task& task, const Members& members, bool gives) {
  if (task.rank == task.root) {
    for (const int peer : others(members)) writer.await(peer);
    if (!gives) return;
    for (const int peer : others(members)) writer.signal(peer);
  } else {
    if (gives) writer.await(task.root);
    writer.signal(task.root);
  }
}

// In each round the root gives a chunk, and hears that all have taken the one before. It need not
// hear so of the last: the next operation begins in the other slot, if there is another.
void write_staged_broadcast(Writer& writer, const Task& task, const Members& members) {
  const std::size_t chunks = chunks_of(task.count * task.element_bytes, 2);
  const auto chunk = [&](std::size_t i) { return part({0, task.count}, chunks, i, line_of(task)); };
  const auto staged_at = [&](std::size_t i) { return i % 2 * chunk(0).count; };
  const auto take = [&](std::size_t i) {
    writer.copy(output_at(chunk(i).begin), writer.data_of(task.root, staged_at(i)), chunk(i).count);
  };
  const bool is_root = task.rank == task.root;
  for (std::size_t round = 0; round <= chunks; ++round) {
    const bool gives = round < chunks;
    if (!is_root && round > 0) take(round - 1);
    if (is_root && gives)
      writer.copy(data_at(staged_at(round)), input_at(chunk(round).begin), chunk(round).count);
    if (round == 0)
      synchronise(writer, members);
    else if (gives || chunks == 1)
      exchange_with_root(writer, task, members, gives);
    if (is_root && gives) take(round);
    writer.next_round();
  }
}

void write_broadcast_in_place(Writer& writer, const Task& task, const Members& members) {
  synchronise_round(writer, members);
  if (task.rank != task.root) writer.copy(data_at(0), writer.data_of(task.root, 0), task.count);
  exchange_with_root(writer, task, members, false);
}

void write_reduce_scatter_in_place(Writer& writer, const Task& task, const Members& members) {
  const Range own = blocks_of(task)[task.rank];
  const std::size_t blocks = blocks_in_cache(own, task.element_bytes, task.size);
  synchronise_round(writer, members);
  for (std::size_t i = 0; i < blocks; ++i)
    reduce_from_others(writer, members, part(own, blocks, i, line_of(task)));
  synchronise(writer, members);
}

void write_staged_reduce_scatter(Writer& writer, const Task& task, const Members& members) {
  const Pieces pieces(task);
  pass_pieces(writer, members, pieces, [&](std::size_t chunk, std::size_t slot) {
    const Range piece = pieces.piece(task.rank, chunk);
    const Place sum = output_at(piece.begin - output_begin(task));
    reduce_from_all(writer, task, sum, pieces.staged_at(task.rank, slot), piece.count);
  });
}

void write_allgather_in_place(Writer& writer, const Task& task, const Members& members) {
  const std::vector<Range> blocks = blocks_of(task);
  synchronise_round(writer, members);
  for (const int rank : others(members))
    writer.copy(data_at(blocks[rank].begin), writer.data_of(rank, blocks[rank].begin),
                blocks[rank].count);
  synchronise(writer, members);
}

void write_staged_allgather(Writer& writer, const Task& task, const Members& members) {
  const std::vector<Range> blocks = blocks_of(task);
  std::size_t largest = 0;
  for (const Range& block : blocks) largest = std::max(largest, block.count);
  const std::size_t chunks = chunks_of(largest * task.element_bytes, 2);
  const std::size_t slot_count = part({0, largest}, chunks, 0, line_of(task)).count;
  const auto piece = [&](int rank, std::size_t chunk) {
    return part(blocks[rank], chunks, chunk, line_of(task));
  };
  const auto give = [&](std::size_t chunk, std::size_t slot) {
    const Range own = piece(task.rank, chunk);
    writer.copy(data_at(slot * slot_count), input_at(own.begin - input_begin(task)), own.count);
  };
  const auto take = [&](std::size_t chunk, std::size_t slot) {
    for (int k = 0; k < task.size; ++k) {
      const int rank = members.around(members.me + k);
      writer.copy(output_at(piece(rank, chunk).begin), writer.data_of(rank, slot * slot_count),
                  piece(rank, chunk).count);
    }
  };
  pass_chunks(writer, members, chunks, give, take);
}

// All have read the blocks that they get before these take the place of others.
void write_alltoall_in_place(Writer& writer, const Task& task, const Members& members) {
  const std::size_t n = task.count;
  synchronise_round(writer, members);
  for (const int rank : others(members))
    writer.copy(scratch_at(rank * n), writer.data_of(rank, task.rank * n), n);
  synchronise_round(writer, members);
  for (const int rank : others(members)) writer.copy(data_at(rank * n), scratch_at(rank * n), n);
}

void write_staged_alltoall(Writer& writer, const Task& task, const Members& members) {
  const Pieces pieces(task);
  pass_pieces(writer, members, pieces, [&](std::size_t chunk, std::size_t slot) {
    for (int k = 0; k < task.size; ++k) {
      const int rank = members.around(members.me + k);
      const Range piece = pieces.piece(rank, chunk);
      writer.copy(output_at(piece.begin), writer.data_of(rank, pieces.staged_at(task.rank, slot)),
                  piece.count);
    }
  });
}

// In place, or not.
constexpr auto make_broadcast = on_node<write_broadcast_in_place, write_staged_broadcast>;
constexpr auto make_reduce_scatter =
    on_node<write_reduce_scatter_in_place, write_staged_reduce_scatter>;
constexpr auto make_allgather = on_node<write_allgather_in_place, write_staged_allgather>;
constexpr auto make_alltoall = on_node<write_alltoall_in_place, write_staged_alltoall>;

}  // namespace

std::vector<Algorithm> direct_block_algorithms() {
  return {{"direct", Collective::broadcast, on_one_node, make_broadcast},
          {"direct", Collective::reduce_scatter, on_one_node, make_reduce_scatter},
          {"direct", Collective::allgather, on_one_node, make_allgather},
          {"direct", Collective::alltoall, on_one_node, make_alltoall}};
}

}  // namespace tnt
