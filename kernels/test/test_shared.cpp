// Shared memory between real processes: messages, windows, the end of a peer, and what is left.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>

#include "check.h"
#include "transport/shared.h"

using namespace tnt;
using namespace tnt::test;

namespace {

constexpr std::size_t space = std::size_t{2} << 30;
constexpr auto patience = std::chrono::seconds(60);

// Processes that are ranks of one node, joined through pipes to this one.
//
// Each runs body(transport) and reports how it ended: empty, or what went wrong.
class Processes {
 public:
  template <class Body>
  Processes(int size, Body body) {
    for (int rank = 0; rank < size; ++rank) {
      int down[2], up[2];
      if (pipe(down) != 0 || pipe(up) != 0) throw CheckFailed("no pipe");
      const pid_t pid = fork();
      if (pid == 0) {
        ::close(down[1]);
        ::close(up[0]);
        std::string outcome;
        try {
          live(rank, size, down[0], up[1], body);
        } catch (const std::exception& error) {
          outcome = error.what();
        }
        write_text(up[1], outcome);
        _exit(0);
      }
      ::close(down[0]);
      ::close(up[1]);
      pids_.push_back(pid);
      to_.push_back(down[1]);
      from_.push_back(up[0]);
    }
    std::string all;
    for (const int pipe : from_) all += read_text(pipe);  // each one's address
    for (const int pipe : to_) write_text(pipe, all);
    for (const int pipe : from_) read_text(pipe);  // all have mapped all
    for (const int pipe : to_) write_text(pipe, "go");
  }
  ~Processes() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    for (const int pipe : to_) ::close(pipe);
    for (const int pipe : from_) ::close(pipe);
  }

  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  std::string outcome(int rank) { return read_text(from_[static_cast<std::size_t>(rank)]); }

 private:
  struct Address {
    char host[128];
    SegmentAddress numbers() const { return {host, pid, file, bytes, key}; }
    std::int64_t pid;
    std::int32_t file;
    std::uint64_t bytes, key;
  };

  template <class Body>
  static void live(int rank, int size, int down, int up, Body body) {
    auto segment = std::make_unique<Segment>(space);
    const SegmentAddress own = segment->address();
    Address address{};
    std::strncpy(address.host, own.host.c_str(), sizeof address.host - 1);
    address.pid = own.pid, address.file = own.file, address.bytes = own.bytes,
    address.key = own.key;
    write_text(up, std::string(reinterpret_cast<const char*>(&address), sizeof address));
    const std::string all = read_text(down);
    std::vector<SegmentAddress> addresses;
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      Address peer;
      std::memcpy(&peer, all.data() + i * sizeof peer, sizeof peer);
      addresses.push_back(peer.numbers());
    }
    const auto node = std::make_shared<SharedNode>(std::move(segment), rank, ranks, addresses);
    write_text(up, "mapped");
    read_text(down);
    const auto transport = make_shared_transport(node, 0, rank, size);
    body(*transport);
  }

  static void write_text(int pipe, const std::string& text) {
    const std::uint64_t bytes = text.size();
    if (write(pipe, &bytes, sizeof bytes) != sizeof bytes ||
        write(pipe, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      _exit(1);
  }
  static std::string read_text(int pipe) {
    std::uint64_t bytes = 0;
    if (read(pipe, &bytes, sizeof bytes) != sizeof bytes) return "it has ended";
    std::string text(bytes, 0);
    for (std::size_t at = 0; at < bytes;) {
      const ssize_t some = read(pipe, text.data() + at, bytes - at);
      if (some <= 0) return "it has ended";
      at += static_cast<std::size_t>(some);
    }
    return text;
  }

  std::vector<pid_t> pids_;
  std::vector<int> to_, from_;
};

constexpr Heading heading{1, 2};

void wait_for(Transport& transport, Ticket ticket) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!transport.done(ticket)) {
    if (std::chrono::steady_clock::now() > deadline) throw CheckFailed("a message did not arrive");
    sched_yield();
  }
}

std::byte pattern(int from, int number, std::size_t i) {
  return static_cast<std::byte>(static_cast<std::size_t>(7 * from + 3 * number) + i);
}

}  // namespace

TEST(messages_of_any_size_arrive_whole_and_in_order_on_every_channel) {
  Processes processes(3, [](Transport& transport) {
    const std::vector<std::size_t> sizes = {0, 1, 80, 81, 4096, 100000, 0, 3000000};
    std::vector<std::byte*> memory;
    for (int round = 0; round < 5; ++round)
      for (const std::uint32_t channel : {0U, 5U, 31999U}) {
        std::vector<Ticket> tickets;
        std::vector<std::vector<std::byte>> received;
        received.reserve(sizes.size() * 3);
        for (int peer = 0; peer < 3; ++peer) {
          if (peer == transport.rank()) continue;
          for (std::size_t k = 0; k < sizes.size(); ++k) {
            memory.push_back(transport.allocate(sizes[k]));
            for (std::size_t i = 0; i < sizes[k]; ++i)
              memory.back()[i] = pattern(transport.rank(), static_cast<int>(k) + round, i);
            tickets.push_back(transport.send(peer, channel, heading, memory.back(), sizes[k]));
            received.emplace_back(sizes[k]);
            tickets.push_back(
                transport.receive(peer, channel, heading, received.back().data(), sizes[k]));
          }
        }
        // In any order.
        std::reverse(tickets.begin(), tickets.end());
        while (!tickets.empty())
          for (std::size_t i = 0; i < tickets.size();) {
            if (transport.done(tickets[i]))
              tickets.erase(tickets.begin() + static_cast<std::ptrdiff_t>(i));
            else
              ++i;
          }
        std::size_t at = 0;
        for (int peer = 0; peer < 3; ++peer)
          for (std::size_t k = 0; peer != transport.rank() && k < sizes.size(); ++k, ++at)
            for (std::size_t i = 0; i < sizes[k]; ++i)
              CHECK(received[at][i] == pattern(peer, static_cast<int>(k) + round, i));
        for (std::byte* block : memory) transport.free(block);
        memory.clear();
      }
  });
  for (int rank = 0; rank < 3; ++rank) CHECK_EQUAL(processes.outcome(rank), "");
}

