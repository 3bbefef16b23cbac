// One operation under way: its schedule, round after round, over a transport.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective/schedule.h"
#include "engine/request.h"
#include "engine/trace.h"
#include "transport/transport.h"

namespace tnt {

// One message was waited for too long.
struct Stalled : TransportError {
  using TransportError::TransportError;
};

class Execution {
 public:
  // What is pointed to must live until finished(). `window` is the data memory.
  void begin(const Request& request, const Schedule& schedule, const Heading& heading,
             std::uint32_t channel, int algorithm, std::byte* window, std::byte* scratch,
             Transport& transport, Trace& trace);

  // Goes on as far as messages have come; true if anything happened. Throws TransportError if the
  // link failed or a peer is in another operation, and Stalled if one message was waited for longer
  // than timeout_s.
  bool advance(double timeout_s);

  // "rank 3 in allreduce of x": for whom this operation waits, and in what; or nothing.
  std::string awaited() const;

  bool finished() const { return finished_; }

 private:
  struct Waiting {
    Ticket ticket;
    int peer;
    std::uint64_t until;  // the round that does not start before
  };

  bool must_wait() const;
  void run_round();
  void start(const Step& step);
  void copy(const Step& step);
  static bool reduces_to_both(const Step& step, const Step& next);
  void reduce(const Step& step);
  void reduce_to_output(const Step& step, bool accumulates);
  const std::byte* operand(const Place& place, std::size_t done, std::size_t count,
                           std::byte* space);
  const std::byte* input_as_it_is(std::size_t element) const;
  void convert_to_output(std::size_t begin, const std::byte* from, std::size_t count);
  void convert_from_input(std::byte* to, std::size_t begin, std::size_t count);
  void copy_input_to_output(std::size_t to, std::size_t from, std::size_t count);
  void check_waiting(double timeout_s);
  void record_end();
  [[noreturn]] void mismatch(const Mismatch& found) const;
  int rank_of(int peer) const {
    return request_->group == nullptr ? peer : request_->group->ranks[peer];
  }
  std::byte* at(const Place& place) const;
  bool streams(std::size_t count) const;

  const Request* request_ = nullptr;
  const Schedule* schedule_ = nullptr;
  Transport* transport_ = nullptr;
  Trace* trace_ = nullptr;
  Heading heading_;
  std::uint32_t channel_ = 0;
  int algorithm_ = 0;
  std::byte* window_ = nullptr;
  std::byte* scratch_ = nullptr;
  std::size_t wire_bytes_ = 0, tensor_bytes_ = 0;
  bool streaming_ = false;
  bool finished_ = false;
  std::size_t next_ = 0;          // the first step of the round that begins next
  std::vector<Waiting> waiting_;  // messages under way
  std::uint64_t begin_ns_ = 0, first_message_ns_ = 0, last_message_ns_ = 0;
  std::uint64_t waiting_since_ns_ = 0, looked_ns_ = 0;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace tnt
