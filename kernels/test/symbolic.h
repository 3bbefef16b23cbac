// Runs schedules of all ranks on symbols instead of numbers, and finds what is wrong with them.
//
// A send completes only when its receive is posted, which is stricter than any transport, so a
// schedule that ends here deadlocks nowhere. A message is read as late as possible, when it is
// received, and no memory may be in two transfers of a round unless all of them only read it.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <vector>

#include "check.h"
#include "collective/schedule.h"

namespace tnt::test {

// What an element holds: how often each rank's contribution is in it, and by which additions it
// came about (the same for a + b and b + a, so equal shapes mean equal bits).
struct Symbol {
  std::vector<std::uint8_t> times;  // empty: nothing that anyone wrote
  std::uint64_t shape = 0;

  static Symbol of(int rank, int size) {
    Symbol symbol;
    symbol.times.resize(static_cast<std::size_t>(size));
    symbol.times[static_cast<std::size_t>(rank)] = 1;
    symbol.shape = mix(static_cast<std::uint64_t>(rank) + 1);
    return symbol;
  }
  void add(const Symbol& other) {
    CHECK(!times.empty() && !other.times.empty());
    for (std::size_t i = 0; i < times.size(); ++i)
      times[i] = static_cast<std::uint8_t>(times[i] + other.times[i]);
    shape = mix(shape + other.shape);
  }
  bool operator==(const Symbol& other) const {
    return times == other.times && shape == other.shape;
  }

 private:
  static std::uint64_t mix(std::uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
};

class SymbolicRun {
 public:
  // schedules[r] is executed by rank r on data[r].
  SymbolicRun(std::vector<Schedule> schedules, std::vector<std::vector<Symbol>> data)
      : size_(schedules.size()), schedules_(std::move(schedules)), ranks_(size_) {
    for (std::size_t r = 0; r < size_; ++r) {
      ranks_[r].data = std::move(data[r]);
      ranks_[r].scratch.resize(schedules_[r].scratch_count);
      ranks_[r].heard_of.insert(static_cast<int>(r));
      begin_round(r);
    }
    bool progressed = true;
    while (progressed) {
      progressed = deliver();
      for (std::size_t r = 0; r < size_; ++r)
        while (ranks_[r].open == 0 && ranks_[r].begin < schedules_[r].steps.size()) {
          end_round(r);
          begin_round(r);
          progressed = true;
        }
    }
    for (std::size_t r = 0; r < size_; ++r) {
      CHECK_EQUAL(ranks_[r].open, 0U);  // else: deadlock
      CHECK_EQUAL(ranks_[r].begin, schedules_[r].steps.size());
    }
  }

  const std::vector<Symbol>& data(std::size_t rank) const { return ranks_[rank].data; }

  // Whose entry the rank knows of at the end, by messages that left after it.
  const std::set<int>& heard_of(std::size_t rank) const { return ranks_[rank].heard_of; }

 private:
  struct Rank {
    std::vector<Symbol> data, scratch;
    std::set<int> heard_of;
    std::size_t begin = 0, end = 0;  // steps of the round under way
    std::size_t open = 0;            // its sends and receives that have not completed
  };
  struct Post {
    Range range;
    std::set<int> heard_of;  // by the sender, when it sent
  };
  struct Link {
    std::deque<Post> sends, receives;
  };

  std::vector<Symbol>& memory(std::size_t rank, const Range& range) {
    auto& memory = range.memory == Memory::data ? ranks_[rank].data : ranks_[rank].scratch;
    CHECK(range.begin + range.count <= memory.size());
    return memory;
  }

  void begin_round(std::size_t r) {
    Rank& rank = ranks_[r];
    const auto& steps = schedules_[r].steps;
    rank.begin = rank.end;
    while (rank.end < steps.size() && steps[rank.end].round == steps[rank.begin].round) ++rank.end;
    CHECK(rank.end == steps.size() || steps[rank.end].round > steps[rank.begin].round);
    check_overlaps(r);
    for (std::size_t i = rank.begin; i < rank.end; ++i) {
      const Step& step = steps[i];
      if (step.action != Action::send && step.action != Action::receive) continue;
      CHECK(step.peer >= 0 && step.peer < static_cast<int>(size_));
      CHECK(step.peer != static_cast<int>(r));
      const auto peer = static_cast<std::size_t>(step.peer);
      if (step.action == Action::send)
        links_[{r, peer}].sends.push_back({step.from, rank.heard_of});
      else
        links_[{peer, r}].receives.push_back({step.to, {}});
      ++rank.open;
    }
  }

  bool deliver() {
    bool any = false;
    for (auto& [ends, link] : links_)
      while (!link.sends.empty() && !link.receives.empty()) {
        const Post send = link.sends.front(), receive = link.receives.front();
        link.sends.pop_front();
        link.receives.pop_front();
        CHECK_EQUAL(send.range.count, receive.range.count);
        const auto& from = memory(ends.first, send.range);
        auto& to = memory(ends.second, receive.range);
        for (std::size_t i = 0; i < send.range.count; ++i)
          to[receive.range.begin + i] = from[send.range.begin + i];
        ranks_[ends.second].heard_of.insert(send.heard_of.begin(), send.heard_of.end());
        --ranks_[ends.first].open;
        --ranks_[ends.second].open;
        any = true;
      }
    return any;
  }

  void end_round(std::size_t r) {
    for (std::size_t i = ranks_[r].begin; i < ranks_[r].end; ++i) {
      const Step& step = schedules_[r].steps[i];
      if (step.action != Action::reduce && step.action != Action::copy) continue;
      CHECK_EQUAL(step.from.count, step.to.count);
      const auto& from = memory(r, step.from);
      auto& to = memory(r, step.to);
      for (std::size_t k = 0; k < step.to.count; ++k)
        if (step.action == Action::reduce)
          to[step.to.begin + k].add(from[step.from.begin + k]);
        else
          to[step.to.begin + k] = from[step.from.begin + k];
    }
  }

  void check_overlaps(std::size_t r) const {
    const auto& steps = schedules_[r].steps;
    const auto overlap = [](const Range& a, const Range& b) {
      return a.memory == b.memory && a.count != 0 && b.count != 0 && a.begin < b.begin + b.count &&
             b.begin < a.begin + a.count;
    };
    for (std::size_t i = ranks_[r].begin; i < ranks_[r].end; ++i)
      for (std::size_t k = ranks_[r].begin; k < ranks_[r].end; ++k) {
        if (steps[i].action != Action::receive || i == k) continue;
        if (steps[k].action == Action::send) CHECK(!overlap(steps[i].to, steps[k].from));
        if (steps[k].action == Action::receive) CHECK(!overlap(steps[i].to, steps[k].to));
      }
  }

  const std::size_t size_;
  const std::vector<Schedule> schedules_;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::size_t, std::size_t>, Link> links_;
};

}  // namespace tnt::test
