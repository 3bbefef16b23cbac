#include "transport/shared.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace tnt {
namespace {

constexpr std::size_t line_bytes = 128;  // two cache lines, which CPUs fetch together
constexpr std::uint64_t lines = 8;       // messages that a sender may be ahead of the receiver
constexpr std::uint64_t nowhere = ~std::uint64_t{0};

struct alignas(line_bytes) Line {
  std::atomic<std::uint64_t> number;  // of the message, from 1; written last
  Heading heading;
  std::uint64_t bytes;
  std::uint64_t window;   // offset in the sender's segment, or nowhere
  std::uint64_t payload;  // the same; nowhere: it is inlined
  std::byte inlined[line_bytes - 6 * sizeof(std::uint64_t)];
};
static_assert(sizeof(Line) == line_bytes);

struct Link {
  Line ring[lines];
  alignas(line_bytes) std::atomic<std::uint64_t> acknowledged;
};

struct alignas(line_bytes) Control {
  Doorbell doorbell;
};

constexpr std::size_t controls_at = line_bytes;
constexpr std::size_t links_at = 4096;
static_assert(controls_at >= Segment::key_bytes);
static_assert(controls_at + SharedNode::max_lanes * sizeof(Control) <= links_at);

// Links lie in the receiver's segment. What nobody touches takes no memory.
Link& link_at(std::byte* segment, std::uint32_t channel, std::size_t ranks, int source) {
  const std::size_t number = channel * ranks + source;
  return *reinterpret_cast<Link*>(segment + links_at + number * sizeof(Link));
}

class SharedTransport final : public Transport {
 public:
  SharedTransport(std::shared_ptr<SharedNode> node, int lane, int rank, int size)
      : Transport(rank, size), node_(std::move(node)), lane_(lane) {}

  Ticket send(int peer, std::uint32_t channel, const Heading& heading, const void* data,
              std::size_t bytes) override {
    if (bytes > sizeof(Line::inlined) && !node_->holds(data))
      throw std::logic_error("a large message to a rank of the node must lie in shared memory");
    const Ticket ticket = open(Kind::send, peer, channel, heading, bytes);
    Transfer& transfer = transfers_[ticket];
    transfer.source = static_cast<const std::byte*>(data);
    transfer.number = ++transfer.pair->sends;
    transfer.posted = post(transfer);
    return ticket;
  }

  Ticket receive(int peer, std::uint32_t channel, const Heading& heading, void* data,
                 std::size_t bytes) override {
    const Ticket ticket = open(Kind::receive, peer, channel, heading, bytes);
    Transfer& transfer = transfers_[ticket];
    transfer.target = static_cast<std::byte*>(data);
    transfer.number = ++transfer.pair->receives;
    return ticket;
  }

  bool done(Ticket ticket) override {
    Transfer& transfer = transfers_[ticket];
    if (!(transfer.kind == Kind::send ? sent(transfer) : arrived(transfer))) return false;
    transfer.kind = Kind::free;
    free_.push_back(ticket);
    return true;
  }

  void check_alive(int peer) override { node_->check_alive(node_->index_of(peer)); }

  void notify(int, std::uint32_t, const std::string&) override {
    throw std::logic_error("shared memory carries no notices");
  }
  bool take_notice(Notice&) override { return false; }

  // What the peer has not fetched may be forgotten, so nothing is counted: after a failure a new
  // segment takes its place.
  void cancel_receives() override {}
  bool sends_done() override { return true; }

  std::byte* allocate(std::size_t bytes) override { return node_->allocate(bytes); }
  void free(std::byte* memory) override { node_->free(memory); }

  void expose(std::uint32_t channel, std::byte* window) override {
    pairs(channel).window = node_->holds(window) ? offset(window) : nowhere;
  }
  std::byte* window(int peer, std::uint32_t channel) override {
    return pairs(channel).of[node_->index_of(peer)].window;
  }

  Doorbell& doorbell() override { return doorbell_of(node_->index()); }
  bool must_poll() const override { return false; }

 private:
  // Both directions of a channel between this rank and one peer.
  struct Pair {
    int peer = 0;  // index on the node
    Link *outgoing = nullptr, *incoming = nullptr;
    std::uint64_t sends = 0, posts = 0, receives = 0, arrivals = 0;  // numbers of the latest
    std::uint64_t known_acknowledged = 0;
    std::byte* window = nullptr;
  };
  struct Pairs {
    std::vector<Pair> of;  // by index on the node
    std::uint64_t window = nowhere;
  };
  enum class Kind { free, send, receive };
  struct Transfer {
    Kind kind = Kind::free;
    bool posted = false;
    std::uint64_t number = 0;
    Pair* pair = nullptr;
    std::uint64_t window = nowhere;
    Heading heading;
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
    std::size_t bytes = 0;
  };

