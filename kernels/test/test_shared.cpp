// Shared memory between real processes: messages, windows, the end of a peer, and what is left.
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <numeric>

#include "processes.h"
#include "transport/shared.h"

using namespace tnt;
using namespace tnt::test;

namespace {

constexpr std::size_t space = std::size_t{2} << 30;

// Where ranks tell each other of their segments, in memory that they have from their parent.
struct Board {
  struct {
    std::int64_t pid;
    std::int32_t file;
    std::uint64_t key;
  } segments[3];
  std::atomic<int> told, mapped;

  static void meet(std::atomic<int>& arrived, int size) {
    ++arrived;
    wait_until("the other ranks", [&] { return arrived == size; });
  }
};

std::unique_ptr<Transport> join(Board& board, int rank, int size) {
  auto segment = std::make_unique<Segment>(space);
  const SegmentAddress own = segment->address();
  board.segments[rank] = {own.pid, own.file, own.key};
  Board::meet(board.told, size);
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<SegmentAddress> addresses;
  for (const int peer : ranks) {
    const auto& there = board.segments[peer];
    addresses.push_back({own.host, there.pid, there.file, own.bytes, there.key});
  }
  const auto node = std::make_shared<SharedNode>(std::move(segment), rank, ranks, addresses);
  Board::meet(board.mapped, size);
  return make_shared_transport(node, 0, rank, size);
}

// Runs body(transport) on the ranks of one node, of which one may die.
void on_node(int size, void (*body)(Transport&), int dies = -1) {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& board = *new (memory) Board{};
  const auto make = [&](int rank) { return join(board, rank, size); };
  Processes<Transport>(size, make).run(body, dies);
  munmap(memory, sizeof(Board));
}

}  // namespace

TEST(messages_of_any_size_arrive_whole_and_in_order_on_every_channel) {
  on_node(3, [](Transport& transport) {
    std::vector<int> others{0, 1, 2};
    others.erase(others.begin() + transport.rank());
    for (std::uint32_t round = 0; round < 3; ++round)
      for (const std::uint32_t channel : {0U, 5U, 31999U})
        exchange(transport, others, channel, {0, 1, 80, 81, 4096, 100000, 0, 3000000}, heading,
                 round);
  });
}

TEST(a_sender_may_be_far_ahead_of_the_receiver) {
  on_node(2, [](Transport& transport) {
    for (std::uint32_t round = 0; round < 3; ++round)
      exchange(transport, {1 - transport.rank()}, 1, std::vector<std::size_t>(500, 4), heading,
               round);
  });
}

TEST(a_peers_window_can_be_read_and_written_after_its_message) {
  on_node(2, [](Transport& transport) {
    const int peer = 1 - transport.rank();
    std::byte* own = transport.allocate(1 << 20);
    own[1000] = static_cast<std::byte>(10 + transport.rank());
    transport.expose(3, own);
    const Ticket sent = transport.send(peer, 3, heading, nullptr, 0);
    finish(transport, transport.receive(peer, 3, heading, nullptr, 0));
    finish(transport, sent);
    std::byte* theirs = transport.window(peer, 3);
    CHECK(theirs[1000] == static_cast<std::byte>(10 + peer));
    theirs[2000] = static_cast<std::byte>(20 + transport.rank());
    finish(transport, transport.send(peer, 3, heading, nullptr, 0));
    finish(transport, transport.receive(peer, 3, heading, nullptr, 0));
    CHECK(own[2000] == static_cast<std::byte>(20 + peer));
  });
}

TEST(another_heading_or_size_is_a_mismatch_that_names_the_peer) {
  on_node(2, [](Transport& transport) {
    const int number = 7;
    if (transport.rank() == 0) {
      finish(transport, transport.send(1, 0, {8, 8}, &number, sizeof number));
      finish(transport, transport.send(1, 1, heading, &number, 3));
      return;
    }
    int got = 0;
    try {
      finish(transport, transport.receive(0, 0, heading, &got, sizeof got));
      CHECK(false);
    } catch (const Mismatch& found) {
      CHECK_EQUAL(found.peer, 0);
      CHECK_EQUAL(found.heading.operation, 8U);
    }
    CHECK_THROWS(finish(transport, transport.receive(0, 1, heading, &got, sizeof got)), Mismatch);
  });
}

TEST(a_peer_that_is_killed_is_noticed_and_named) {
  const auto body = [](Transport& transport) {
    if (transport.rank() == 1) raise(SIGKILL);
    const auto wait = [&] {
      wait_until("an error", [&] { return transport.check_alive(1), false; });
    };
    CHECK_EQUAL(thrown_by<TransportError>(wait), "rank 1 has died");
  };
  on_node(2, body, 1);
}

TEST(a_thread_that_sleeps_is_woken_by_a_message) {
  on_node(2, [](Transport& transport) {
    for (int i = 0; i < 300; ++i) {
      if (transport.rank() == i % 2) {
        finish(transport, transport.send(1 - transport.rank(), 0, heading, &i, sizeof i));
        continue;
      }
      int got = -1;
      const Ticket ticket = transport.receive(1 - transport.rank(), 0, heading, &got, sizeof got);
      const auto begin = Clock::now();
      bool done = false;
      while (!done) {
        const std::uint32_t seen = transport.doorbell().enter();
        done = transport.done(ticket);
        if (!done) transport.doorbell().sleep(seen, limit);
        transport.doorbell().leave();
      }
      CHECK_EQUAL(got, i);
      CHECK(Clock::now() - begin < limit / 2);
    }
  });
}

TEST(memory_that_was_freed_is_given_back_and_used_again) {
  Segment segment(space);
  segment.set_heap_begin(1 << 20);
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(segment.allocate(1 << 20));
  for (const int i : {1, 3, 2, 0, 9}) segment.free(blocks[i]);
  CHECK(segment.allocate(4 << 20) == blocks[0]);  // four neighbours became one
  CHECK(blocks[0][12345] == std::byte{0});
  CHECK_THROWS(segment.free(blocks[0] + 4096), std::logic_error);
  CHECK_THROWS(segment.allocate(space), std::bad_alloc);
}

TEST(what_is_private_stays_private) {
  Segment segment(space);
  const std::string path = "/proc/self/fd/" + std::to_string(segment.address().file);
  struct stat facts{};
  CHECK_EQUAL(stat(path.c_str(), &facts), 0);
  CHECK_EQUAL(facts.st_mode & 0777U, 0600U);
  CHECK_EQUAL(facts.st_nlink, 0U);  // it has no name anywhere
  SegmentAddress wrong = segment.address();
  wrong.host = "elsewhere";
  CHECK_THROWS(MappedSegment(wrong, segment), TransportError);
}
