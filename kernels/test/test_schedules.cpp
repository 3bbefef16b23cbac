// The schedules of 1 to 64 ranks, checked on symbols.
#include <algorithm>

#include "check.h"
#include "collective/algorithms.h"
#include "symbolic.h"

using namespace tnt;
using namespace tnt::test;

namespace {

constexpr int most_ranks = 64;

template <class Make>
std::vector<Schedule> schedules(int size, Make make) {
  std::vector<Schedule> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(make(rank));
  return all;
}

using Algorithm = Schedule (*)(int, int, std::size_t);

// Each element holds each rank's contribution once, added up in the same way on all ranks.
void check_allreduce(Algorithm algorithm) {
  for (int size = 1; size <= most_ranks; ++size)
    for (const std::size_t count : {0UL, 1UL, 3UL, 64UL, 131UL}) {
      std::vector<std::vector<Symbol>> data;
      for (int rank = 0; rank < size; ++rank) data.emplace_back(count, Symbol::of(rank, size));
      const SymbolicRun run(schedules(size, [&](int rank) { return algorithm(rank, size, count); }),
                            data);
      const std::vector<std::uint8_t> once(static_cast<std::size_t>(size), 1);
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(size); ++rank)
        for (std::size_t i = 0; i < count; ++i) {
          CHECK(run.data(rank)[i].times == once);
          CHECK(run.data(rank)[i] == run.data(0)[i]);
        }
    }
}

std::size_t elements_sent(const Schedule& schedule) {
  std::size_t sum = 0;
  for (const Step& step : schedule.steps)
    if (step.action == Action::send) sum += step.from.count;
  return sum;
}

std::uint32_t rounds(const Schedule& schedule) {
  return schedule.steps.empty() ? 0 : schedule.steps.back().round + 1;
}

}  // namespace

TEST(recursive_doubling_adds_every_contribution_once) {
  check_allreduce(allreduce_recursive_doubling);
}

TEST(the_ring_adds_every_contribution_once) { check_allreduce(allreduce_ring); }

TEST(recursive_doubling_takes_logarithmically_many_rounds) {
  for (int size = 1; size <= most_ranks; ++size) {
    std::uint32_t bound = 2;  // to fold the ranks beyond a power of two in, and out
    for (int core = 2; core <= size; core *= 2) ++bound;
    for (int rank = 0; rank < size; ++rank)
      CHECK(rounds(allreduce_recursive_doubling(rank, size, 10)) <= bound);
  }
}

TEST(the_ring_sends_each_element_less_than_twice) {
  for (int size = 2; size <= most_ranks; ++size)
    for (int rank = 0; rank < size; ++rank) {
      constexpr std::size_t count = 6400;
      const std::size_t slack = 2 * static_cast<std::size_t>(size);  // unequal parts
      CHECK(elements_sent(allreduce_ring(rank, size, count)) <=
            2 * count * static_cast<std::size_t>(size - 1) / static_cast<std::size_t>(size) +
                slack);
    }
}

TEST(allgather_brings_every_block_to_every_rank) {
  for (int size = 1; size <= most_ranks; ++size) {
    std::vector<std::size_t> offsets{0};
    for (int rank = 0; rank < size; ++rank)
      offsets.push_back(offsets.back() + static_cast<std::size_t>(rank * 5 % 4));  // empty ones too
    std::vector<std::vector<Symbol>> data(static_cast<std::size_t>(size));
    std::vector<Symbol> expected;
    for (int rank = 0; rank < size; ++rank) {
      auto& own = data[static_cast<std::size_t>(rank)];
      own.resize(offsets.back());
      for (std::size_t i = offsets[static_cast<std::size_t>(rank)];
           i < offsets[static_cast<std::size_t>(rank) + 1]; ++i) {
        own[i] = Symbol::of(rank, size);
        expected.push_back(own[i]);
      }
    }
    const SymbolicRun run(
        schedules(size, [&](int rank) { return allgather_ring(rank, size, offsets); }), data);
    for (std::size_t rank = 0; rank < data.size(); ++rank) CHECK(run.data(rank) == expected);
  }
}

TEST(broadcast_brings_the_root_s_elements_to_every_rank) {
  for (int size = 1; size <= most_ranks; ++size)
    for (int root = 0; root < size; root += std::max(1, size / 7)) {
      std::vector<std::vector<Symbol>> data(static_cast<std::size_t>(size), std::vector<Symbol>(3));
      data[static_cast<std::size_t>(root)].assign(3, Symbol::of(root, size));
      const auto expected = data[static_cast<std::size_t>(root)];
      const SymbolicRun run(
          schedules(size, [&](int rank) { return broadcast_binomial(rank, size, 3, root); }), data);
      for (std::size_t rank = 0; rank < data.size(); ++rank) CHECK(run.data(rank) == expected);
    }
}

TEST(after_a_barrier_every_rank_has_heard_of_every_other) {
  for (int size = 1; size <= most_ranks; ++size) {
    const SymbolicRun run(
        schedules(size, [&](int rank) { return barrier_dissemination(rank, size); }),
        std::vector<std::vector<Symbol>>(static_cast<std::size_t>(size)));
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(size); ++rank)
      CHECK_EQUAL(run.heard_of(rank).size(), static_cast<std::size_t>(size));
  }
}

TEST(a_schedule_that_is_wrong_is_found) {
  const std::vector<std::vector<Symbol>> data(2, std::vector<Symbol>(4, Symbol::of(0, 2)));
  const Range first{Memory::data, 0, 2}, second{Memory::data, 2, 2}, whole{Memory::data, 0, 4};
  const auto run = [&](Schedule a, Schedule b) { SymbolicRun({a, b}, data); };
  const Step send{0, Action::send, 1, first, {}}, receive{0, Action::receive, 0, {}, first};
  CHECK_THROWS(run({{send}, 0}, {}), CheckFailed);  // nobody receives
  const Step longer{0, Action::receive, 0, {}, whole};
  CHECK_THROWS(run({{send}, 0}, {{longer}, 0}), CheckFailed);
  const Step overlapping{0, Action::receive, 1, {}, whole};
  CHECK_THROWS(run({{send, overlapping}, 0}, {{receive}, 0}), CheckFailed);
  const Step late{0, Action::receive, 1, {}, second}, after{1, Action::send, 1, first, {}};
  const Step back{1, Action::send, 0, first, {}};
  CHECK_THROWS(run({{late, after}, 0}, {{receive, back}, 0}), CheckFailed);  // each waits first
}
