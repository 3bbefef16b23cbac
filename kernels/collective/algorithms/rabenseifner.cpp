// Allreduce by recursive halving (reduce-scatter) and recursive doubling (allgather): as few bytes
// as the ring sends, in a logarithmic number of rounds.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005, on reduce and allreduce.
//
// What four ranks have summed up of the parts 0123 of the vector, and which they send:
//
//   rank 0   0123 -> 23   01 -> 1   0   | 0 ->    01 ->    0123
//   rank 1   0123 -> 23   01 -> 0   1   | 1 ->    01 ->    0123
//   rank 2   0123 -> 01   23 -> 3   2   | 2 ->    23 ->    0123
//   rank 3   0123 -> 01   23 -> 2   3   | 3 ->    23 ->    0123
//
// Where size = core + rest, with core a power of two, the first 2 * rest ranks go in pairs: the two
// add up half of the vector each, the odd one hands its half over, and gets the result at the end.
#include "collective/algorithms/family.h"

namespace tnt {
namespace {

class Halving {
 public:
  explicit Halving(const Task& task) : writer_(task), rank_(task.rank), whole_{0, task.count} {
    while (core_ * 2 <= task.size) core_ *= 2;
    rest_ = task.size - core_;
    const std::size_t upper = whole_.count - half(0).count;
    slot_count_ = std::max({window(0, core_ / 2).count, half(0).count, upper});
  }

  Schedule write() {
    const bool in_pair = rank_ < 2 * rest_;
    if (in_pair && rank_ % 2 == 1) return write_odd();
    me_ = in_pair ? rank_ / 2 : rank_ - rest_;
    if (in_pair) {
      exchange(rank_ + 1, half(0), half(1));
      writer_.receive(rank_ + 1, data_at(half(1).begin), half(1).count);
      add(half(0));
      pending_ = false;
      writer_.next_round();
    }
    for (int width = core_ / 2; width >= 1; width /= 2) halve(width);
    for (int width = 1; width < core_; width *= 2) double_up(width);
    if (in_pair) writer_.send(rank_ + 1, data_at(0), whole_.count);
    writer_.copy_out(arrived_);
    return writer_.finish();
  }

 private:
  Schedule write_odd() {
    exchange(rank_ - 1, half(1), half(0));
    add(half(1));
    writer_.send(rank_ - 1, data_at(half(1).begin), half(1).count);
    writer_.next_round();
    writer_.receive(rank_ - 1, data_at(0), whole_.count);
    writer_.next_round();
    writer_.copy_out(whole_);
    return writer_.finish();
  }

  void halve(int width) {
    const Range kept = window(me_ & ~(width - 1), width);
    const Range given = window((me_ ^ width) & ~(width - 1), width);
    exchange(peer(width), kept, given);
  }

  // The half of the window that is given away is added up first, and travels while the other is.
  void exchange(int peer, Range kept, Range given) {
    writer_.receive(peer, slot(), kept.count);
    prepare(given);
    writer_.send(peer, data_at(given.begin), given.count);
    prepare(kept);
    writer_.next_round();
    is_in_ = true;
    pending_ = true;
    summed_ = kept;
    slot_ = 1 - slot_;
  }

  void double_up(int width) {
    const Range own = window(me_ & ~(width - 1), width);
    const Range coming = window((me_ ^ width) & ~(width - 1), width);
    writer_.receive(peer(width), data_at(coming.begin), coming.count);
    add(own);
    if (width == 1) arrived_ = own;
    pending_ = false;
    writer_.send(peer(width), data_at(own.begin), own.count);
    writer_.copy_out(arrived_);
    arrived_ = coming;
    writer_.next_round();
  }

  // Two slots take turns: one is received into while the other, which holds the window that was
  // kept in the round before, is added.
  Place slot() const { return scratch_at(slot_ * slot_count_); }
  void add(Range range) {
    if (!pending_) return;
    const std::size_t begin = (1 - slot_) * slot_count_ + range.begin - summed_.begin;
    writer_.reduce(data_at(range.begin), data_at(range.begin), scratch_at(begin), range.count);
  }
  void prepare(Range range) {
    if (!is_in_) writer_.copy_in(range);
    add(range);
  }

  Range half(std::size_t i) const { return part(whole_, 2, i); }
  Range window(int first, int width) const {
    const std::size_t begin = part(whole_, core_, first).begin;
    return {begin, part(whole_, core_, first + width - 1).end() - begin};
  }
  int peer(int distance) const {
    const int other = me_ ^ distance;
    return other < rest_ ? 2 * other : other + rest_;
  }

  Writer writer_;
  const int rank_;
  const Range whole_;
  int core_ = 1, rest_ = 0;
  int me_ = 0;  // in the core
  std::size_t slot_count_ = 0, slot_ = 0;
  bool is_in_ = false;    // the vector is in data memory
  bool pending_ = false;  // what came in the round before is still to be added
  Range summed_;          // and is of this window
  Range arrived_;         // finished, and still to be copied out
};

Schedule make(const Task& task) { return Halving(task).write(); }

}  // namespace

std::vector<Algorithm> rabenseifner_algorithms() {
  return {{"rabenseifner", Collective::allreduce, fits_all, make}};
}

}  // namespace tnt
