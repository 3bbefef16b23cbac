// What is certain to have come before what: vector clocks of the ranks, carried by messages.
//
// Source: C. Fidge, "Timestamps in message-passing systems that preserve the partial ordering",
// Australian Computer Science Communications 10(1), 1988; and for keeping little per element,
// C. Flanagan, S. Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009.
#pragma once

#include <memory>
#include <vector>

#include "collective/cells.h"

namespace tnt {

class Order {
 public:
  // Ranks that share nothing need not know of each other: then only their own steps are ordered.
  Order(std::size_t ranks, bool across_ranks) : known_(ranks), received_(ranks) {
    if (!across_ranks) return;
    for (auto& clock : known_) clock = std::make_shared<Clock>(ranks, 0);
  }

  // Whether the epoch is over for a rank whose own clock shows `now`.
  bool is_over(Epoch epoch, int rank, std::uint32_t now) const {
    if (epoch.rank < 0) return true;
    if (epoch.rank == rank) return epoch.tick <= now;
    return knows(rank, epoch.rank) >= epoch.tick;
  }

  // Up to which tick of `other` the rank has heard of.
  std::uint32_t knows(int rank, int other) const {
    const auto& clock = known_[static_cast<std::size_t>(rank)];
    return clock ? (*clock)[static_cast<std::size_t>(other)] : 0;
  }

  // A message that the source sent at its tick `sent` has arrived. It counts when the receiver's
  // round ends; until then neither learns anything else.
  void receive(int target, int source, std::uint32_t sent) {
    const auto& clock = known_[static_cast<std::size_t>(source)];
    if (clock) received_[static_cast<std::size_t>(target)].push_back({clock, source, sent});
  }

  void end_round(int rank) {
    auto& received = received_[static_cast<std::size_t>(rank)];
    if (received.empty()) return;
    auto clock = std::make_shared<Clock>(*known_[static_cast<std::size_t>(rank)]);
    std::uint32_t* own = clock->data();
    for (const Received& message : received) {
      const std::uint32_t* other = message.clock->data();
      for (std::size_t i = 0; i < clock->size(); ++i) own[i] = std::max(own[i], other[i]);
      auto& source = own[static_cast<std::size_t>(message.source)];
      source = std::max(source, message.sent);
    }
    received.clear();
    known_[static_cast<std::size_t>(rank)] = std::move(clock);
  }

 private:
  using Clock = std::vector<std::uint32_t>;
  struct Received {
    std::shared_ptr<const Clock> clock;  // of the source, when its round began
    int source;
    std::uint32_t sent;
  };

  std::vector<std::shared_ptr<Clock>> known_;
  std::vector<std::vector<Received>> received_;
};

}  // namespace tnt
