// Emulated links: when messages arrive, what peers and lanes share, and what a failure leaves.
#include <thread>

#include "check.h"
#include "processes.h"
#include "ranks.h"
#include "transport/local.h"
#include "transport/paced.h"

using namespace tnt;
using namespace tnt::test;

namespace {

constexpr double never = 1e-6;  // Mbit/s: a kilobyte takes hours
const Bytes megabyte(1'000'000);

std::unique_ptr<Transport> paced(const std::shared_ptr<LocalNetwork>& network, int rank,
                                 const std::shared_ptr<Card>& card) {
  return make_paced_transport(make_local_transport(network, rank), card);
}

// The transport of one rank, which has a card of its own.
std::unique_ptr<Transport> paced(const std::shared_ptr<LocalNetwork>& network, int rank,
                                 double mbit_per_s) {
  return paced(network, rank, std::make_shared<Card>(mbit_per_s));
}

Ticket send(Transport& transport, int peer, const Bytes& data) {
  return transport.send(peer, 0, heading, data.data(), data.size());
}

}  // namespace

TEST(messages_of_any_size_arrive_in_order_from_each_of_several_peers) {
  const auto network = std::make_shared<LocalNetwork>(3);
  std::vector<std::thread> threads;
  std::vector<std::string> failures(3);
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      const auto transport = paced(network, rank, 10'000);
      std::vector<int> others{0, 1, 2};
      others.erase(others.begin() + rank);
      try {
        for (std::uint32_t round = 0; round < 5; ++round)
          for (const std::uint32_t channel : {0U, 5U})
            exchange(*transport, others, channel, {100'000, 0, 1, 4096, 300'000, 80}, heading,
                     round);
      } catch (const std::exception& error) {
        failures[rank] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) CHECK_EQUAL(failure, "");
}

TEST(a_message_takes_as_long_as_its_bytes_at_the_links_rate) {
  const auto network = std::make_shared<LocalNetwork>(2);
  const auto sender = paced(network, 0, 80), receiver = paced(network, 1, 80);
  Bytes received(megabyte.size());
  const auto begin = Clock::now();
  const Ticket sent = send(*sender, 1, megabyte);
  const Ticket came = receiver->receive(0, 0, heading, received.data(), received.size());
  finish(*sender, sent);
  finish(*receiver, came);
  CHECK(Clock::now() - begin >= milliseconds(100));
}

TEST(all_peers_and_lanes_of_a_rank_share_its_link) {
  const std::shared_ptr<LocalNetwork> networks[] = {std::make_shared<LocalNetwork>(3),
                                                    std::make_shared<LocalNetwork>(3)};
  const auto card = std::make_shared<Card>(160);
  const auto first = paced(networks[0], 0, card), second = paced(networks[1], 0, card);
  const auto begin = Clock::now();
  const Ticket last = send(*first, 1, megabyte);
  finish(*second, send(*second, 2, megabyte));
  CHECK(Clock::now() - begin >= milliseconds(100));
  finish(*first, last);
}

TEST(a_notice_overtakes_what_waits) {
  const auto network = std::make_shared<LocalNetwork>(2);
  const auto sender = paced(network, 0, never), receiver = paced(network, 1, never);
  send(*sender, 1, megabyte);
  sender->notify(1, 7, "in time");
  Notice notice;
  CHECK(receiver->take_notice(notice));
  CHECK_EQUAL(notice.payload, "in time");
  CHECK(sender->notices_done());
}

TEST(what_waits_has_not_been_sent_and_leaves_nothing_to_drain_when_it_is_given_up) {
  const auto network = std::make_shared<LocalNetwork>(2);
  const auto sender = paced(network, 0, never), receiver = paced(network, 1, never);
  finish(*sender, send(*sender, 1, {}));
  const Ticket waits = send(*sender, 1, megabyte);
  CHECK(!sender->done(waits));
  CHECK(!sender->sends_done());
  CHECK_EQUAL(sender->sent()[1], 1U);
  sender->cancel_receives();
  CHECK(sender->sends_done());
  CHECK_EQUAL(sender->sent()[1], 1U);
  finish(*receiver, receiver->receive(0, 0, heading, nullptr, 0));
  CHECK_EQUAL(receiver->received()[0], 1U);
}

TEST(a_failure_frees_those_whose_messages_wait_and_those_who_wait_for_them) {
  for (const int fails : {0, 1}) {
    const auto network = std::make_shared<LocalNetwork>(2);
    std::vector<std::unique_ptr<Engine>> engines;
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<std::unique_ptr<Transport>> lanes;
      lanes.push_back(paced(network, rank, never));
      engines.push_back(std::make_unique<Engine>(std::move(lanes), std::vector<int>{0, 1}, 60));
    }
    std::vector<float> values[] = {std::vector<float>(100'000), std::vector<float>(100'000)};
    Pending pending[2];
    for (int rank = 0; rank < 2; ++rank)
      start(*engines[rank], 0, pending[rank],
            allreduce_of(values[rank], Type::float32, Reduction::sum));
    engines[fails]->abort("no more");
    for (Pending& one : pending) CHECK_EQUAL(one.wait(), "no more");
    for (const auto& engine : engines) engine->close();
    for (const auto& engine : engines) {
      CHECK(engine->transport(0).sends_done());
      CHECK_EQUAL(engine->transport(0).sent()[1 - engine->rank()], 0U);
    }
  }
}
