// What a rank that fails, leaves or disagrees does to the others.
#include <atomic>

#include "check.h"
#include "ranks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

std::string sum_of(Engine& engine, std::size_t count) {
  std::vector<float> values(count, 1);
  return allreduce_in_place(engine, Type::float32, Reduction::sum, values);
}

}  // namespace

TEST(an_abort_frees_all_buckets_under_way_with_the_reason) {
  Ranks ranks(3);
  constexpr std::uint32_t buckets = 20;
  std::vector<Pending> pending(buckets);
  for (std::uint32_t k = 0; k < buckets; ++k)
    start(ranks[k % 2], k, pending[k], barrier_of("barrier"));
  ranks[2].abort("rank 2: bad data");
  for (Pending& one : pending) CHECK_EQUAL(one.wait(), "rank 2: bad data");
}

TEST(the_first_reason_stays) {
  Ranks ranks(2);
  ranks[0].abort("rank 0: the first");
  ranks[0].abort("rank 0: the second");
  CHECK_EQUAL(barrier_and_wait(ranks[1]), "rank 0: the first");
  ranks[1].abort("rank 1: the third");
  CHECK_EQUAL(ranks[1].failure().reason, "rank 0: the first");
  CHECK(!ranks[1].failure().stalled);
}

TEST(a_rank_that_was_waited_for_says_for_whom_it_waits) {
  Ranks ranks(3, 0.2);
  ranks[2].set_timeout(60);
  float values[2] = {};
  Pending pending[2];
  const auto receive_from = [&](int rank, int root, Pending& ending) {
    start(ranks[rank], static_cast<std::uint32_t>(root), ending, [&](Request& request) {
      request.collective = Collective::broadcast;
      request.count = 1;
      request.root = root;
      request.outputs.add(reinterpret_cast<std::byte*>(&values[rank / 2]), 1);
      request.label = "broadcast of x";
    });
  };
  receive_from(2, 1, pending[0]);
  receive_from(0, 2, pending[1]);
  const std::string of_0 = pending[1].wait(), of_2 = pending[0].wait();
  CHECK_CONTAINS(of_0, "rank 0: waited 0 s for rank 2 in broadcast of x");
  CHECK_EQUAL(of_2, of_0 + "\nrank 2 itself waits for rank 1 in broadcast of x");
  for (const int rank : {0, 2}) CHECK(ranks[rank].failure().stalled);
}

TEST(a_time_out_may_be_set_while_an_operation_waits) {
  Ranks ranks(2);
  Pending pending;
  start(ranks[0], 0, pending, barrier_of("barrier"));
  ranks[0].set_timeout(0.1);
  CHECK_CONTAINS(pending.wait(), "for rank 1 in barrier");
}

TEST(ranks_in_different_collectives_get_an_error_and_do_not_hang) {
  on_ranks(2, [](Engine& engine) {
    const std::string failure = engine.rank() == 0 ? sum_of(engine, 10) : barrier_and_wait(engine);
    CHECK_CONTAINS(failure, "is in another operation");
  });
}

TEST(after_a_failure_every_operation_ends_at_once) {
  Ranks ranks(3);
  ranks[0].abort("rank 0: gone");
  ranks.run([](Engine& engine) {
    for (int i = 0; i < 100; ++i) {
      CHECK_EQUAL(sum_of(engine, 10), "rank 0: gone");
      CHECK_EQUAL(barrier_and_wait(engine), "rank 0: gone");
      CHECK_EQUAL(call(engine, 1, barrier_of("barrier"), Way::waited), "rank 0: gone");
      CHECK_EQUAL(call(engine, 2, barrier_of("barrier"), Way::helped), "rank 0: gone");
    }
  });
}

TEST(close_ends_operations_under_way) {
  Ranks ranks(2);
  constexpr std::uint32_t buckets = 8;
  std::vector<Pending> pending(buckets);
  for (std::uint32_t k = 0; k < buckets; ++k) start(ranks[0], k, pending[k], barrier_of("barrier"));
  ranks[0].close();
  for (Pending& one : pending) {
    CHECK(one.ended());
    CHECK_EQUAL(one.wait(), "communication is closed");
  }
}

TEST(what_is_started_while_or_after_an_engine_closes_ends_too) {
  for (int i = 0; i < 50; ++i) {
    Ranks ranks(2);
    std::atomic<bool> closed{false};
    std::thread caller([&] {
      for (std::uint32_t channel = 0; !closed || channel % 100 != 0; ++channel) {
        Pending pending;
        start(ranks[0], channel, pending, barrier_of("barrier"));
        if (channel % 2 == 0) CHECK_EQUAL(pending.wait(), "communication is closed");
      }
    });
    ranks[0].close();
    closed = true;
    caller.join();
  }
}

TEST(an_abort_reaches_the_others_even_if_the_rank_closes_at_once) {
  for (int i = 0; i < 100; ++i) {
    Ranks ranks(2);
    ranks[0].abort("rank 0: gone");
    ranks[0].close();
    CHECK_EQUAL(barrier_and_wait(ranks[1]), "rank 0: gone");
  }
}

TEST(a_channel_carries_one_collective_at_a_time) {
  Ranks ranks(2);
  Pending first, second;
  start(ranks[0], 5, first, barrier_of("barrier"));
  CHECK_THROWS(start(ranks[0], 5, second, barrier_of("barrier")), std::logic_error);
  start(ranks[1], 5, second, barrier_of("barrier"));
  CHECK_EQUAL(first.wait(), "");
  CHECK_EQUAL(second.wait(), "");
}
