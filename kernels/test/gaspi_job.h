// Ranks that are processes of this host and start GASPI together. Tests are skipped where
// TNT_GASPI_LIBRARY names no library and none is installed.
#pragma once

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "transport/gaspi.h"

// The thread sanitizer sees no order in what GPI-2's own threads do, as it is built without. A race
// of our own ends the rank.
extern "C" [[gnu::used]] inline const char* __tsan_default_suppressions() {
  return "called_from_lib:libGPI2.so\nrace:libGPI2.so\n";
}
extern "C" [[gnu::used]] inline const char* __tsan_default_options() { return "halt_on_error=1"; }

namespace tnt::test {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto limit = seconds(30);

inline std::string library() {
  const char* const name = std::getenv("TNT_GASPI_LIBRARY");
  return name != nullptr ? name : GaspiOptions().library;
}

inline void need_library() {
  static void* const found = dlopen(library().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (found == nullptr)
    throw Skipped("this machine does not allow it: no GPI-2 (" + library() + " cannot be loaded)");
}

struct Member {
  GaspiOptions options;

  // All ranks open the same ones in the same order, so what is free here is so everywhere.
  std::unique_ptr<Transport> open() {
    const GaspiUse use = gaspi_use();
    options.epoch = use.last_epoch + 1;
    options.segment = use.free_segments.at(0);
    return make_gaspi_transport(options);
  }
  int size() const { return static_cast<int>(options.hosts.size()); }
};
using Body = void (*)(Member&);

inline GaspiOptions options_of(int rank, int size, int port_base) {
  GaspiOptions options;
  options.library = library();
  options.rank = rank;
  options.hosts.assign(static_cast<std::size_t>(size), "localhost");
  options.port_base = port_base;
  options.timeout_s = 30;
  return options;
}

// The ports of a job that nobody on this host uses: below those that the system gives out itself.
inline int free_ports(int size) {
  constexpr int first = 10000, choices = (32000 - first) / gaspi_ports;
  std::random_device random;
  for (int tries = 0; tries < 4 * choices; ++tries) {
    const int base = first + static_cast<int>(random() % choices) * gaspi_ports;
    bool free = true;
    for (int rank = 0; free && rank < size; ++rank)
      free = gaspi_ports_are_free(options_of(rank, size, base));
    if (free) return base;
  }
  throw std::runtime_error("no free ports");
}

// Processes that have started GASPI together, and run one body after another.
class Job {
 public:
  explicit Job(int size) {
    need_library();
    const int port_base = free_ports(size);
    for (int rank = 0; rank < size; ++rank) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw std::runtime_error("socketpair");
      const pid_t parent = getpid();
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) std::_Exit(1);
        serve(ends[1], {options_of(rank, size, port_base)});
      }
      close(ends[1]);
      if (child < 0) throw std::runtime_error("fork");
      processes_.push_back({child, ends[0]});
    }
  }

  ~Job() {
    for (const Process& process : processes_) {
      close(process.end);
      kill(process.id, SIGKILL);
      waitpid(process.id, nullptr, 0);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int size() const { return static_cast<int>(processes_.size()); }
  pid_t id(int rank) const { return processes_[static_cast<std::size_t>(rank)].id; }

  // On all ranks; throws what they throw. One rank may die.
  void run(Body body, int dies = -1) {
    for (int rank = 0; rank < size(); ++rank) start(rank, body);
    std::string failures;
    for (int rank = 0; rank < size(); ++rank)
      if (rank != dies) failures += wait(rank);
    if (!failures.empty()) throw CheckFailed(failures);
  }

  void start(int rank, Body body) {
    if (write(end(rank), &body, sizeof body) != sizeof body) throw CheckFailed("a rank is gone");
  }

  // What the body has thrown.
  std::string wait(int rank) {
    const std::string name = "rank " + std::to_string(rank);
    pollfd answer{end(rank), POLLIN, 0};
    if (poll(&answer, 1, 2 * static_cast<int>(milliseconds(limit).count())) != 1)
      return name + " hangs; ";
    std::string text(answer_bytes, '\0');
    if (read(end(rank), text.data(), text.size()) <= 0) return name + " died; ";
    text.resize(std::strlen(text.c_str()));
    return text.empty() ? text : name + ": " + text + "; ";
  }

 private:
  static constexpr std::size_t answer_bytes = 1000;
  struct Process {
    pid_t id;
    int end;  // of a socket
  };

  int end(int rank) const { return processes_[static_cast<std::size_t>(rank)].end; }

  [[noreturn]] static void serve(int end, Member member) {
    Body body = nullptr;
    while (read(end, &body, sizeof body) == sizeof body) {
      std::string text;
      try {
        body(member);
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

// Jobs are shared by the tests, as GASPI takes seconds to start; one that has failed is not.
inline void run(int size, Body body) {
  static std::map<int, std::unique_ptr<Job>> jobs;
  auto& job = jobs[size];
  if (job == nullptr) job = std::make_unique<Job>(size);
  try {
    job->run(body);
  } catch (...) {
    job.reset();
    throw;
  }
}

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

inline Notice next_notice(Transport& transport) {
  Notice notice;
  wait_until("a notice", [&] { return transport.take_notice(notice); });
  return notice;
}

// Before a transport goes: what it has sent has arrived.
inline void leave(Transport& transport) {
  wait_until("the others to take all", [&] { return transport.sends_done(); });
}

// All ranks have come here.
inline void meet(Transport& transport) {
  constexpr std::uint32_t channel = Transport::max_channels - 1;
  std::vector<Ticket> tickets;
  for (int peer = 0; peer < transport.size(); ++peer) {
    tickets.push_back(transport.send(peer, channel, {}, nullptr, 0));
    tickets.push_back(transport.receive(peer, channel, {}, nullptr, 0));
  }
  finish(transport, tickets);
}

constexpr Heading heading{7, 11};

inline std::uint32_t seed_of(int from, int to, std::uint32_t number) {
  return static_cast<std::uint32_t>(from * 1000 + to * 100) + number * 7919;
}

inline void with_all_sizes(Body body) {
  for (int size = 2; size <= 4; ++size) run(size, body);
}

}  // namespace tnt::test
