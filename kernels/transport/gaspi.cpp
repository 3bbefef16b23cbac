#include "transport/gaspi.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <numeric>

#include "transport/gaspi_inbox.h"
#include "transport/gaspi_outbox.h"
#include "transport/gaspi_process.h"

namespace tnt {
namespace {

using gaspi::Inbox;
using gaspi::notice_channel;
using gaspi::Outbox;
using gaspi::Part;
using gaspi::Process;
using gaspi::Receive;
using gaspi::Segment;
using Clock = std::chrono::steady_clock;

// Emptied slots are told after this time at the latest: often the next fragment does it before.
constexpr auto credit_delay = std::chrono::milliseconds(1);
// That a peer is dead shows when something is written to it: so while it is waited for, it is told
// again what it knows. Not if much is under way already, for a peer that is stopped takes nothing.
constexpr auto probe_interval = std::chrono::milliseconds(200);

// The heading of a slot.
struct Fragment {
  Heading heading;
  std::uint64_t message_bytes = 0;
  std::uint64_t offset = 0;  // of the part in the message
  std::uint32_t bytes = 0;   // of the part
  std::uint32_t channel = 0;
  std::uint32_t number = 0;   // of slots that the sender had filled before
  std::uint32_t emptied = 0;  // of slots that it had emptied in its ring of the target
};
constexpr std::size_t heading_bytes = gaspi::Layout::heading_bytes;
static_assert(sizeof(Fragment) <= heading_bytes);

struct Peer {
  int index = 0;        // here
  int rank = 0;         // in the job
  std::string failure;  // why it cannot be reached any more

  Outbox outbox;
  std::uint32_t posted = 0;    // slots
  std::uint32_t credited = 0;  // of these, emptied by the peer
  Clock::time_point posted_at = Clock::now();

  std::vector<bool> filled;   // by slot of its ring here
  std::uint32_t emptied = 0;  // slots so far
  std::uint32_t told = 0;     // of these, those that it has been told of
  Clock::time_point emptied_at;
  Inbox inbox;
};

struct Transfer {
  enum class Kind { free, send, receive };
  Kind kind = Kind::free;
  int peer = 0;
  bool sent = false;
  Receive receive;
};

class GaspiTransport final : public Transport {
 public:
  explicit GaspiTransport(const GaspiOptions& options)
      : Transport(own_index(options), static_cast<int>(options.members.size())),
        segment_number_(options.segment),
        segment_(Process::get().borrow(options)),
        slots_(static_cast<std::uint32_t>(segment_.layout().slots)),
        part_bytes_(segment_.layout().slot_bytes),
        peers_(options.members.size()),
        peer_of_rank_(segment_.layout().ranks, nullptr) {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      Peer& peer = peers_[i];
      peer.index = static_cast<int>(i);
      peer.rank = options.members[i];
      peer.filled.resize(slots_);
      peer_of_rank_[peer.rank] = &peer;
    }
  }

  ~GaspiTransport() override { Process::get().give_back(segment_number_); }

  Ticket send(int to, std::uint32_t channel, const Heading& heading, const void* data,
              std::size_t bytes) override {
    check_alive(to);
    const Ticket ticket = open(Transfer::Kind::send, to);
    peer(to).outbox.post(channel, heading, data, bytes, &transfer(ticket).sent);
    ++sent_[to];
    post_what_fits(peer(to));
    return ticket;
  }

  Ticket receive(int from, std::uint32_t channel, const Heading& heading, void* data,
                 std::size_t bytes) override {
    const Ticket ticket = open(Transfer::Kind::receive, from);
    Receive& receive = transfer(ticket).receive;
    receive = {};
    receive.channel = channel;
    receive.heading = heading;
    receive.target = static_cast<std::byte*>(data);
    receive.bytes = bytes;
    peer(from).inbox.post(receive);
    return ticket;
  }

  bool done(Ticket ticket) override {
    const Transfer& one = transfer(ticket);
    if (one.kind == Transfer::Kind::free) throw std::logic_error("a ticket that is void");
    if (is_waiting(one)) progress();
    const bool waiting = is_waiting(one);
    if (waiting && peer(one.peer).failure.empty()) return false;
    close(ticket);
    if (waiting) check_alive(one.peer);
    if (one.receive.state == Receive::State::mismatched)
      throw Mismatch(one.peer, one.receive.its_heading, one.receive.its_bytes);
    return true;
  }

