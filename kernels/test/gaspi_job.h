// Ranks that are processes of this host and start GASPI together. Tests are skipped where
// TNT_GASPI_LIBRARY names no library and none is installed.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <random>

#include "processes.h"
#include "transport/gaspi.h"

// The thread sanitizer sees no order in what GPI-2's own threads do, as it is built without. A race
// of our own ends the rank.
extern "C" [[gnu::used]] inline const char* __tsan_default_suppressions() {
  return "called_from_lib:libGPI2.so\nrace:libGPI2.so\n";
}
extern "C" [[gnu::used]] inline const char* __tsan_default_options() { return "halt_on_error=1"; }

namespace tnt::test {

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
  options.hosts.assign(size, "localhost");
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

// Processes that have started GASPI together.
struct Job : Processes<Member> {
  explicit Job(int size) : Job(size, (need_library(), free_ports(size))) {}
  Job(int size, int port_base)
      : Processes(size, [=](int rank) {
          return std::make_unique<Member>(Member{options_of(rank, size, port_base)});
        }) {}
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

inline Notice next_notice(Transport& transport) {
  Notice notice;
  wait_until("a notice", [&] { return transport.take_notice(notice); });
  return notice;
}

inline std::vector<int> all_of(const Transport& transport) {
  std::vector<int> ranks(transport.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Before a transport goes: what it has sent has arrived.
inline void leave(Transport& transport) {
  wait_until("the others to take all", [&] { return transport.sends_done(); });
}

// All ranks have come here.
inline void meet(Transport& transport) {
  constexpr std::uint32_t channel = Transport::max_channels - 1;
  exchange(transport, all_of(transport), channel, {0}, {});
}

inline void with_all_sizes(Body body) {
  for (int size = 2; size <= 4; ++size) run(size, body);
}

}  // namespace tnt::test
