// Weights that ranks serve to each other.
#include <algorithm>

#include "check.h"
#include "engine/server.h"
#include "ranks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

constexpr std::uint32_t first_channel = 100;

// What a server sends may be under way when its rank has left.
using Owners = std::vector<std::shared_ptr<Engine>>;
Owners owners_of(Ranks& ranks, int size) {
  Owners owners;
  for (int rank = 0; rank < size; ++rank) owners.push_back(borrowed(ranks[rank]));
  return owners;
}

// A rank that serves and asks.
struct Serving {
  std::shared_ptr<Server> server;
  std::size_t count;

  Serving(const Owners& owners, Engine& engine, std::size_t weights, std::int64_t staleness)
      : server(std::make_shared<Server>(owners[engine.rank()], nullptr, first_channel, weights,
                                        staleness, "a server of weights")),
        count(weights) {
    server->begin(std::vector<float>(count, 1.0f).data());
  }

  void send(float value) {
    const auto update = std::make_shared<std::vector<float>>(count, value);
    server->send(update->data(), update);
  }
  std::string wait_for_answer() {
    Pending pending;
    server->take(pending.done());
    return pending.wait();
  }
  std::string wait_for_all_to_leave() {
    Pending pending;
    server->leave(pending.done());
    return pending.wait();
  }
};

}  // namespace

TEST(without_staleness_an_answer_has_all_updates_of_the_step) {
  for (const Joined joined : every_joined)
    for (const int size : {1, 2, 3, 4})
      for (const std::size_t count : {std::size_t{10'007}, std::size_t{2}}) {
        Ranks ranks(size, 60, joined);
        const Owners owners = owners_of(ranks, size);
        ranks.run([&](Engine& engine) {
          Serving here(owners, engine, count, 0);
          float expected = 1;
          for (int step = 1; step <= 20; ++step) {
            here.send(static_cast<float>(engine.rank() + step));
            expected += static_cast<float>(size * step + size * (size - 1) / 2);
            CHECK_EQUAL(here.wait_for_answer(), "");
            CHECK_EQUAL(here.server->behind(), 0);
            for (std::size_t i = 0; i < count; ++i) CHECK_EQUAL(here.server->answer()[i], expected);
          }
          CHECK_EQUAL(here.wait_for_all_to_leave(), "");
          for (const float weight : here.server->part()) CHECK_EQUAL(weight, expected);
        });
      }
}

// Rank 0 makes no step; the others come as far as they may, and then wait for it.
TEST(ranks_are_ahead_of_the_slowest_by_the_staleness_and_no_more) {
  constexpr std::size_t count = 1000;
  constexpr std::int64_t staleness = 3;
  for (const Joined joined : every_joined) {
    Ranks ranks(3, 60, joined);
    const Owners owners = owners_of(ranks, 3);
    std::atomic<int> waiting{0};
    ranks.run([&](Engine& engine) {
      Serving here(owners, engine, count, staleness);
      if (engine.rank() == 0) {
        while (waiting != 2) std::this_thread::yield();
        for (int step = 0; step < 5; ++step) {
          here.send(1);
          CHECK_EQUAL(here.wait_for_answer(), "");
        }
      } else {
        for (std::int64_t step = 1; step <= 5; ++step) {
          here.send(1);
          if (step == staleness + 1) {
            Pending pending;
            here.server->take(pending.done());
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            CHECK(!pending.ended());
            ++waiting;
            CHECK_EQUAL(pending.wait(), "");
          } else {
            CHECK_EQUAL(here.wait_for_answer(), "");
          }
          CHECK(here.server->behind() <= staleness);
          if (step <= staleness) CHECK_EQUAL(here.server->behind(), step);
        }
      }
      CHECK_EQUAL(here.wait_for_all_to_leave(), "");
      for (const float weight : here.server->part()) CHECK_EQUAL(weight, 1.0f + 3 * 5);
    });
  }
}

TEST(a_rank_that_takes_its_time_is_waited_for_longer_than_for_a_message) {
  constexpr std::size_t count = 100;
  // Of seconds: a busy machine may keep one rank from leaving for longer than the other would wait.
  Ranks ranks(2, 4);
  const Owners owners = owners_of(ranks, 2);
  ranks.run([&](Engine& engine) {
    Serving here(owners, engine, count, 1);
    here.send(1);
    CHECK_EQUAL(here.wait_for_answer(), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(4500));
    CHECK(engine.failure().empty());
    CHECK_EQUAL(here.wait_for_all_to_leave(), "");
  });
}

TEST(a_rank_that_sends_nothing_while_others_wait_for_it_is_named) {
  constexpr std::size_t count = 100;
  for (const bool leaves : {false, true}) {
    Ranks ranks(3, 1);
    const Owners owners = owners_of(ranks, 3);
    std::atomic<int> waiting{2};
    ranks.run([&](Engine& engine) {
      Serving here(owners, engine, count, 0);
      if (engine.rank() == 0) {
        while (waiting != 0) std::this_thread::yield();
        return;
      }
      if (!leaves) here.send(1);
      const std::string failure = leaves ? here.wait_for_all_to_leave() : here.wait_for_answer();
      --waiting;
      CHECK_CONTAINS(failure, "rank 0 in an update to a server of weights; is that rank stuck");
    });
  }
}

TEST(who_waits_for_an_answer_or_for_others_to_leave_hears_of_a_failure) {
  constexpr std::size_t count = 100;
  for (const bool leaves : {false, true}) {
    Ranks ranks(2);
    const Owners owners = owners_of(ranks, 2);
    ranks.run([&](Engine& engine) {
      Serving here(owners, engine, count, 0);
      if (engine.rank() == 1) return engine.abort("rank 1: bad data");
      if (!leaves) here.send(1);
      CHECK_EQUAL(leaves ? here.wait_for_all_to_leave() : here.wait_for_answer(),
                  "rank 1: bad data");
      CHECK_EQUAL(here.wait_for_answer(), "rank 1: bad data");
    });
  }
}
