// Writes the schedule of one rank, step after step.
//
//   Writer writer(task);
//   writer.receive(2, scratch_at(0), 4);
//   writer.send(1, data_at(4), 4);
//   writer.next_round();
//   writer.reduce(data_at(0), data_at(0), scratch_at(0), 4);
//   return writer.finish();
//
// Steps of no elements are left out, which both ends of a message see alike. A message that shall
// be empty, because it only orders, is written by signal() and await().
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "collective/schedule.h"
#include "collective/task.h"

namespace tnt {

struct Range {
  std::size_t begin = 0, count = 0;
  std::size_t end() const { return begin + count; }
};

// Part i of `parts` nearly equal parts, cut at multiples of `grain` elements of the range.
inline Range part(Range whole, std::size_t parts, std::size_t i, std::size_t grain = 1) {
  const std::size_t grains = (whole.count + grain - 1) / grain;
  const auto begin_of = [&](std::size_t k) {
    return std::min((grains / parts * k + std::min(grains % parts, k)) * grain, whole.count);
  };
  return {whole.begin + begin_of(i), begin_of(i + 1) - begin_of(i)};
}

inline std::size_t parts_of(std::size_t bytes, std::size_t part_bytes) {
  return std::max<std::size_t>(1, (bytes + part_bytes - 1) / part_bytes);
}

// Into how many blocks bytes are cut that flow through `depth` ranks, one after the other: the root
// of depth * bytes / (bytes that a link moves in the time that a message takes to start).
inline std::size_t pipelined_blocks(std::size_t bytes, std::size_t depth) {
  constexpr double bytes_of_latency = 16 * 1024;
  constexpr double most = 1024;
  const double flow = static_cast<double>(bytes) * static_cast<double>(depth) / bytes_of_latency;
  return static_cast<std::size_t>(std::clamp(std::sqrt(flow), 1.0, most));
}

// Elements of a cache line: two ranks do not write to one.
inline std::size_t line_of(const Task& task) {
  return std::max<std::size_t>(1, 64 / task.element_bytes);
}

// Some of the ranks, in an order that they all know, and the own place among them.
struct Members {
  std::vector<int> ranks;
  int me = 0;

  int size() const { return static_cast<int>(ranks.size()); }
  int rank(int i) const { return ranks[i]; }
  int around(int i) const { return rank(((i % size()) + size()) % size()); }
};

// Neighbours in this order are neighbours on a node, where there are any.
inline Members all_ranks(const Task& task) {
  Members members{{}, task.rank};
  members.ranks.reserve(task.size);
  if (task.node.empty()) {
    for (int rank = 0; rank < task.size; ++rank) members.ranks.push_back(rank);
    return members;
  }
  for (const auto& ranks : ranks_by_node(task))
    members.ranks.insert(members.ranks.end(), ranks.begin(), ranks.end());
  const auto me = std::find(members.ranks.begin(), members.ranks.end(), task.rank);
  members.me = static_cast<int>(me - members.ranks.begin());
  return members;
}

inline Place data_at(std::size_t begin) { return {Memory::data, here, begin}; }
inline Place scratch_at(std::size_t begin) { return {Memory::scratch, here, begin}; }
inline Place input_at(std::size_t begin) { return {Memory::input, here, begin}; }
inline Place output_at(std::size_t begin) { return {Memory::output, here, begin}; }

class Writer {
 public:
  explicit Writer(const Task& task) : in_place(task.in_place), rank_(task.rank) {
    if (in_place) schedule_.data_count = whole_count(task);
  }

  const bool in_place;

  void reserve(std::size_t steps) { schedule_.steps.reserve(steps); }

  void send(int peer, Place from, std::size_t count, std::uint32_t span = 1) {
    if (count != 0) append({round_, Action::send, peer, count, {}, from, {}, span});
  }
  void receive(int peer, Place to, std::size_t count, std::uint32_t span = 1) {
    if (count != 0) append({round_, Action::receive, peer, count, to, {}, {}, span});
  }

  void signal(int peer) { append({round_, Action::send, peer, 0, {}, {}, {}}); }
  void await(int peer) { append({round_, Action::receive, peer, 0, {}, {}, {}}); }

  void copy(Place to, Place from, std::size_t count) {
    if (count != 0) append({round_, Action::copy, here, count, to, from, {}});
  }
  void reduce(Place to, Place from, Place with, std::size_t count) {
    if (count != 0) append({round_, Action::reduce, here, count, to, from, with});
  }

  // Between the caller's memory and data memory; nothing in place. The origin is the element of
  // data memory that belongs to the first of the caller's.
  void copy_in(Range range, std::size_t origin = 0) {
    if (!in_place) copy(data_at(range.begin), input_at(range.begin - origin), range.count);
  }
  void copy_out(Range range, std::size_t origin = 0) {
    if (!in_place) copy(output_at(range.begin - origin), data_at(range.begin), range.count);
  }

  // Where the caller gives what is at `begin` of the data memory in place.
  Place given_at(std::size_t begin, std::size_t origin = 0) const {
    return in_place ? data_at(begin) : input_at(begin - origin);
  }

  // Where the result belongs that is at `begin` of the data memory in place.
  Place result_at(std::size_t begin, std::size_t origin = 0) const {
    return in_place ? data_at(begin) : output_at(begin - origin);
  }

  // Data memory of any rank of the node, the own one too.
  Place data_of(int rank, std::size_t begin) const {
    return {Memory::data, rank == rank_ ? here : rank, begin};
  }

  // What follows starts when all messages so far have completed whose span ends here.
  void next_round() {
    const bool is_empty = schedule_.steps.empty() || schedule_.steps.back().round != round_;
    for (std::size_t i = 0; !is_empty && i < beside_in_round_ && !beside_.empty(); ++i)
      append_beside();
    ++round_;
  }

  // Deals these copies and reduces out to the next rounds, where they go on beside the messages.
  void go_beside(const Schedule& work, std::size_t rounds) {
    beside_.insert(beside_.end(), work.steps.begin(), work.steps.end());
    beside_in_round_ = (beside_.size() + rounds - 1) / std::max<std::size_t>(1, rounds);
  }
  void finish_beside() {
    while (!beside_.empty()) append_beside();
  }

  // Some rank reaches into the data memory of another; said by all of them.
  void share() { schedule_.shared = true; }
  void alternate() { schedule_.alternates = true; }

  Schedule finish() { return std::move(schedule_); }

 private:
  void append(const Step& step) {
    if (step.action != Action::send) touch(step.to, step.count);
    if (step.action != Action::receive) touch(step.from, step.count);
    if (step.action == Action::reduce) touch(step.with, step.count);
    schedule_.steps.push_back(step);
  }

  void append_beside() {
    Step step = beside_.front();
    beside_.pop_front();
    step.round = round_;
    append(step);
  }

  void touch(Place place, std::size_t count) {
    if (count == 0 || place.rank != here) return;
    if (place.memory == Memory::data)
      schedule_.data_count = std::max(schedule_.data_count, place.begin + count);
    if (place.memory == Memory::scratch)
      schedule_.scratch_count = std::max(schedule_.scratch_count, place.begin + count);
  }

  Schedule schedule_;
  std::uint32_t round_ = 0;
  std::deque<Step> beside_;
  std::size_t beside_in_round_ = 0;
  int rank_;
};

}  // namespace tnt