TEST(a_sender_may_be_far_ahead_of_the_receiver) {
  Processes processes(2, [](Transport& transport) {
    constexpr int messages = 10000;
    std::vector<int> numbers(messages);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::vector<Ticket> tickets;
    for (int i = 0; i < messages; ++i) {
      if (transport.rank() == 0) {
        const int& number = numbers[static_cast<std::size_t>(i)];
        tickets.push_back(transport.send(1, 1, heading, &number, sizeof number));
        if (i % 100 == 0)
          for (const Ticket ticket : tickets) wait_for(transport, ticket);
        if (i % 100 == 0) tickets.clear();
      } else {
        int got = -1;
        wait_for(transport, transport.receive(0, 1, heading, &got, sizeof got));
        CHECK_EQUAL(got, i);
      }
    }
    for (const Ticket ticket : tickets) wait_for(transport, ticket);
  });
  for (int rank = 0; rank < 2; ++rank) CHECK_EQUAL(processes.outcome(rank), "");
}

TEST(a_peers_window_can_be_read_and_written_after_its_message) {
  Processes processes(2, [](Transport& transport) {
    const int peer = 1 - transport.rank();
    std::byte* own = transport.allocate(1 << 20);
    own[1000] = static_cast<std::byte>(10 + transport.rank());
    transport.expose(3, own);
    const Ticket sent = transport.send(peer, 3, heading, nullptr, 0);
    wait_for(transport, transport.receive(peer, 3, heading, nullptr, 0));
    wait_for(transport, sent);
    std::byte* theirs = transport.window(peer, 3);
    CHECK(theirs[1000] == static_cast<std::byte>(10 + peer));
    theirs[2000] = static_cast<std::byte>(20 + transport.rank());
    wait_for(transport, transport.send(peer, 3, heading, nullptr, 0));
    wait_for(transport, transport.receive(peer, 3, heading, nullptr, 0));
    CHECK(own[2000] == static_cast<std::byte>(20 + peer));
  });
  for (int rank = 0; rank < 2; ++rank) CHECK_EQUAL(processes.outcome(rank), "");
}

TEST(another_heading_or_size_is_a_mismatch_that_names_the_peer) {
  Processes processes(2, [](Transport& transport) {
    const int number = 7;
    if (transport.rank() == 0) {
      wait_for(transport, transport.send(1, 0, {8, 8}, &number, sizeof number));
      wait_for(transport, transport.send(1, 1, heading, &number, 3));
      return;
    }
    int got = 0;
    try {
      wait_for(transport, transport.receive(0, 0, heading, &got, sizeof got));
      CHECK(false);
    } catch (const Mismatch& found) {
      CHECK_EQUAL(found.peer, 0);
      CHECK_EQUAL(found.heading.operation, 8U);
    }
    CHECK_THROWS(wait_for(transport, transport.receive(0, 1, heading, &got, sizeof got)), Mismatch);
  });
  for (int rank = 0; rank < 2; ++rank) CHECK_EQUAL(processes.outcome(rank), "");
}

TEST(a_peer_that_is_killed_is_noticed_and_named) {
  Processes processes(2, [](Transport& transport) {
    if (transport.rank() == 1) pause();
    const auto deadline = std::chrono::steady_clock::now() + patience;
    try {
      while (std::chrono::steady_clock::now() < deadline) transport.check_alive(1);
    } catch (const TransportError& error) {
      CHECK_EQUAL(std::string(error.what()), "rank 1 has died");
      return;
    }
    throw CheckFailed("nothing was noticed");
  });
  ::kill(processes.pid(1), SIGKILL);
  CHECK_EQUAL(processes.outcome(0), "");
}

TEST(a_thread_that_sleeps_is_woken_by_a_message) {
  Processes processes(2, [](Transport& transport) {
    for (int i = 0; i < 300; ++i) {
      if (transport.rank() == i % 2) {
        wait_for(transport, transport.send(1 - transport.rank(), 0, heading, &i, sizeof i));
        continue;
      }
      int got = -1;
      const Ticket ticket = transport.receive(1 - transport.rank(), 0, heading, &got, sizeof got);
      const auto begin = std::chrono::steady_clock::now();
      bool done = false;
      while (!done) {
        const std::uint32_t seen = transport.doorbell().enter();
        done = transport.done(ticket);
        if (!done) transport.doorbell().sleep(seen, patience);
        transport.doorbell().leave();
      }
      CHECK_EQUAL(got, i);
      CHECK(std::chrono::steady_clock::now() - begin < patience / 2);
    }
  });
  for (int rank = 0; rank < 2; ++rank) CHECK_EQUAL(processes.outcome(rank), "");
}

TEST(memory_that_was_freed_is_given_back_and_used_again) {
  Segment segment(space);
  segment.set_heap_begin(1 << 20);
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(segment.allocate(1 << 20));
  for (const int i : {1, 3, 2, 0, 9}) segment.free(blocks[static_cast<std::size_t>(i)]);
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

TEST(a_limit_of_the_machine_is_an_error_with_its_reason) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      Segment segment(space);
      _exit(1);
    } catch (const TransportError& error) {
      _exit(std::string(error.what()) == "shared memory of 2048 MiB cannot be made: File too large"
                ? 0
                : 2);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQUAL(WEXITSTATUS(status), 0);
}
