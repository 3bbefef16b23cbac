#include "transport/router.h"

namespace tnt {
namespace {

class Router final : public Transport {
 public:
  Router(std::unique_ptr<Transport> node, std::unique_ptr<Transport> network,
         std::vector<bool> near)
      : Transport(network->rank(), network->size()),
        node_(std::move(node)),
        network_(std::move(network)),
        near_(std::move(near)) {}

  // Tickets of the node are even here, those of the network odd.
  Ticket send(int peer, std::uint32_t channel, const Heading& heading, const void* data,
              std::size_t bytes) override {
    if (is_near(peer)) return 2 * node_->send(peer, channel, heading, data, bytes);
    const Ticket ticket = 2 * network_->send(peer, channel, heading, data, bytes) + 1;
    ++far_transfers_;
    return ticket;
  }
  Ticket receive(int peer, std::uint32_t channel, const Heading& heading, void* data,
                 std::size_t bytes) override {
    if (is_near(peer)) return 2 * node_->receive(peer, channel, heading, data, bytes);
    const Ticket ticket = 2 * network_->receive(peer, channel, heading, data, bytes) + 1;
    ++far_transfers_;
    return ticket;
  }
  bool done(Ticket ticket) override {
    if (ticket % 2 == 0) return node_->done(ticket / 2);
    if (!network_->done(ticket / 2)) return false;
    --far_transfers_;
    return true;
  }

  void check_alive(int peer) override { (is_near(peer) ? node_ : network_)->check_alive(peer); }
  void notify(int peer, std::uint32_t kind, const std::string& payload) override {
    network_->notify(peer, kind, payload);
  }
  bool take_notice(Notice& notice) override { return network_->take_notice(notice); }
  void cancel_receives() override {
    node_->cancel_receives();
    network_->cancel_receives();
  }
  bool notices_done() override { return network_->notices_done(); }
  bool sends_done() override { return network_->sends_done(); }
  std::vector<std::uint64_t> sent() const override { return network_->sent(); }
  std::vector<std::uint64_t> received() const override { return network_->received(); }

  std::byte* allocate(std::size_t bytes) override { return node_->allocate(bytes); }
  void free(std::byte* memory) override { node_->free(memory); }
  void expose(std::uint32_t channel, std::byte* window) override { node_->expose(channel, window); }
  std::byte* window(int peer, std::uint32_t channel) override {
    return is_near(peer) ? node_->window(peer, channel) : nullptr;
  }
  Doorbell& doorbell() override { return node_->doorbell(); }
  bool must_poll() const override { return far_transfers_ != 0; }

 private:
  bool is_near(int peer) const { return near_[peer]; }

  const std::unique_ptr<Transport> node_, network_;
  const std::vector<bool> near_;
  int far_transfers_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_router(std::unique_ptr<Transport> node,
                                       std::unique_ptr<Transport> network, std::vector<bool> near) {
  return std::make_unique<Router>(std::move(node), std::move(network), std::move(near));
}

}  // namespace tnt