  Ticket open(Kind kind, int peer, std::uint32_t channel, const Heading& heading,
              std::size_t bytes) {
    if (free_.empty()) {
      free_.push_back(static_cast<Ticket>(transfers_.size()));
      transfers_.emplace_back();
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    Transfer& transfer = transfers_[ticket];
    Pairs& all = pairs(channel);
    transfer.kind = kind;
    transfer.posted = false;
    transfer.pair = &all.of[node_->index_of(peer)];
    transfer.window = all.window;
    transfer.heading = heading;
    transfer.bytes = bytes;
    return ticket;
  }

  // False while the ring is full, or an earlier message waits for it.
  bool post(const Transfer& transfer) {
    Pair& pair = *transfer.pair;
    if (pair.posts + 1 != transfer.number || !acknowledged(pair, pair.posts + 1 - lines))
      return false;
    Line& line = pair.outgoing->ring[transfer.number % lines];
    line.heading = transfer.heading;
    line.bytes = transfer.bytes;
    line.window = transfer.window;
    line.payload = nowhere;
    if (transfer.bytes > sizeof line.inlined)
      line.payload = offset(transfer.source);
    else if (transfer.bytes != 0)
      std::memcpy(line.inlined, transfer.source, transfer.bytes);
    line.number.store(transfer.number, std::memory_order_release);
    pair.posts = transfer.number;
    doorbell_of(pair.peer).ring();
    return true;
  }

  bool sent(Transfer& transfer) {
    if (!transfer.posted && !(transfer.posted = post(transfer))) return false;
    return transfer.bytes <= sizeof(Line::inlined) || acknowledged(*transfer.pair, transfer.number);
  }

  bool arrived(const Transfer& transfer) {
    Pair& pair = *transfer.pair;
    if (pair.arrivals + 1 != transfer.number) return false;  // in the order of the posts
    const Line& line = pair.incoming->ring[transfer.number % lines];
    if (line.number.load(std::memory_order_acquire) != transfer.number) return false;
    if (!(line.heading == transfer.heading) || line.bytes != transfer.bytes)
      throw Mismatch(node_->ranks()[pair.peer], line.heading, static_cast<std::size_t>(line.bytes));
    std::byte* peer = node_->begin(pair.peer);
    pair.window = line.window == nowhere ? nullptr : peer + line.window;
    const bool large = line.payload != nowhere;
    if (transfer.bytes != 0)
      std::memcpy(transfer.target, large ? peer + line.payload : line.inlined, transfer.bytes);
    pair.arrivals = transfer.number;
    pair.incoming->acknowledged.store(transfer.number, std::memory_order_release);
    // The sender waits for this: with a large message for its memory, with a full ring for a line.
    if (large || transfer.number % (lines / 2) == 0) doorbell_of(pair.peer).ring();
    return true;
  }

  // Whether the peer has read message `number`, which may be before the first.
  static bool acknowledged(Pair& pair, std::uint64_t number) {
    if (static_cast<std::int64_t>(number) <= static_cast<std::int64_t>(pair.known_acknowledged))
      return true;
    pair.known_acknowledged = pair.outgoing->acknowledged.load(std::memory_order_acquire);
    return static_cast<std::int64_t>(number) <= static_cast<std::int64_t>(pair.known_acknowledged);
  }

  Pairs& pairs(std::uint32_t channel) {
    if (channel >= channels_.size()) {
      if (channel >= max_channels)
        throw std::invalid_argument("channel " + std::to_string(channel) + " is beyond " +
                                    std::to_string(max_channels));
      channels_.resize(channel + 1);
    }
    auto& found = channels_[channel];
    if (found == nullptr) {
      found = std::make_unique<Pairs>();
      const std::size_t ranks = node_->ranks().size();
      found->of.resize(ranks);
      for (int peer = 0; peer < static_cast<int>(ranks); ++peer) {
        Pair& pair = found->of[peer];
        pair.peer = peer;
        pair.outgoing = &link_at(node_->begin(peer), channel, ranks, node_->index());
        pair.incoming = &link_at(node_->begin(node_->index()), channel, ranks, peer);
      }
    }
    return *found;
  }

  std::uint64_t offset(const std::byte* memory) const {
    return static_cast<std::uint64_t>(memory - node_->begin(node_->index()));
  }

  Doorbell& doorbell_of(int index) const {
    auto* controls = reinterpret_cast<Control*>(node_->begin(index) + controls_at);
    return controls[lane_].doorbell;
  }

  const std::shared_ptr<SharedNode> node_;
  const int lane_;
  std::vector<std::unique_ptr<Pairs>> channels_;
  std::vector<Transfer> transfers_;
  std::vector<Ticket> free_;
};

}  // namespace

SharedNode::SharedNode(std::unique_ptr<Segment> own, int rank, std::vector<int> ranks,
                       const std::vector<SegmentAddress>& addresses)
    : own_(std::move(own)), ranks_(std::move(ranks)) {
  index_ = index_of(rank);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (static_cast<int>(i) == index_) {
      begins_.push_back(own_->begin());
      peers_.push_back(nullptr);
      continue;
    }
    try {
      peers_.push_back(std::make_unique<MappedSegment>(addresses.at(i), *own_));
    } catch (const TransportError& error) {
      throw TransportError("rank " + std::to_string(rank) + " has no shared memory with rank " +
                           std::to_string(ranks_[i]) + ": " + error.what());
    }
    begins_.push_back(peers_.back()->begin());
  }
  const std::size_t links = Transport::max_channels * ranks_.size() * sizeof(Link);
  if (links_at + links >= own_->bytes())
    throw TransportError("rank " + std::to_string(rank) + ": shared memory of " +
                         std::to_string(own_->bytes() >> 20) + " MiB is too small for " +
                         std::to_string(ranks_.size()) + " ranks");
  own_->set_heap_begin(links_at + links);
}

int SharedNode::index_of(int rank) const {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return found == ranks_.end() || *found != rank ? -1 : static_cast<int>(found - ranks_.begin());
}

std::byte* SharedNode::allocate(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  return own_->allocate(bytes);
}

void SharedNode::free(std::byte* memory) {
  std::lock_guard lock(mutex_);
  own_->free(memory);
}

void SharedNode::check_alive(int index) const {
  const auto& peer = peers_[index];
  if (peer != nullptr && !peer->alive()) throw PeerDied(ranks_[index]);
}

std::unique_ptr<Transport> make_shared_transport(std::shared_ptr<SharedNode> node, int lane,
                                                 int rank, int size) {
  return std::make_unique<SharedTransport>(std::move(node), lane, rank, size);
}

}  // namespace tnt
