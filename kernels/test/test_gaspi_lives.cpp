// Transports over GPI-2 that live one after another, beside each other, and on some of the ranks.
#include <string>
#include <thread>

#include "gaspi_job.h"

using namespace tnt;
using namespace tnt::test;

TEST(a_new_transport_sees_nothing_of_the_one_before_it) {
  // run() returns when the transport is gone on all ranks, so that the next one has its segment.
  for (int size = 2; size <= 4; ++size) {
    for (int lives = 0; lives < 10; ++lives) {
      run(size, [](Member& member) {
        static std::uint32_t life = 0;
        ++life;
        const auto transport = member.open();
        CHECK_EQUAL(member.options.segment, 0);
        const Bytes out = pattern(200000, life);
        Bytes in(out.size());
        std::vector<Ticket> tickets;
        for (int peer = 0; peer < transport->size(); ++peer) {
          tickets.push_back(transport->receive(peer, 0, {life, 0}, in.data(), in.size()));
          tickets.push_back(transport->send(peer, 0, {life, 0}, out.data(), out.size()));
        }
        // More than the rings hold: it is left under way, at another place on each rank.
        for (int i = 0; i < transport->rank() * 3; ++i)
          transport->notify((transport->rank() + 1) % transport->size(), 1, std::string(8000, 'x'));
        if (life % 2 == 0) finish(*transport, tickets);
        if (life % 2 == 0) CHECK(in == out);
      });
    }
    run(size, [](Member& member) {
      const auto transport = member.open();
      meet(*transport);
      Notice notice;
      CHECK(!transport->take_notice(notice));
      leave(*transport);
    });
  }
}

TEST(several_transports_live_at_once_on_some_of_the_ranks) {
  run(4, [](Member& member) {
    const int rank = member.options.rank;
    const auto world = member.open();
    member.options.members = rank < 2 ? std::vector<int>{1, 0} : std::vector<int>{2, 3};
    const auto group = member.open();
    member.options.members.clear();
    CHECK_EQUAL(group->size(), 2);
    CHECK_EQUAL(group->rank(), rank == 1 || rank == 2 ? 0 : 1);
    for (int round = 0; round < 20; ++round) {
      const Bytes out = pattern(100000, static_cast<std::uint32_t>(rank));
      Bytes from_world(out.size()), from_group(out.size());
      const int partner = rank ^ 1, in_group = 1 - group->rank();
      const Ticket in_world = world->receive(partner, 0, {1, 0}, from_world.data(), out.size());
      const Ticket here = group->receive(in_group, 0, {2, 0}, from_group.data(), out.size());
      const Ticket sent = world->send(partner, 0, {1, 0}, out.data(), out.size());
      const Ticket posted = group->send(in_group, 0, {2, 0}, out.data(), out.size());
      finish(*group, {here, posted});
      finish(*world, {in_world, sent});
      CHECK(from_world == pattern(out.size(), static_cast<std::uint32_t>(partner)));
      CHECK(from_group == from_world);
    }
    leave(*group);
    leave(*world);
    meet(*world);  // nobody leaves while a rank waits for the last credit
    leave(*world);
  });
}

TEST(many_transports_live_at_once_each_moved_by_its_own_thread) {
  with_all_sizes([](Member& member) {
    constexpr std::uint32_t count = 12;
    std::vector<std::unique_ptr<Transport>> transports;
    for (std::uint32_t i = 0; i < count; ++i) transports.push_back(member.open());
    std::vector<std::string> failures(count);
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < count; ++i)
      threads.emplace_back([&transport = *transports[i], &failure = failures[i], i] {
        try {
          for (std::uint32_t round = 0; round < 5; ++round)
            exchange(transport, all_of(transport), 0, {100000}, {i, round}, i + 100 * round);
          leave(transport);
        } catch (const std::exception& error) {
          failure = error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& failure : failures) CHECK_EQUAL(failure, "");
  });
}
