#include "transport/local.h"

#include <cstring>

namespace tnt {

// A send is complete when it is in the mailbox; a receive looks into the mailbox when asked.
class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalNetwork> network, int rank)
      : Transport(rank, network->size()), network_(std::move(network)) {}

  Ticket send(int peer, std::uint32_t channel, const Heading& heading, const void* data,
              std::size_t bytes) override {
    const auto* begin = static_cast<const std::byte*>(data);
    std::lock_guard lock(network_->mutex_);
    network_->mail_[{rank_, peer, channel}].push_back({heading, {begin, begin + bytes}});
    ++sent_[peer];
    return sent_ticket;
  }

  Ticket receive(int peer, std::uint32_t channel, const Heading& heading, void* data,
                 std::size_t bytes) override {
    const LocalNetwork::Address address{peer, rank_, channel};
    receives_[++last_ticket_] = {address, heading, data, bytes};
    order_[address].push_back(last_ticket_);
    return last_ticket_;
  }

  bool done(Ticket ticket) override {
    if (ticket == sent_ticket) return true;
    const auto& [address, heading, data, bytes] = receives_.at(ticket);
    auto& order = order_[address];
    if (order.front() != ticket) return false;
    std::lock_guard lock(network_->mutex_);
    auto& queue = network_->mail_[address];
    if (queue.empty()) return false;
    const LocalNetwork::Message& message = queue.front();
    const int source = std::get<0>(address);
    if (!(message.heading == heading) || message.bytes.size() != bytes)
      throw Mismatch(source, message.heading, message.bytes.size());
    if (bytes != 0) std::memcpy(data, message.bytes.data(), bytes);
    queue.pop_front();
    order.pop_front();
    ++received_[source];
    receives_.erase(ticket);
    return true;
  }

  void notify(int peer, std::uint32_t kind, const std::string& payload) override {
    std::lock_guard lock(network_->mutex_);
    network_->notices_[peer].push_back({rank_, kind, payload});
  }

  bool take_notice(Notice& notice) override {
    std::lock_guard lock(network_->mutex_);
    auto& queue = network_->notices_[rank_];
    if (queue.empty()) return false;
    notice = std::move(queue.front());
    queue.pop_front();
    return true;
  }

  void cancel_receives() override {
    receives_.clear();
    order_.clear();
  }
  bool sends_done() override { return true; }

 private:
  static constexpr Ticket sent_ticket = 0;
  struct Receive {
    LocalNetwork::Address address;
    Heading heading;
    void* data;
    std::size_t bytes;
  };

  std::shared_ptr<LocalNetwork> network_;
  Ticket last_ticket_ = sent_ticket;
  std::map<Ticket, Receive> receives_;
  std::map<LocalNetwork::Address, std::deque<Ticket>> order_;
};

std::unique_ptr<Transport> make_local_transport(std::shared_ptr<LocalNetwork> network, int rank) {
  return std::make_unique<LocalTransport>(std::move(network), rank);
}

}  // namespace tnt
