// One operation under way: its schedule, round after round, over a transport.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collective/element.h"
#include "collective/schedule.h"
#include "engine/trace.h"
#include "transport/transport.h"

namespace tnt {

// Empty: it worked. Otherwise a sentence that says what failed, and where.
using Failure = std::string;
using Done = std::function<void(const Failure&)>;

struct Operation {
  std::uint32_t channel = 0;
  std::string label;  // "allreduce of bucket 3 (dense/kernel, dense/bias)"
  const Schedule* schedule = nullptr;
  Type type = Type::float32;
  Reduction reduction = Reduction::sum;
  std::byte* data = nullptr;
  std::byte* scratch = nullptr;
  Done done;
};

class Execution {
 public:
  Execution(Operation operation, Transport& transport);

  // Starts the first round. Throws TransportError.
  void begin();

  // Goes on as far as messages have come; true if anything happened. Throws TransportError if the
  // link failed, or one message was waited for longer than timeout_s.
  bool advance(double timeout_s);

  bool finished() const { return finished_; }
  Done take_done() { return std::move(operation_.done); }
  void record(Trace& trace) const;  // when finished

 private:
  void begin_round();
  void end_round();
  void check_time(double timeout_s) const;
  std::byte* at(const Range& range) const;
  std::size_t bytes(const Range& range) const { return range.count * element_bytes_; }

  Operation operation_;
  Transport& transport_;
  const std::size_t element_bytes_;
  bool finished_ = false;
  std::size_t next_step_ = 0;                    // the first step of the round that begins next
  std::size_t round_begin_ = 0;                  // the first step of the round under way
  std::vector<std::pair<Ticket, int>> waiting_;  // sends and receives, and their peers
  std::uint64_t begin_ns_ = 0;
  std::uint64_t waiting_since_ns_ = 0;
  std::uint64_t end_ns_ = 0;
};

}  // namespace tnt
