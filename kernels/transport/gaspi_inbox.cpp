#include "transport/gaspi_inbox.h"

#include <algorithm>
#include <cstring>

namespace tnt::gaspi {

void Inbox::post(Receive& receive) {
  Channel& channel = channels_[receive.channel];
  ++waiting_;
  channel.receives.push_back(&receive);
  settle(channel);
}

void Inbox::cancel(Receive& receive) {
  if (receive.state != Receive::State::waiting) return;
  Channel& channel = channels_[receive.channel];
  const auto found = std::find(channel.receives.begin(), channel.receives.end(), &receive);
  if (found != channel.receives.end()) {
    channel.receives.erase(found);
  } else {
    channel.arrivals.front().receive = nullptr;
    channel.arrivals.front().target = nullptr;
  }
  --waiting_;
}

Inbox::Taken Inbox::take(const Part& part) {
  Channel& channel = channels_[part.channel];
  auto& arrivals = channel.arrivals;
  if (part.offset == 0) {
    if (!arrivals.empty() && !arrivals.back().complete) return Taken::nonsense;
    Arrival& fresh = arrivals.emplace_back();
    fresh.heading = part.heading;
    fresh.bytes = part.message_bytes;
    settle(channel);
    if (!fresh.claimed && fresh.bytes != 0) {
      fresh.kept.reset(new std::byte[fresh.bytes]);
      fresh.target = fresh.kept.get();
    }
  }
  if (arrivals.empty() || arrivals.back().filled != part.offset ||
      part.bytes > arrivals.back().bytes - part.offset)
    return Taken::nonsense;

  Arrival& arrival = arrivals.back();
  if (arrival.target != nullptr && part.bytes != 0)
    std::memcpy(arrival.target + part.offset, part.data, part.bytes);
  arrival.filled += part.bytes;
  if (arrival.filled != arrival.bytes) return Taken::part;
  arrival.complete = true;
  settle(channel);
  return Taken::whole_message;
}

std::string Inbox::take_message(std::uint32_t channel) {
  auto& arrivals = channels_[channel].arrivals;
  const Arrival& last = arrivals.back();
  const std::string payload(reinterpret_cast<const char*>(last.kept.get()), last.bytes);
  arrivals.pop_back();
  return payload;
}

// Brings arrivals and receives together, in their order.
void Inbox::settle(Channel& channel) {
  while (!channel.arrivals.empty()) {
    Arrival& first = channel.arrivals.front();
    if (!first.claimed) {
      if (channel.receives.empty()) return;
      claim(first, *channel.receives.front());
      channel.receives.pop_front();
    }
    if (!first.complete) return;
    if (first.receive != nullptr) end(*first.receive, Receive::State::complete);
    channel.arrivals.pop_front();
  }
}

void Inbox::claim(Arrival& arrival, Receive& receive) {
  arrival.claimed = true;
  if (arrival.heading == receive.heading && arrival.bytes == receive.bytes) {
    if (arrival.filled != 0) std::memcpy(receive.target, arrival.kept.get(), arrival.filled);
    arrival.receive = &receive;
    arrival.target = receive.target;
  } else {
    receive.its_heading = arrival.heading;
    receive.its_bytes = arrival.bytes;
    end(receive, Receive::State::mismatched);
    arrival.target = nullptr;
  }
  arrival.kept.reset();
}

void Inbox::end(Receive& receive, Receive::State state) {
  receive.state = state;
  --waiting_;
}

}  // namespace tnt::gaspi
