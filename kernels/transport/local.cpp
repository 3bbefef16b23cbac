#include "transport/local.h"

#include <cstring>

namespace tnt {

// A send is complete when it is in the mailbox; a receive looks into the mailbox when asked.
class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalNetwork> network, int rank)
      : network_(std::move(network)),
        rank_(rank),
        sent_(network_->size()),
        received_(network_->size()) {}

  int rank() const override { return rank_; }
  int size() const override { return network_->size(); }

  Ticket send(int peer, std::uint32_t tag, const void* data, std::size_t bytes) override {
    const auto* begin = static_cast<const std::byte*>(data);
    std::lock_guard lock(network_->mutex_);
    network_->mail_[{rank_, peer, tag}].emplace_back(begin, begin + bytes);
    ++sent_[peer];
    return sent_ticket;
  }

  Ticket receive(int peer, std::uint32_t tag, void* data, std::size_t bytes) override {
    receives_[++last_ticket_] = {{peer, rank_, tag}, data, bytes};
    return last_ticket_;
  }

  bool done(Ticket ticket) override {
    if (ticket == sent_ticket) return true;
    const auto& [address, data, bytes] = receives_.at(ticket);
    std::lock_guard lock(network_->mutex_);
    auto& queue = network_->mail_[address];
    if (queue.empty()) return false;
    if (queue.front().size() != bytes)
      throw TransportError("rank " + std::to_string(std::get<0>(address)) + " sent " +
                           std::to_string(queue.front().size()) + " bytes where " +
                           std::to_string(bytes) + " were expected");
    if (bytes != 0) std::memcpy(data, queue.front().data(), bytes);
    queue.pop_front();
    ++received_[std::get<0>(address)];
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

  void cancel_receives() override { receives_.clear(); }
  bool sends_done() override { return true; }
  std::vector<std::uint64_t> sent() const override { return sent_; }
  std::vector<std::uint64_t> received() const override { return received_; }

 private:
  static constexpr Ticket sent_ticket = 0;
  struct Receive {
    LocalNetwork::Address address;
    void* data;
    std::size_t bytes;
  };

  std::shared_ptr<LocalNetwork> network_;
  const int rank_;
  Ticket last_ticket_ = sent_ticket;
  std::map<Ticket, Receive> receives_;
  std::vector<std::uint64_t> sent_, received_;
};

std::unique_ptr<Transport> make_local_transport(std::shared_ptr<LocalNetwork> network, int rank) {
  return std::make_unique<LocalTransport>(std::move(network), rank);
}

}  // namespace tnt
