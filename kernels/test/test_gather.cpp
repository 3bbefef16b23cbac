// Gathers, barriers and notices on real engines.
#include <atomic>

#include "check.h"
#include "engine/gather.h"
#include "ranks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

std::string gather_all(Engine& engine, const std::string& block) {
  std::string joined;
  Pending pending;
  const auto allocate = [&](std::size_t bytes) {
    joined.resize(bytes);
    return static_cast<void*>(joined.data());
  };
  const auto owner = borrowed(engine);
  gather(owner, nullptr, 0, "allgather", block.data(), block.size(), allocate, pending.done());
  CHECK_EQUAL(pending.wait(), "");
  return joined;
}

// Rank r's block: r times `unit` letters, so that rank 0 has none.
std::string block_of(int rank, std::size_t unit) {
  return std::string(rank * unit, static_cast<char>('a' + rank));
}

}  // namespace

TEST(allgather_joins_blocks_whose_length_differs_by_rank_and_call_in_rank_order) {
  for (int size = 1; size <= 9; ++size)
    on_ranks(size, [size](Engine& engine) {
      for (const std::size_t unit : {0, 1, 3, 10007, 2, 0, 500, 499, 501}) {
        std::string expected;
        for (int rank = 0; rank < size; ++rank) expected += block_of(rank, unit);
        CHECK(gather_all(engine, block_of(engine.rank(), unit)) == expected);
      }
    });
}

TEST(an_allocation_that_throws_fails_the_call_on_all_ranks) {
  on_ranks(3, [](Engine& engine) {
    std::string joined;
    Pending pending;
    const auto allocate = [&](std::size_t bytes) -> void* {
      if (engine.rank() == 1) throw std::bad_alloc();
      joined.resize(bytes);
      return joined.data();
    };
    const auto owner = borrowed(engine);
    gather(owner, nullptr, 0, "allgather of rows", "ab", 2, allocate, pending.done());
    CHECK_CONTAINS(pending.wait(), "rank 1: std::bad_alloc in allgather of rows");
  });
}

TEST(nobody_leaves_a_barrier_before_all_have_entered) {
  for (int size = 1; size <= 9; ++size) {
    std::atomic<int> entered{0};
    on_ranks(size, [&](Engine& engine) {
      for (int i = 1; i <= 50; ++i) {
        ++entered;
        CHECK_EQUAL(barrier_and_wait(engine), "");
        CHECK(entered >= i * size);
      }
    });
  }
}

TEST(notices_travel_while_collectives_are_under_way) {
  on_ranks(2, [](Engine& engine) {
    const int peer = 1 - engine.rank();
    for (int i = 0; i < 200; ++i) {
      engine.notify(peer, Engine::first_user_kind, std::to_string(i));
      CHECK_EQUAL(barrier_and_wait(engine), "");
    }
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (int i = 0; i < 200; ++i) {
      Notice notice;
      while (!engine.take_notice(notice)) {
        CHECK(std::chrono::steady_clock::now() < deadline);
        std::this_thread::yield();
      }
      CHECK_EQUAL(notice.payload, std::to_string(i));
    }
  });
}
