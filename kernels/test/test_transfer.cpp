// Messages from one rank to another, which wait in line on their channel.
#include <list>

#include "check.h"
#include "engine/transfer.h"
#include "ranks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

// One message from rank 0 to rank 1, until it has ended.
struct Message {
  std::vector<float> memory;
  Pending pending;

  Message(const std::shared_ptr<Engine>& engine, std::uint32_t channel, std::size_t count,
          float value)
      : memory(count, engine->rank() == 0 ? value : -1.0f) {
    Request request;
    request.collective = Collective::broadcast;
    request.count = count;
    request.label = "message";
    request.schedule = transfer(engine->world(), 0, 1, count);
    engine->rank() == 0 ? give(request, memory) : take(request, memory);
    post(engine, channel, std::move(request), pending.done());
  }
};

constexpr std::size_t sizes[] = {1, 0, 100'000, 17, 5'000};

// Message i carries i, on both ranks.
void check_all_came(std::list<Message>& messages) {
  float expected = 0;
  for (Message& message : messages) {
    CHECK_EQUAL(message.pending.wait(), "");
    for (const float value : message.memory) CHECK_EQUAL(value, expected);
    ++expected;
  }
}

}  // namespace

TEST(messages_of_a_channel_come_in_the_order_in_which_they_were_posted) {
  for (const Joined joined : every_joined)
    for (const int lanes : {1, 2}) {
      Ranks ranks(2, 60, joined, lanes);
      ranks.run([](Engine& engine) {
        const auto owner = borrowed(engine);
        std::list<Message> messages;
        for (int i = 0; i < 60; ++i)
          messages.emplace_back(owner, 5 + static_cast<std::uint32_t>(i % 2), sizes[i % 5],
                                static_cast<float>(i));
        check_all_came(messages);
      });
    }
}

TEST(messages_are_posted_from_several_threads) {
  Ranks ranks(2, 60, Joined::by_memory);
  ranks.run([](Engine& engine) {
    const auto owner = borrowed(engine);
    std::vector<std::thread> threads;
    std::vector<std::list<Message>> messages(4);
    for (std::uint32_t channel = 0; channel < 4; ++channel)
      threads.emplace_back([&, channel] {
        for (int i = 0; i < 50; ++i)
          messages[channel].emplace_back(owner, channel, sizes[i % 5], static_cast<float>(i));
      });
    for (std::thread& thread : threads) thread.join();
    for (std::list<Message>& line : messages) check_all_came(line);
  });
}

TEST(messages_that_wait_or_come_too_late_hear_of_a_failure_and_that_communication_is_closed) {
  for (const Joined joined : every_joined)
    for (const bool closes : {false, true}) {
      Ranks ranks(2, 60, joined);
      const auto owner = borrowed(ranks[1]);
      std::list<Message> messages;
      for (int i = 0; i < 5; ++i) messages.emplace_back(owner, 7, 1000, 1.0f);
      closes ? ranks[1].close() : ranks[0].abort("rank 0: bad data");
      const char* const reason = closes ? "communication is closed" : "rank 0: bad data";
      for (Message& message : messages) CHECK_EQUAL(message.pending.wait(), reason);
      Message late(owner, 7, 1000, 1.0f);
      CHECK_EQUAL(late.pending.wait(), reason);
    }
}
