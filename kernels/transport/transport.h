// What moves bytes between ranks. A transport knows ranks, channels and buffers, and nothing of
// collectives. One thread at a time calls it.
//
//   local.h    ranks that are threads of one process
//   shared.h   processes of one node, through shared memory
//   mpi.h      any processes, through MPI
//   gaspi.h    any processes, through GPI-2
//   router.h   for each peer one of these
//   paced.h    any of these, behind an emulated link
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "transport/doorbell.h"

namespace tnt {

// The link failed. what() names the peer.
struct TransportError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A peer has ended.
struct PeerDied : TransportError {
  explicit PeerDied(int dead, std::string noticed_in = {})
      : TransportError("rank " + std::to_string(dead) + " has died" + noticed_in),
        peer(dead),
        noticed(std::move(noticed_in)) {}
  int peer;
  std::string noticed;  // how, to be put behind: ", which was waited for in barrier"
};

// Says what a message is part of; it travels with every message, and both ends must have the same.
// The engine packs into it which collective it is, of how many elements of which type, and the
// like.
struct Heading {
  std::uint64_t operation = 0;
  std::uint64_t details = 0;

  bool operator==(const Heading& other) const {
    return operation == other.operation && details == other.details;
  }
};

// The peer is in another operation, or its message has another size.
struct Mismatch : TransportError {
  Mismatch(int sender, Heading its_heading, std::size_t its_bytes)
      : TransportError("rank " + std::to_string(sender) + " sent " + std::to_string(its_bytes) +
                       " bytes of another operation"),
        peer(sender),
        heading(its_heading),
        bytes(its_bytes) {}
  int peer;
  Heading heading;
  std::size_t bytes;
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
  static constexpr std::uint32_t max_channels = 32000;  // MPI guarantees tags up to 32767

  Transport(int rank, int size) : rank_(rank), sent_(size), received_(size) {}
  virtual ~Transport() = default;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(sent_.size()); }

  // Messages between two ranks on one channel arrive in the order in which they were sent, each in
  // the receive that was posted in the same place of the order. The buffer belongs to the transport
  // until the ticket is done. Channels are below max_channels.
  virtual Ticket send(int peer, std::uint32_t channel, const Heading& heading, const void* data,
                      std::size_t bytes) = 0;
  virtual Ticket receive(int peer, std::uint32_t channel, const Heading& heading, void* data,
                         std::size_t bytes) = 0;

  // True once: the ticket is then void. Throws Mismatch, PeerDied or TransportError.
  virtual bool done(Ticket ticket) = 0;

  // Throws PeerDied if this peer is known to have ended.
  virtual void check_alive(int /*peer*/) {}

  // Fire and forget; the payload is copied, max_notice_bytes at most.
  virtual void notify(int peer, std::uint32_t kind, const std::string& payload) = 0;
  virtual bool take_notice(Notice& notice) = 0;

  // Whether all notices have left: what close() waits for.
  virtual bool notices_done() { return sends_done(); }

  // Gives up all receives under way. Sends stay until the peer has drained them (see sent()), or
  // fail.
  virtual void cancel_receives() = 0;
  virtual bool sends_done() = 0;

  // Messages sent to each rank and received from each rank so far: what a fresh start after a
  // failure has to drain is the difference between the one here and the other there.
  virtual std::vector<std::uint64_t> sent() const { return sent_; }
  virtual std::vector<std::uint64_t> received() const { return received_; }

  // Memory that messages leave from; from any thread, aligned to a cache line.
  virtual std::byte* allocate(std::size_t bytes) {
    constexpr std::size_t line = 64;
    void* memory = std::aligned_alloc(line, (bytes + line - 1) / line * line);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<std::byte*>(memory);
  }
  virtual void free(std::byte* memory) { std::free(memory); }

  // What a channel's peers reach as this rank's window from the next message on; and the window of
  // a peer as of its last message, null if its memory is out of reach.
  virtual void expose(std::uint32_t /*channel*/, std::byte* /*window*/) {}
  virtual std::byte* window(int /*peer*/, std::uint32_t /*channel*/) { return nullptr; }

  // Rings when something happens here; if it does not for messages under way, they must be polled.
  virtual Doorbell& doorbell() { return doorbell_; }
  virtual bool must_poll() const { return true; }

 protected:
  const int rank_;
  std::vector<std::uint64_t> sent_, received_;  // by rank

 private:
  Doorbell doorbell_;
};

}  // namespace tnt
