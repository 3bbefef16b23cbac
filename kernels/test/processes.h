// Ranks that are processes of this host, forked from this one, and what the tests of transports
// between them share.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "transport/transport.h"

namespace tnt::test {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto limit = seconds(120);

// Each keeps what make(rank) points to, and runs one body after another on it.
template <class State>
class Processes {
 public:
  using Body = void (*)(State&);

  template <class Make>
  Processes(int size, Make make) {
    for (int rank = 0; rank < size; ++rank) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error("socketpair");
      const pid_t parent = getpid();
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) std::_Exit(1);
        serve(ends[1], [&] { return make(rank); });
      }
      close(ends[1]);
      if (child < 0) throw std::runtime_error("fork");
      processes_.push_back({child, ends[0]});
    }
  }

  ~Processes() {
    for (const Process& process : processes_) {
      close(process.end);
      kill(process.id, SIGKILL);
      waitpid(process.id, nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int size() const { return static_cast<int>(processes_.size()); }
  pid_t id(int rank) const { return processes_[rank].id; }

  // On all ranks; throws what they throw. One rank may die.
  void run(Body body, int dies = -1) {
    for (int rank = 0; rank < size(); ++rank) start(rank, body);
    std::string failures;
    for (int rank = 0; rank < size(); ++rank)
      if (rank != dies) failures += wait(rank);
    if (!failures.empty()) throw CheckFailed(failures);
  }

  void start(int rank, Body body) {
    if (write(processes_[rank].end, &body, sizeof body) != sizeof body)
      throw CheckFailed("a rank is gone");
  }

  // What the body has thrown.
  std::string wait(int rank) {
    const std::string name = "rank " + std::to_string(rank);
    pollfd answer{processes_[rank].end, POLLIN, 0};
    if (poll(&answer, 1, 2 * static_cast<int>(milliseconds(limit).count())) != 1)
      return name + " hangs; ";
    std::string text(answer_bytes, '\0');
    if (read(answer.fd, text.data(), text.size()) <= 0) return name + " died; ";
    text.resize(std::strlen(text.c_str()));
    return text.empty() ? text : name + ": " + text + "; ";
  }

 private:
  static constexpr std::size_t answer_bytes = 1000;
  struct Process {
    pid_t id;
    int end;  // of a socket
  };

  template <class Make>
  [[noreturn]] static void serve(int end, Make make) {
    Body body = nullptr;
    std::unique_ptr<State> state;
    while (read(end, &body, sizeof body) == sizeof body) {
      std::string text;
      try {
        if (state == nullptr) state = make();
        body(*state);
      } catch (const std::exception& error) {
        text = error.what();
        if (text.empty()) text = "exception";
      }
      text.resize(answer_bytes);
      if (write(end, text.data(), text.size()) < 0) break;
    }
    std::_Exit(0);
  }

  std::vector<Process> processes_;
};

// -- messages -----------------------------------------------------------------------------------

inline Bytes pattern(std::size_t bytes, std::uint32_t seed) {
  Bytes data(bytes);
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::byte& one : data) {
    state = state * 1664525U + 1013904223U;
    one = static_cast<std::byte>(state >> 24);
  }
  return data;
}

inline std::uint32_t seed_of(int from, int to, std::uint32_t number) {
  return static_cast<std::uint32_t>(from * 1000 + to * 100) + number * 7919;
}

template <class Condition>
void wait_until(const char* what, Condition condition) {
  const auto end = Clock::now() + limit;
  for (int turn = 0; !condition(); ++turn) {
    if (Clock::now() > end) throw CheckFailed(std::string("waited too long for ") + what);
    if (turn > 20) std::this_thread::yield();
  }
}

inline void finish(Transport& transport, Ticket ticket) {
  wait_until("a message", [&] { return transport.done(ticket); });
}

inline void finish(Transport& transport, std::vector<Ticket> tickets) {
  wait_until("messages", [&] {
    const auto is_done = [&](Ticket ticket) { return transport.done(ticket); };
    tickets.erase(std::remove_if(tickets.begin(), tickets.end(), is_done), tickets.end());
    return tickets.empty();
  });
}

constexpr Heading heading{7, 11};

// Each rank sends a message of each length to each of the peers, and receives the same from them.
inline void exchange(Transport& transport, const std::vector<int>& peers, std::uint32_t channel,
                     const std::vector<std::size_t>& lengths, const Heading& with,
                     std::uint32_t number = 0) {
  std::vector<Ticket> tickets;
  std::vector<Bytes> received;
  std::vector<std::byte*> sent;
  received.reserve(peers.size() * lengths.size());
  const auto data_of = [&](int from, int to, std::size_t i) {
    return pattern(lengths[i], seed_of(from, to, number + static_cast<std::uint32_t>(i)));
  };
  for (const int peer : peers)
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const std::size_t bytes = lengths[i];
      const Bytes data = data_of(transport.rank(), peer, i);
      sent.push_back(transport.allocate(bytes));
      if (bytes != 0) std::memcpy(sent.back(), data.data(), bytes);
      received.emplace_back(bytes, std::byte{0xee});
      tickets.push_back(transport.receive(peer, channel, with, received.back().data(), bytes));
      tickets.push_back(transport.send(peer, channel, with, sent.back(), bytes));
    }
  std::reverse(tickets.begin(), tickets.end());  // in any order
  finish(transport, tickets);
  auto came = received.begin();
  for (const int peer : peers)
    for (std::size_t i = 0; i < lengths.size(); ++i)
      CHECK(*came++ == data_of(peer, transport.rank(), i));
  for (std::byte* memory : sent) transport.free(memory);
}

}  // namespace tnt::test
