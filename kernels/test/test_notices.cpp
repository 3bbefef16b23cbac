// Small messages beside the collectives.
#include "check.h"
#include "ranks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

constexpr std::uint32_t kind = Engine::first_user_kind;

// The next notice; the engine polls for them by itself.
Notice next_notice(Engine& engine) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  Notice notice;
  while (!engine.take_notice(notice)) {
    if (std::chrono::steady_clock::now() > deadline) throw CheckFailed("a notice did not arrive");
    std::this_thread::yield();
  }
  return notice;
}

}  // namespace

TEST(notices_arrive_once_in_order_with_source_and_kind) {
  on_ranks(3, [](Engine& engine) {
    if (engine.rank() != 0) {
      for (int i = 0; i < 200; ++i) engine.notify(0, kind + 1, std::to_string(i));
      return;
    }
    int next[3] = {};
    for (int i = 0; i < 400; ++i) {
      const Notice notice = next_notice(engine);
      CHECK_EQUAL(notice.kind, kind + 1);
      CHECK_EQUAL(notice.payload, std::to_string(next[notice.source]++));
    }
    Notice none;
    CHECK(!engine.take_notice(none));
  });
}

TEST(notices_travel_while_collectives_are_under_way) {
  on_ranks(2, [](Engine& engine) {
    const int peer = 1 - engine.rank();
    for (int i = 0; i < 200; ++i) {
      engine.notify(peer, kind, std::to_string(i));
      CHECK_EQUAL(barrier_and_wait(engine), "");
    }
    for (int i = 0; i < 200; ++i) CHECK_EQUAL(next_notice(engine).payload, std::to_string(i));
  });
}

TEST(a_rank_may_notify_itself) {
  Ranks ranks(1);
  ranks[0].notify(0, kind, "hello");
  CHECK_EQUAL(next_notice(ranks[0]).payload, "hello");
}

TEST(a_notice_is_as_long_as_promised_and_no_longer) {
  Ranks ranks(2);
  ranks[0].notify(1, kind, std::string(Transport::max_notice_bytes, 'x'));
  CHECK_EQUAL(next_notice(ranks[1]).payload.size(), Transport::max_notice_bytes);
  CHECK_THROWS(ranks[0].notify(1, kind, std::string(Transport::max_notice_bytes + 1, 'x')),
               std::invalid_argument);
}
