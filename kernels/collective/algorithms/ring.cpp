// Around a ring, where each rank sends to the next only.
//
// Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", JPDC 69(2), 2009, on the ring.
//
// Allreduce of four ranks: in each hop every rank receives a part of the vector and adds its own
// (reduce-scatter), then the finished parts go around (allgather). What rank 1 does:
//
//   hop      0    1    2  |  3    4    5
//   send     1    0    3  |  2    1    0
//   receive  0    3    2  |  1    0    3
//            += own       |  as it is
//
// Parts are cut into segments, one a round. Each travels for two rounds: so the next is announced,
// and an earlier one reduced or copied, while the link is busy.
//
//   round    0        1        2        3        4
//   receive  0.0      0.1      0.2      3.0      3.1
//   reduce                     0.0      0.1      0.2
//   send     1.0      1.1      1.2      0.0      0.1
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

constexpr std::size_t segment_bytes = 256 * 1024;
constexpr std::size_t least_bytes_to_cut = 32 * 1024;
constexpr std::size_t most_segments = 1024;

enum class Coming {
  partial,  // the own part is added, and it goes on
  sum,      // so it is complete; it goes on, and to the caller
  result,   // so it is complete, and goes to the caller only
  whole,    // complete already; it goes on, and to the caller
};

struct Hop {
  int send = 0, receive = 0;  // parts, counted around the ring
  Coming coming = Coming::partial;
};

// The way of a vector through the ring, as one rank sees it.
struct Way {
  std::vector<Range> parts;  // of data memory, one a member
  std::vector<Hop> hops;
  bool first_is_whole = false;  // what the first hop sends goes to the caller too
  std::size_t input_origin = 0, output_origin = 0;
  Ends ends = Ends::caller;

  Range at(int i) const {
    const int size = static_cast<int>(parts.size());
    return parts[(i % size + size) % size];
  }
};

class Ring {
 public:
  Ring(Writer& writer, const Members& members, const Way& way, std::size_t element_bytes)
      : writer_(writer),
        way_(way),
        next_(members.around(members.me + 1)),
        previous_(members.around(members.me - 1)),
        segments_(count_segments(element_bytes)),
        rounds_(way.hops.size() * segments_),
        span_(segments_ == 1 ? 1 : 2) {
    for (const Range& whole : way.parts)
      slot_count_ = std::max(slot_count_, part(whole, segments_, 0).count);
  }

  void write() {
    copy_in(sent_in(0));
    for (std::size_t round = 0; round < rounds_; ++round) {
      const bool reduces = hop(round).coming != Coming::whole;
      const Range coming = received_in(round), going = sent_in(round);
      const Place to = reduces ? slot(round) : data_at(coming.begin);
      writer_.receive(previous_, to, coming.count, span_);
      const bool finishes_what_is_sent = segments_ == span_;
      if (finishes_what_is_sent && round >= span_) finish(round - span_);
      writer_.send(next_, data_at(going.begin), going.count, span_);
      if (!finishes_what_is_sent && round >= span_) finish(round - span_);
      if (round < segments_ && way_.first_is_whole) copy_out(going);
      if (round + 1 < segments_) copy_in(sent_in(round + 1));
      writer_.next_round();
    }
    for (std::size_t left = span_; left > 0; --left) {
      finish(rounds_ - left);
      writer_.next_round();
    }
  }

 private:
  std::size_t count_segments(std::size_t element_bytes) const {
    std::size_t count = 0;
    for (const Range& whole : way_.parts) count = std::max(count, whole.count);
    const std::size_t bytes = count * element_bytes;
    const bool only_sends = writer_.in_place && way_.hops.front().coming == Coming::whole;
    if (bytes < least_bytes_to_cut || only_sends) return 1;
    return std::clamp<std::size_t>(parts_of(bytes, segment_bytes), 2, most_segments);
  }

  const Hop& hop(std::size_t round) const { return way_.hops[round / segments_]; }
  Range sent_in(std::size_t round) const {
    return part(way_.at(hop(round).send), segments_, round % segments_);
  }
  Range received_in(std::size_t round) const {
    return part(way_.at(hop(round).receive), segments_, round % segments_);
  }

