#include "transport/paced.h"

#include <algorithm>
#include <deque>
#include <optional>

namespace tnt {
namespace {

// Windows of peers are out of reach, as on other hosts. What waits must be polled.
class Paced final : public Transport {
 public:
  Paced(std::unique_ptr<Transport> network, std::shared_ptr<Card> card)
      : Transport(network->rank(), network->size()),
        network_(std::move(network)),
        card_(std::move(card)) {}

  // Tickets of receives are even here, those of sends odd.
  Ticket send(int peer, std::uint32_t channel, const Heading& heading, const void* data,
              std::size_t bytes) override {
    if (free_.empty()) {
      free_.push_back(static_cast<Ticket>(sends_.size()));
      sends_.emplace_back();
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    sends_[ticket] = {peer, channel, heading, data, bytes, card_->arrival(bytes), std::nullopt};
    waiting_.push_back(ticket);
    return 2 * ticket + 1;
  }
  Ticket receive(int peer, std::uint32_t channel, const Heading& heading, void* data,
                 std::size_t bytes) override {
    return 2 * network_->receive(peer, channel, heading, data, bytes);
  }
  bool done(Ticket ticket) override {
    hand_over();
    if (ticket % 2 == 0) return network_->done(ticket / 2);
    const std::optional<Ticket>& handed_over = sends_[ticket / 2].handed_over;
    if (!handed_over || !network_->done(*handed_over)) return false;
    free_.push_back(ticket / 2);
    return true;
  }

  void check_alive(int peer) override { network_->check_alive(peer); }
  void notify(int peer, std::uint32_t kind, const std::string& payload) override {
    network_->notify(peer, kind, payload);
  }
  bool take_notice(Notice& notice) override { return network_->take_notice(notice); }
  bool notices_done() override { return network_->notices_done(); }

  // What waits is given up, too: no peer has to drain what was never sent.
  void cancel_receives() override {
    waiting_.clear();
    network_->cancel_receives();
  }
  bool sends_done() override {
    hand_over();
    return network_->sends_done() && waiting_.empty();
  }
  std::vector<std::uint64_t> sent() const override { return network_->sent(); }
  std::vector<std::uint64_t> received() const override { return network_->received(); }

  std::byte* allocate(std::size_t bytes) override { return network_->allocate(bytes); }
  void free(std::byte* memory) override { network_->free(memory); }
  Doorbell& doorbell() override { return network_->doorbell(); }

 private:
  struct Send {
    int peer;
    std::uint32_t channel;
    Heading heading;
    const void* data;
    std::size_t bytes;
    Card::Seconds arrival;
    std::optional<Ticket> handed_over;  // the network's
  };

  // The card is first in, first out, so that the first message that waits is the next to arrive.
  void hand_over() {
    while (!waiting_.empty()) {
      Send& next = sends_[waiting_.front()];
      if (Card::now() < next.arrival) return;
      next.handed_over =
          network_->send(next.peer, next.channel, next.heading, next.data, next.bytes);
      waiting_.pop_front();
    }
  }

  const std::unique_ptr<Transport> network_;
  const std::shared_ptr<Card> card_;
  std::vector<Send> sends_;  // by ticket
  std::vector<Ticket> free_;
  std::deque<Ticket> waiting_;
};

}  // namespace

Card::Seconds Card::arrival(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  free_at_ = std::max(free_at_, now()) + Seconds(static_cast<double>(bytes) / bytes_per_s_);
  return free_at_ + latency;
}

std::unique_ptr<Transport> make_paced_transport(std::unique_ptr<Transport> network,
                                                std::shared_ptr<Card> card) {
  return std::make_unique<Paced>(std::move(network), std::move(card));
}

}  // namespace tnt
