// What moves bytes between ranks. A transport knows ranks, tags and buffers, and nothing of
// collectives. Only the engine's progress thread calls it, but for rank() and size().
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace tnt {

// The link failed, or a message is not what was announced. what() names the peer.
struct TransportError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A small message outside of any collective: an abort, or telemetry on its way to rank 0.
struct Notice {
  int source = 0;
  std::uint32_t kind = 0;
  std::string payload;
};

// Names a send or receive under way, until done() has returned true for it.
using Ticket = int;

class Transport {
 public:
  static constexpr std::size_t max_notice_bytes = 8192;

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Messages between two ranks with one tag arrive in the order in which they were sent. The
  // buffer belongs to the transport until the ticket is done.
  virtual Ticket send(int peer, std::uint32_t tag, const void* data, std::size_t bytes) = 0;
  virtual Ticket receive(int peer, std::uint32_t tag, void* data, std::size_t bytes) = 0;

  // True once: the ticket is then void. Throws TransportError.
  virtual bool done(Ticket ticket) = 0;

  // Fire and forget; the payload is copied, max_notice_bytes at most.
  virtual void notify(int peer, std::uint32_t kind, const std::string& payload) = 0;
  virtual bool take_notice(Notice& notice) = 0;

  // Gives up all receives under way. Sends stay until the peer has drained them (see sent()).
  virtual void cancel_receives() = 0;
  virtual bool sends_done() = 0;

  // Messages sent to each rank and received from each rank so far: what a fresh start after a
  // failure has to drain is the difference between the one here and the other there.
  virtual std::vector<std::uint64_t> sent() const = 0;
  virtual std::vector<std::uint64_t> received() const = 0;
};

}  // namespace tnt