  void check_alive(int other) override {
    if (!peer(other).failure.empty()) throw TransportError(peer(other).failure);
  }

  void notify(int to, std::uint32_t kind, const std::string& payload) override {
    check_alive(to);
    peer(to).outbox.post_notice(kind, payload.substr(0, max_notice_bytes));
    ++sent_[to];
    post_what_fits(peer(to));
  }

  bool take_notice(Notice& notice) override {
    if (notices_.empty()) progress();
    if (notices_.empty()) return false;
    notice = std::move(notices_.front());
    notices_.pop_front();
    return true;
  }

  void cancel_receives() override {
    for (Ticket ticket = 0; ticket < static_cast<Ticket>(transfers_.size()); ++ticket)
      if (transfer(ticket).kind == Transfer::Kind::receive) close(ticket);
  }

  // True when the peers have emptied all slots. Less would not do: if this process ends, GPI-2 at
  // the peer throws away what it has not read.
  bool sends_done() override {
    progress();
    bool all = true;
    for (Peer& peer : peers_) {
      if (!peer.failure.empty()) continue;
      if (peer.emptied != peer.told) give_credit(peer);
      all = all && peer.outbox.empty() && peer.posted == peer.credited && peer.emptied == peer.told;
    }
    return all;
  }

 private:
  static int own_index(const GaspiOptions& options) {
    const auto& members = options.members;
    return static_cast<int>(std::find(members.begin(), members.end(), options.rank) -
                            members.begin());
  }
  Peer& peer(int index) { return peers_.at(index); }
  Transfer& transfer(Ticket ticket) { return transfers_.at(ticket); }

  static bool is_waiting(const Transfer& transfer) {
    return transfer.kind == Transfer::Kind::send
               ? !transfer.sent
               : transfer.receive.state == Receive::State::waiting;
  }

