// Messages over GPI-2.
#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "gaspi_job.h"

using namespace tnt;
using namespace tnt::test;

TEST(messages_of_all_sizes_go_between_all_ranks_in_both_directions) {
  with_all_sizes([](Member& member) {
    const auto transport = member.open();
    exchange(*transport, all_of(*transport), 3,
             {0, 1, 4, 47, 48, 4096, 65535, 65536, 65537, 524288, 5000000}, heading);
    leave(*transport);
  });
}

TEST(many_channels_carry_messages_at_once_whatever_the_order_of_the_receives) {
  with_all_sizes([](Member& member) {
    const auto transport = member.open();
    constexpr std::uint32_t channels = 40, each = 5;
    std::mt19937 random(static_cast<unsigned>(transport->rank()));
    const auto bytes_of = [](std::uint32_t channel, std::uint32_t number) {
      return (channel * 977 + number * 30011) % 60000;
    };
    struct Order {
      int peer;
      std::uint32_t channel;
    };
    const auto shuffled = [&] {
      std::vector<Order> orders;
      for (int peer = 0; peer < transport->size(); ++peer)
        for (std::uint32_t channel = 0; channel < channels; ++channel)
          orders.insert(orders.end(), each, {peer, channel});
      std::shuffle(orders.begin(), orders.end(), random);
      return orders;
    };
    std::map<std::pair<int, std::uint32_t>, std::uint32_t> sent, received;
    std::vector<std::pair<Bytes, Bytes>> in;  // what came, what should
    std::vector<Bytes> out;
    std::vector<Ticket> tickets;
    const std::vector<Order> sends = shuffled(), receives = shuffled();
    in.reserve(receives.size());
    out.reserve(sends.size());
    const auto send = [&](const Order& to) {
      const std::uint32_t number = sent[{to.peer, to.channel}]++;
      out.push_back(pattern(bytes_of(to.channel, number),
                            seed_of(transport->rank(), to.peer, to.channel * each + number)));
      tickets.push_back(transport->send(to.peer, to.channel, {to.channel, number},
                                        out.back().data(), out.back().size()));
    };
    const auto receive = [&](const Order& from) {
      const std::uint32_t number = received[{from.peer, from.channel}]++;
      const std::size_t bytes = bytes_of(from.channel, number);
      in.emplace_back(Bytes(bytes), pattern(bytes, seed_of(from.peer, transport->rank(),
                                                           from.channel * each + number)));
      tickets.push_back(transport->receive(from.peer, from.channel, {from.channel, number},
                                           in.back().first.data(), bytes));
    };
    for (std::size_t i = 0; i < sends.size(); ++i) {
      send(sends[i]);
      receive(receives[i]);
    }
    finish(*transport, tickets);
    for (const auto& [came, expected] : in) CHECK(came == expected);
    leave(*transport);
  });
}

TEST(a_message_may_come_long_before_its_receive_and_blocks_no_other) {
  with_all_sizes([](Member& member) {
    const auto transport = member.open();
    const int next = (transport->rank() + 1) % transport->size();
    const int previous = (transport->rank() + transport->size() - 1) % transport->size();
    const Bytes large = pattern(3000000, 1), small = pattern(100, 2);
    std::vector<Ticket> tickets;
    tickets.push_back(transport->send(next, 1, heading, large.data(), large.size()));
    tickets.push_back(transport->send(next, 2, heading, small.data(), small.size()));
    Bytes in(small.size());
    finish(*transport, transport->receive(previous, 2, heading, in.data(), in.size()));
    CHECK(in == small);
    finish(*transport, tickets);
    in.resize(large.size());
    finish(*transport, transport->receive(previous, 1, heading, in.data(), in.size()));
    CHECK(in == large);
    leave(*transport);
  });
}

TEST(a_thousand_rounds_there_and_back) {
  with_all_sizes([](Member& member) {
    const auto transport = member.open();
    const int partner = transport->rank() ^ 1;
    const int peer = partner < transport->size() ? partner : transport->rank();
    for (std::uint32_t round = 0; round < 1000; ++round)
      exchange(*transport, {peer}, 0, {round % 300}, {round, 0}, round);
    leave(*transport);
  });
}