  // Slots take turns: one is reduced while the others are received into.
  Place slot(std::size_t round) const { return scratch_at(round % (span_ + 1) * slot_count_); }

  // What is left to do with what came in that round.
  void finish(std::size_t round) {
    const Range range = received_in(round);
    const Coming coming = hop(round).coming;
    if (coming != Coming::whole) {
      const bool stays = coming == Coming::result;
      const Place sum =
          stays ? writer_.result_at(range.begin, way_.output_origin) : data_at(range.begin);
      writer_.reduce(sum, own_at(range.begin), slot(round), range.count);
    }
    if (coming == Coming::sum || coming == Coming::whole) copy_out(range);
  }

  Place own_at(std::size_t begin) const {
    return way_.ends == Ends::caller ? writer_.given_at(begin, way_.input_origin) : data_at(begin);
  }
  void copy_in(Range range) {
    if (way_.ends == Ends::caller) writer_.copy_in(range, way_.input_origin);
  }
  void copy_out(Range range) {
    if (way_.ends == Ends::caller) writer_.copy_out(range, way_.output_origin);
  }

  Writer& writer_;
  const Way& way_;
  const int next_, previous_;
  const std::size_t segments_, rounds_;
  const std::uint32_t span_;  // of a message
  std::size_t slot_count_ = 0;
};

std::vector<Range> blocks_of(const Members& members, const std::vector<std::size_t>& offsets) {
  std::vector<Range> blocks;
  blocks.reserve(members.ranks.size());
  for (const int rank : members.ranks)
    blocks.push_back({offsets[rank], offsets[rank + 1] - offsets[rank]});
  return blocks;
}

Schedule make_allreduce(const Task& task) {
  Writer writer(task);
  write_ring_allreduce(writer, all_ranks(task), {0, task.count}, task.element_bytes, Ends::caller);
  return writer.finish();
}

// The own block makes the last hop: the block that is sent first belongs to the rank before.
Schedule make_reduce_scatter(const Task& task) {
  const Members members = all_ranks(task);
  const int me = members.me;
  Way way;
  way.parts = blocks_of(members, task.offsets);
  for (int k = 1; k < task.size; ++k)
    way.hops.push_back({me - k, me - k - 1, k + 1 < task.size ? Coming::partial : Coming::result});
  way.output_origin = output_begin(task);
  Writer writer(task);
  Ring(writer, members, way, task.element_bytes).write();
  return writer.finish();
}

Schedule make_allgather(const Task& task) {
  const Members members = all_ranks(task);
  const int me = members.me;
  Way way;
  way.parts = blocks_of(members, task.offsets);
  for (int k = 0; k + 1 < task.size; ++k) way.hops.push_back({me - k, me - k - 1, Coming::whole});
  way.first_is_whole = true;
  way.input_origin = input_begin(task);
  Writer writer(task);
  Ring(writer, members, way, task.element_bytes).write();
  return writer.finish();
}

}  // namespace

void write_ring_allreduce(Writer& writer, const Members& members, Range range,
                          std::size_t element_bytes, Ends ends) {
  const int size = members.size(), me = members.me;
  Way way;
  way.ends = ends;
  for (int i = 0; i < size; ++i) way.parts.push_back(part(range, size, i));
  for (int k = 0; k + 1 < size; ++k)
    way.hops.push_back({me - k, me - k - 1, k + 2 < size ? Coming::partial : Coming::sum});
  for (int k = 0; k + 1 < size; ++k) way.hops.push_back({me + 1 - k, me - k, Coming::whole});
  Ring(writer, members, way, element_bytes).write();
}

std::vector<Algorithm> ring_algorithms() {
  return {{"ring", Collective::allreduce, fits_all, make_allreduce},
          {"ring", Collective::reduce_scatter, fits_all, make_reduce_scatter},
          {"ring", Collective::allgather, fits_all, make_allgather}};
}

}  // namespace tnt
