// Gather, broadcast and barrier on real engines.
#include <atomic>
#include <numeric>

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

TEST(allgather_joins_blocks_of_different_length_in_rank_order) {
  for (int size = 1; size <= 9; ++size)
    for (const std::size_t unit : {0UL, 1UL, 3UL, 10007UL}) {
      std::string expected;
      for (int rank = 0; rank < size; ++rank) expected += block_of(rank, unit);
      on_ranks(size, [&](Engine& engine) {
        CHECK(gather_all(engine, block_of(engine.rank(), unit)) == expected);
      });
    }
}

TEST(allgather_may_change_its_lengths_from_call_to_call) {
  on_ranks(3, [](Engine& engine) {
    for (int i = 0; i < 300; ++i) {
      const auto length = [&](int rank) { return (i * 7 + rank * 5) % 23; };
      std::string expected;
      for (int rank = 0; rank < 3; ++rank) expected += std::string(length(rank), char('x' + rank));
      const std::string own(length(engine.rank()), static_cast<char>('x' + engine.rank()));
      CHECK_EQUAL(gather_all(engine, own), expected);
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

TEST(broadcast_brings_the_memory_of_any_root) {
  for (int size = 1; size <= 9; ++size) {
    Ranks ranks(size);
    for (int root = 0; root < size; ++root)
      for (const std::size_t count : {0UL, 1UL, 7UL, 50001UL})
        ranks.run([&](Engine& engine) {
          std::vector<int> values(count, -1);
          if (engine.rank() == root) std::iota(values.begin(), values.end(), root);
          std::vector<int> expected(count);
          std::iota(expected.begin(), expected.end(), root);
          const auto request = [&](Request& filled) {
            filled.collective = Collective::broadcast;
            filled.type = filled.wire = Type::int32;
            filled.count = count;
            filled.root = root;
            filled.label = "broadcast";
            give(filled, values);
            take(filled, values);
          };
          CHECK_EQUAL(call(engine, 0, request), "");
          CHECK(values == expected);
        });
  }
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

TEST(different_collectives_may_follow_each_other_on_one_channel) {
  on_ranks(4, [](Engine& engine) {
    for (int i = 0; i < 1000; ++i) {
      CHECK_EQUAL(barrier_and_wait(engine), "");
      std::vector<float> values(10, 1);
      CHECK_EQUAL(allreduce_in_place(engine, Type::float32, Reduction::sum, values), "");
      CHECK_EQUAL(values[9], 4.0F);
      if (i % 10 == 0) CHECK_EQUAL(gather_all(engine, "ab"), "abababab");
    }
  });
}