TEST(another_heading_or_size_is_an_error_that_names_the_sender_and_what_it_sent) {
  with_all_sizes([](Member& member) {
    const auto transport = member.open();
    const int peer = transport->size() - 1 - transport->rank();
    const Bytes out = pattern(50000, 1);
    const auto mismatch = [&](Heading mine, std::size_t bytes, bool early) {
      std::vector<Ticket> sends;
      Bytes in(60000, std::byte{0});
      Ticket receive = 0;
      if (early) receive = transport->receive(peer, 1, mine, in.data(), bytes);
      sends.push_back(transport->send(peer, 1, {5, 6}, out.data(), out.size()));
      sends.push_back(transport->send(peer, 2, heading, out.data(), out.size()));
      Bytes other(out.size());  // the other channel goes on
      finish(*transport, transport->receive(peer, 2, heading, other.data(), other.size()));
      CHECK(other == out);
      if (!early) receive = transport->receive(peer, 1, mine, in.data(), bytes);
      try {
        finish(*transport, receive);
        CHECK(!"a mismatch must be thrown");
      } catch (const Mismatch& error) {
        CHECK_EQUAL(error.peer, peer);
        CHECK(error.heading == (Heading{5, 6}));
        CHECK_EQUAL(error.bytes, out.size());
      }
      CHECK(in == Bytes(60000, std::byte{0}));
      finish(*transport, sends);
    };
    for (const bool early : {true, false}) {
      mismatch({5, 7}, out.size(), early);
      mismatch({4, 6}, out.size(), early);
      mismatch({5, 6}, out.size() - 1, early);
      mismatch({5, 6}, out.size() + 1, early);
      mismatch({5, 6}, 0, early);
    }
    leave(*transport);
  });
}

TEST(notices_come_whole_in_order_and_overtake_messages) {
  with_all_sizes([](Member& member) {
    const auto transport = member.open();
    constexpr std::uint32_t count = 50;
    const Bytes large(4000000);
    std::vector<Ticket> tickets;
    for (int peer = 0; peer < transport->size(); ++peer) {
      tickets.push_back(transport->send(peer, 1, heading, large.data(), large.size()));
      for (std::uint32_t i = 0; i < count; ++i)
        transport->notify(peer, i, std::string(i * 200, static_cast<char>('a' + peer)));
    }
    std::vector<std::uint32_t> next(transport->size());
    for (std::uint32_t i = 0; i < count * next.size(); ++i) {
      const Notice notice = next_notice(*transport);
      CHECK_EQUAL(notice.kind, next[notice.source]++);
      CHECK_EQUAL(notice.payload, std::string(std::min<std::size_t>(notice.kind * 200, 8192),
                                              static_cast<char>('a' + transport->rank())));
    }
    Bytes in(large.size());
    for (int peer = 0; peer < transport->size(); ++peer)
      tickets.push_back(transport->receive(peer, 1, heading, in.data(), in.size()));
    finish(*transport, tickets);
    leave(*transport);
  });
}

TEST(messages_are_counted_and_what_nobody_wants_any_more_is_drained) {
  with_all_sizes([](Member& member) {
    const auto transport = member.open();
    const int ranks = transport->size();
    const Bytes out = pattern(1000000, 1);
    Bytes in(out.size(), std::byte{0});
    for (int peer = 0; peer < ranks; ++peer) {
      transport->receive(peer, 0, heading, in.data(), in.size());
      transport->receive(peer, 9, heading, in.data(), in.size());  // nobody sends that
    }
    for (int peer = 0; peer < ranks; ++peer) {
      transport->send(peer, 0, heading, out.data(), out.size());
      transport->send(peer, 1, heading, out.data(), out.size());
      transport->notify(peer, 1, "x");
    }
    transport->cancel_receives();
    const Bytes before = in;
    const std::vector<std::uint64_t> three(ranks, 3);
    CHECK(transport->sent() == three);
    wait_until("messages to be drained", [&] {
      const bool sent = transport->sends_done();
      return sent && transport->received() == three;
    });
    CHECK(in == before);
  });
}