  Ticket open(Transfer::Kind kind, int with) {
    if (free_.empty()) {
      free_.push_back(static_cast<Ticket>(transfers_.size()));
      transfers_.emplace_back();
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    Transfer& opened = transfer(ticket);
    opened = {};
    opened.kind = kind;
    opened.peer = peer(with).index;
    return ticket;
  }

  // Of a receive, nothing uses its buffer afterwards.
  void close(Ticket ticket) {
    Transfer& old = transfer(ticket);
    if (old.kind == Transfer::Kind::receive) peer(old.peer).inbox.cancel(old.receive);
    old.kind = Transfer::Kind::free;
    free_.push_back(ticket);
  }

  void progress() {
    take_notifications();
    for (Peer& peer : peers_) empty_slots(peer);
    const Clock::time_point now = Clock::now();
    for (Peer& peer : peers_) {
      post_what_fits(peer);
      const std::uint32_t untold = peer.emptied - peer.told;
      const bool credit_is_due =
          untold >= slots_ / 2 || (untold != 0 && now - peer.emptied_at > credit_delay);
      const bool waits = peer.inbox.waits() || !peer.outbox.empty() || peer.posted != peer.credited;
      const bool probe_is_due =
          waits && now - peer.posted_at > probe_interval && !segment_.is_busy();
      if (credit_is_due || probe_is_due) give_credit(peer);
    }
    if (segment_.purge(now)) find_failures();
  }

  // -- what comes in ------------------------------------------------------------------------------

  void take_notifications() {
    segment_.take([&](int rank, std::size_t slot) {
      Peer* const source = peer_of_rank_[rank];
      if (source == nullptr) return;
      if (slot == segment_.layout().credit())
        take_credit(*source, __atomic_load_n(credit(segment_.ring(rank, slot)), __ATOMIC_RELAXED));
      else
        source->filled[slot] = true;
    });
  }

  // Less than what is known already is old news.
  static void take_credit(Peer& peer, std::uint32_t emptied) {
    const std::uint32_t more = emptied - peer.credited;
    if (more <= peer.posted - peer.credited) peer.credited = emptied;
  }

  void empty_slots(Peer& peer) {
    while (peer.failure.empty() && peer.filled[peer.emptied % slots_]) {
      const std::size_t slot = peer.emptied % slots_;
      peer.filled[slot] = false;
      if (!deliver(peer, segment_.ring(peer.rank, slot))) return;
      if (peer.emptied++ == peer.told) peer.emptied_at = Clock::now();
    }
  }

  // False if it is not for this transport, or breaks the link.
  bool deliver(Peer& peer, const std::byte* slot) {
    Fragment fragment;
    std::memcpy(&fragment, slot, sizeof fragment);
    if (fragment.number != peer.emptied) return false;
    take_credit(peer, fragment.emptied);
    const auto taken =
        fragment.bytes > part_bytes_
            ? Inbox::Taken::nonsense
            : peer.inbox.take({fragment.channel, fragment.heading, fragment.message_bytes,
                               fragment.offset, slot + heading_bytes, fragment.bytes});
    if (taken == Inbox::Taken::nonsense) {
      fail(peer, "sent what makes no sense");
      return false;
    }
    if (taken == Inbox::Taken::part) return true;
    ++received_[peer.index];
    if (fragment.channel == notice_channel)
      notices_.push_back({peer.index, static_cast<std::uint32_t>(fragment.heading.operation),
                          peer.inbox.take_message(notice_channel)});
    return true;
  }

  // -- what goes out ------------------------------------------------------------------------------

  void post_what_fits(Peer& peer) {
    while (peer.failure.empty() && !peer.outbox.empty() && peer.posted - peer.credited < slots_ &&
           post(peer, peer.outbox.next(part_bytes_))) {
    }
  }

  // False: not now.
  bool post(Peer& peer, const Part& part) {
    // Before anything is copied.
    if (!segment_.has_room()) return false;
    const Fragment fragment{
        part.heading, part.message_bytes, part.offset, static_cast<std::uint32_t>(part.bytes),
        part.channel, peer.posted,        peer.emptied};
    const std::size_t slot = peer.posted % slots_;
    std::byte* const staging = segment_.staging(peer.rank, slot);
    std::memcpy(staging, &fragment, sizeof fragment);
    if (part.bytes != 0) std::memcpy(staging + heading_bytes, part.data, part.bytes);
    if (!check(peer, segment_.put(peer.rank, slot, heading_bytes + part.bytes))) return false;
    peer.outbox.pass(part);
    ++peer.posted;
    peer.told = fragment.emptied;
    peer.posted_at = Clock::now();
    return true;
  }

  // A credit that is still on its way may be overtaken by this one in the place where it lies.
  void give_credit(Peer& peer) {
    if (!peer.failure.empty()) return;
    const std::size_t slot = segment_.layout().credit();
    __atomic_store_n(credit(segment_.staging(peer.rank, slot)), peer.emptied, __ATOMIC_RELAXED);
    if (!check(peer, segment_.put(peer.rank, slot, sizeof peer.emptied))) return;
    peer.told = peer.emptied;
    peer.posted_at = Clock::now();
  }

  static std::uint32_t* credit(std::byte* slot) { return reinterpret_cast<std::uint32_t*>(slot); }
  static const std::uint32_t* credit(const std::byte* slot) {
    return reinterpret_cast<const std::uint32_t*>(slot);
  }

  bool check(Peer& peer, Segment::Posted posted) {
    if (posted == Segment::Posted::failed) fail(peer, "cannot be reached any more");
    return posted == Segment::Posted::yes;
  }

  // -- failures -----------------------------------------------------------------------------------

  void find_failures() {
    const std::vector<gaspi::State> states = segment_.states();
    for (Peer& peer : peers_)
      if (states[peer.rank] != gaspi::healthy) fail(peer, "cannot be reached any more");
  }

  // Called while its messages are looked at: they stay, but nothing looks at them any more.
  void fail(Peer& peer, const char* what) {
    if (!peer.failure.empty()) return;
    peer.failure = "rank " + std::to_string(peer.index) + " " + what + " over GASPI";
  }

  const int segment_number_;
  Segment segment_;
  const std::uint32_t slots_;
  const std::size_t part_bytes_;
  std::vector<Peer> peers_;
  std::vector<Peer*> peer_of_rank_;  // null: it has no part in this transport
  std::deque<Transfer> transfers_;   // stay where they are
  std::vector<Ticket> free_;
  std::deque<Notice> notices_;
};

}  // namespace

std::unique_ptr<Transport> make_gaspi_transport(const GaspiOptions& options) {
  GaspiOptions complete = options;
  if (complete.members.empty()) {
    complete.members.resize(options.hosts.size());
    std::iota(complete.members.begin(), complete.members.end(), 0);
  }
  return std::make_unique<GaspiTransport>(complete);
}

GaspiUse gaspi_use() { return Process::get().use(); }

bool gaspi_ports_are_free(const GaspiOptions& options) {
  return Process::get().ports_are_free(options);
}

}  // namespace tnt
