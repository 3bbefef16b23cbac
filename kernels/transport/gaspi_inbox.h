// Messages that come from one peer in parts, and the receives that they are for. A message without
// a receive is kept until there is one.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>

#include "transport/transport.h"

namespace tnt::gaspi {

struct Receive {
  enum class State { waiting, complete, mismatched };
  State state = State::waiting;
  std::uint32_t channel = 0;
  Heading heading;
  std::byte* target = nullptr;
  std::size_t bytes = 0;
  Heading its_heading;  // of a message that does not match
  std::size_t its_bytes = 0;
};

// The parts of a message come in order; between them, parts of messages on other channels.
struct Part {
  std::uint32_t channel = 0;
  Heading heading;
  std::size_t message_bytes = 0;
  std::size_t offset = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class Inbox {
 public:
  // The receive must stay where it is until it is no longer waiting, or is cancelled.
  void post(Receive& receive);
  void cancel(Receive& receive);
  bool waits() const { return waiting_ != 0; }

  enum class Taken { part, whole_message, nonsense };
  Taken take(const Part& part);

  // The payload of the last message of a channel that has no receives.
  std::string take_message(std::uint32_t channel);

 private:
  // A message of which a part has come.
  struct Arrival {
    Heading heading;
    std::size_t bytes = 0;
    std::size_t filled = 0;
    bool complete = false;
    bool claimed = false;         // by a receive
    Receive* receive = nullptr;   // that one, unless it was cancelled or does not match
    std::byte* target = nullptr;  // null: dropped
    std::unique_ptr<std::byte[]> kept;
  };
  // Only the last arrival may be incomplete, only the first one claimed.
  struct Channel {
    std::deque<Arrival> arrivals;
    std::deque<Receive*> receives;  // that have claimed nothing
  };

  void settle(Channel& channel);
  void claim(Arrival& arrival, Receive& receive);
  void end(Receive& receive, Receive::State state);

  std::unordered_map<std::uint32_t, Channel> channels_;
  int waiting_ = 0;
};

}  // namespace tnt::gaspi
