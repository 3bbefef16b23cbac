// What is certain to have come before what: vector clocks of the ranks, carried by messages.
//
// Source: C. Fidge, "Timestamps in message-passing systems that preserve the partial ordering",
// Australian Computer Science Communications 10(1), 1988; and for keeping little per element,
// C. Flanagan, S. Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "checker/cells.h"

namespace tnt {

class Order {
 public:
  // Ranks that share nothing need not know of each other: then only their own steps are ordered.
  Order(std::size_t ranks, bool across_ranks) : known_(ranks), sent_(ranks), received_(ranks) {
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
    const auto& clock = known_[rank];
    return clock ? (*clock)[other] : 0;
  }

  // A message leaves with what its source knows.
  void send(int source, std::size_t step) {
    const auto& clock = known_[source];
    if (clock) sent_[source].push_back({step, clock});
  }

  struct Message {
    int source;
    std::size_t step;    // that sent it
    std::uint32_t tick;  // of the source's clock then
  };

  // It has arrived; what it brings is known from the step `end` of the target on.
  void receive(const Message& message, int target, std::size_t end) {
    auto& sent = sent_[message.source];
    const auto found = std::find_if(sent.begin(), sent.end(), [&](const Sent& candidate) {
      return candidate.step == message.step;
    });
    if (found == sent.end()) return;
    received_[target].push_back({std::move(found->clock), message.source, message.tick, end});
    *found = std::move(sent.back());
    sent.pop_back();
  }

  // The rank comes to this step.
  void end_messages(int rank, std::size_t step) {
    auto& received = received_[rank];
    const auto later = std::partition(received.begin(), received.end(),
                                      [&](const Received& one) { return one.end <= step; });
    if (later == received.begin()) return;
    auto clock = std::make_shared<Clock>(*known_[rank]);
    std::uint32_t* own = clock->data();
    for (auto message = received.begin(); message != later; ++message) {
      const std::uint32_t* other = message->clock->data();
      for (std::size_t i = 0; i < clock->size(); ++i) own[i] = std::max(own[i], other[i]);
      auto& source = own[message->source];
      source = std::max(source, message->tick);
    }
    received.erase(received.begin(), later);
    known_[rank] = std::move(clock);
  }

 private:
  using Clock = std::vector<std::uint32_t>;
  struct Sent {
    std::size_t step;
    std::shared_ptr<const Clock> clock;
  };
  struct Received {
    std::shared_ptr<const Clock> clock;
    int source;
    std::uint32_t tick;
    std::size_t end;
  };

  std::vector<std::shared_ptr<Clock>> known_;
  std::vector<std::vector<Sent>> sent_;  // and not yet received
  std::vector<std::vector<Received>> received_;
};

}  // namespace tnt
