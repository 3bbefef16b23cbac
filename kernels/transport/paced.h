// An emulated link: messages leave as from a network card of a given rate, one after another,
// whichever peer they are for, and reach their peer a little later. How fast they come in is not
// limited, and a peer may send while it receives.
//
//   send() -> [ waits | waits | leaves ] -- latency --> send() of the network -> peer
//
// Until it would have arrived a message stays here, with its memory; then it is handed to the
// network. So the peer needs no emulation of its own, and what waits has not been sent.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include "transport/transport.h"

namespace tnt {

// The network card of a rank: the transports of all its lanes send by it.
class Card {
 public:
  // Since the clock's begin. As a double: a rate may be so small that no count of nanoseconds holds
  // when a message will have left.
  using Seconds = std::chrono::duration<double>;

  // What a message takes beside its bytes: about as much as TCP between hosts.
  static constexpr Seconds latency{50e-6};

  explicit Card(double mbit_per_s) : bytes_per_s_(mbit_per_s * 1e6 / 8) {}

  static Seconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

  // When a message reaches its peer that is sent now, behind all that were sent before.
  Seconds arrival(std::size_t bytes);

 private:
  const double bytes_per_s_;
  std::mutex mutex_;
  Seconds free_at_{0};  // when all that was sent has left
};

// Notices go by the network at once: a failure is told as fast as without an emulated link.
std::unique_ptr<Transport> make_paced_transport(std::unique_ptr<Transport> network,
                                                std::shared_ptr<Card> card);

}  // namespace tnt
