#include "transport/mpi.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "transport/mpi_functions.h"

namespace tnt {
namespace {

// Large payloads go in pieces that Open MPI and MPICH send over TCP at once. What is larger they
// announce, and send in parts as the receiver asks for them: what it asks for queues behind what it
// sends itself, so that a link that could carry both directions carries one at a time. A receiver
// that is late finds the pieces in memory of MPI: no more than its part of the collective.
constexpr std::size_t piece_bytes = std::size_t{60} << 10;

// How long a link may be broken before MPI says that its rank has died.
constexpr auto death_limit = std::chrono::seconds(1);

constexpr int notice_tag = 0;
constexpr int first_channel_tag = 1;
constexpr int first_payload_tag = first_channel_tag + static_cast<int>(Transport::max_channels);
// As many large messages may be under way between two ranks. The standard guarantees tags up to
// 32767; every MPI tried has at least 2^19.
constexpr int least_payload_tags = 512;

template <class Handle>
class MpiTransport final : public Transport {
 public:
  MpiTransport(const MpiLibrary& library, std::uintptr_t communicator, int rank, int size)
      : Transport(rank, size),
        mpi_(library.path),
        library_(library),
        communicator_(to_handle(communicator)),
        byte_(to_handle(library.byte_type)),
        null_(to_handle(library.null_request)),
        status_(library.status_bytes),
        payload_tags_(library.tag_limit - first_payload_tag + 1),
        notice_buffer_(header_bytes + max_notice_bytes) {
    if (payload_tags_ < least_payload_tags)
      throw TransportError("this MPI library has only " + std::to_string(library.tag_limit) +
                           " message tags");
    post_notice_receive();
  }

  Ticket send(int peer, std::uint32_t channel, const Heading& heading, const void* data,
              std::size_t bytes) override {
    const auto turn = take_turn();
    const Ticket ticket = open(Kind::send, peer, heading, const_cast<void*>(data), bytes);
    Transfer& transfer = at(ticket);
    const bool small = bytes <= eager_bytes;
    const Envelope envelope{heading, bytes, small ? 0 : next_payload_tag()};
    std::memcpy(transfer.front.get(), &envelope, sizeof envelope);
    if (small && bytes != 0) std::memcpy(transfer.front.get() + sizeof envelope, data, bytes);
    post(transfer, transfer.front.get(), sizeof envelope + (small ? bytes : 0), tag_of(channel));
    if (!small) post_payload(transfer, envelope.payload_tag);
    return ticket;
  }

  Ticket receive(int peer, std::uint32_t channel, const Heading& heading, void* data,
                 std::size_t bytes) override {
    const auto turn = take_turn();
    const Ticket ticket = open(Kind::receive, peer, heading, data, bytes);
    Transfer& transfer = at(ticket);
    // Room for any front, or MPI would not say what came instead.
    post(transfer, transfer.front.get(), sizeof(Envelope) + eager_bytes, tag_of(channel));
    return ticket;
  }

  bool done(Ticket ticket) override {
    const auto turn = take_turn();
    Transfer& transfer = at(ticket);
    const bool receives = transfer.kind == Kind::receive;
    while (transfer.next < transfer.requests.size()) {
      int flag = 0;
      const int code = mpi_.Test(&transfer.requests[transfer.next], &flag, status_.data());
      if (code == 0 && flag == 0) return false;
      const bool is_front = transfer.next++ == 0;
      if (receives) ++received_[transfer.peer];
      check(code, receives ? "receive from" : "send to", transfer.peer);
      if (receives && is_front) open_front(transfer);
    }
    transfer.kind = Kind::free;
    free_.push_back(ticket);
    return true;
  }

  void notify(int peer, std::uint32_t kind, const std::string& payload) override {
    const auto turn = take_turn();
    reap_notices();
    OutgoingNotice& notice = outgoing_.emplace_back();
    notice.request = null_;
    notice.bytes.resize(header_bytes + std::min(payload.size(), max_notice_bytes));
    std::memcpy(notice.bytes.data(), &kind, header_bytes);
    std::memcpy(notice.bytes.data() + header_bytes, payload.data(),
                notice.bytes.size() - header_bytes);
    check(mpi_.Isend(notice.bytes.data(), static_cast<int>(notice.bytes.size()), byte_, peer,
                     notice_tag, communicator_, &notice.request),
          "notify", peer);
    ++sent_[peer];
  }

  bool take_notice(Notice& notice) override {
    const auto turn = take_turn();
    int flag = 0;
    check(mpi_.Test(&notice_request_, &flag, status_.data()), "notice for", rank_);
    if (flag == 0) return false;
    int count = 0;
    check(mpi_.Get_count(status_.data(), byte_, &count), "notice for", rank_);
    notice.source = status_source();
    std::memcpy(&notice.kind, notice_buffer_.data(), header_bytes);
    notice.payload.assign(notice_buffer_.data() + header_bytes,
                          static_cast<std::size_t>(count) - header_bytes);
    ++received_[notice.source];
    post_notice_receive();
    return true;
  }

  void cancel_receives() override {
    const auto turn = take_turn();
    for (Transfer& transfer : transfers_) {
      if (transfer.kind != Kind::receive) continue;
      for (std::size_t i = transfer.next; i < transfer.requests.size(); ++i)
        cancel(transfer.requests[i], transfer.peer);
      transfer.next = transfer.requests.size();
    }
    cancel(notice_request_, rank_);
  }

  bool notices_done() override {
    const auto turn = take_turn();
    reap_notices();
    return outgoing_.empty();
  }

  // A send that has failed is done, too: nothing leaves its memory any more.
  bool sends_done() override {
    const auto turn = take_turn();
    bool all = notices_done();
    for (Ticket ticket = 0; ticket < static_cast<Ticket>(transfers_.size()); ++ticket) {
      Transfer& transfer = at(ticket);
      if (transfer.kind != Kind::send) continue;
      while (transfer.next < transfer.requests.size() && over(transfer.requests[transfer.next]))
        ++transfer.next;
      if (transfer.next < transfer.requests.size()) {
        all = false;
      } else {
        transfer.kind = Kind::free;
        free_.push_back(ticket);
      }
    }
    return all;
  }

 private:
  static constexpr std::size_t header_bytes = sizeof(std::uint32_t);
  enum class Kind { free, send, receive };
  struct Envelope {
    Heading heading;
    std::uint64_t bytes;
    int payload_tag;
  };
  // A message is a front: an envelope, with the payload behind it if that is small. A large payload
  // follows in pieces, from and to where it lies, under a tag of its own. It is received only once
  // the envelope is known to match: Open MPI 5 writes past the end of a receive that is too small
  // for what comes over shared memory.
  struct Transfer {
    Kind kind = Kind::free;
    int peer = 0;
    Heading heading;
    std::size_t bytes = 0;
    void* data = nullptr;
    std::unique_ptr<std::byte[]> front;
    std::vector<Handle> requests;
    std::size_t next = 0;
  };
  static constexpr std::size_t eager_bytes = 8192;
  struct OutgoingNotice {
    Handle request;
    std::vector<char> bytes;
  };

  static Handle to_handle(std::uintptr_t value) {
    Handle handle;
    std::memcpy(&handle, &value, sizeof handle);  // little endian: an int handle is the low half
    return handle;
  }

  static int tag_of(std::uint32_t channel) { return first_channel_tag + static_cast<int>(channel); }

  int next_payload_tag() {
    payload_tag_ = (payload_tag_ + 1) % payload_tags_;
    return first_payload_tag + payload_tag_;
  }

  Transfer& at(Ticket ticket) { return transfers_[ticket]; }

  Ticket open(Kind kind, int peer, const Heading& heading, void* data, std::size_t bytes) {
    if (free_.empty()) {
      free_.push_back(static_cast<Ticket>(transfers_.size()));
      transfers_.emplace_back().front.reset(new std::byte[sizeof(Envelope) + eager_bytes]);
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    Transfer& transfer = at(ticket);
    transfer.kind = kind;
    transfer.peer = peer;
    transfer.heading = heading;
    transfer.data = data;
    transfer.bytes = bytes;
    transfer.next = 0;
    transfer.requests.clear();
    return ticket;
  }

  void post(Transfer& transfer, void* data, std::size_t bytes, int tag) {
    Handle& request = transfer.requests.emplace_back(null_);
    const int count = static_cast<int>(bytes), peer = transfer.peer;
    if (transfer.kind == Kind::receive)
      return check(mpi_.Irecv(data, count, byte_, peer, tag, communicator_, &request),
                   "receive from", peer);
    check(mpi_.Isend(data, count, byte_, peer, tag, communicator_, &request), "send to", peer);
    ++sent_[peer];
  }

  void post_payload(Transfer& transfer, int tag) {
    for (std::size_t begin = 0; begin < transfer.bytes; begin += piece_bytes)
      post(transfer, static_cast<std::byte*>(transfer.data) + begin,
           std::min(piece_bytes, transfer.bytes - begin), tag);
  }

  void open_front(Transfer& transfer) {
    Envelope envelope;
    std::memcpy(&envelope, transfer.front.get(), sizeof envelope);
    if (!(envelope.heading == transfer.heading) || envelope.bytes != transfer.bytes)
      throw Mismatch(transfer.peer, envelope.heading, static_cast<std::size_t>(envelope.bytes));
    if (transfer.bytes > eager_bytes)
      post_payload(transfer, envelope.payload_tag);
    else if (transfer.bytes != 0)
      std::memcpy(transfer.data, transfer.front.get() + sizeof envelope, transfer.bytes);
  }

  // Holds nothing where any thread may call MPI.
  std::unique_lock<std::recursive_mutex> take_turn() const {
    return library_.multiple ? std::unique_lock<std::recursive_mutex>()
                             : std::unique_lock<std::recursive_mutex>(mpi_turn());
  }

  void post_notice_receive() {
    notice_request_ = null_;
    check(mpi_.Irecv(notice_buffer_.data(), static_cast<int>(notice_buffer_.size()), byte_,
                     library_.any_source, notice_tag, communicator_, &notice_request_),
          "notice for", rank_);
  }

  // To a rank that has died none leaves; others may hear of it all the same.
  void reap_notices() {
    while (!outgoing_.empty() && over(outgoing_.front().request)) outgoing_.pop_front();
  }

  // Whether a request has ended, well or badly.
  bool over(Handle& request) {
    int flag = 0;
    return mpi_.Test(&request, &flag, status_.data()) != 0 || flag != 0;
  }

  int status_source() const {
    int source = 0;
    std::memcpy(&source, status_.data() + library_.status_source_at, sizeof source);
    return source;
  }

  // A receive that is given up completes at once: cancelled, or with its message after all, which
  // may be one that is too long for it. A message that has come must not be drained again.
  void cancel(Handle& request, int peer) {
    if (std::memcmp(&request, &null_, sizeof(Handle)) == 0) return;
    mpi_.Cancel(&request);  // of one that has failed there is nothing to cancel
    const int code = mpi_.Wait(&request, status_.data());
    int cancelled = 0;
    if (code == 0) mpi_.Test_cancelled(status_.data(), &cancelled);
    if (cancelled == 0) ++received_[code == 0 ? status_source() : peer];
    request = null_;
  }

  void check(int code, const char* what, int peer) const {
    if (code == 0) return;
    char text[1024] = {};  // MPI_MAX_ERROR_STRING is at most 512 in every implementation
    int length = 0;
    mpi_.Error_string(code, text, &length);
    const std::string problem =
        std::string("MPI ") + what + " rank " + std::to_string(peer) + " failed: " + text;
    // Also a call that has nothing to do with the rank may hear of its death first; and a
    // connection may break before MPI hears why.
    const auto deadline = std::chrono::steady_clock::now() + death_limit;
    while (survives()) {
      const int dead = first_dead();
      if (dead != -1) throw PeerDied(dead);
      if (std::chrono::steady_clock::now() > deadline) break;
      int flag = 0;  // any call moves MPI
      mpi_.Iprobe(rank_, notice_tag, communicator_, &flag, status_.data());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    throw TransportError(problem);
  }

  // Whether this MPI library outlives the death of a rank.
  bool survives() const { return mpi_.failure_ack != nullptr && mpi_.failure_get_acked != nullptr; }

  // A rank that MPI knows to have died, or -1.
  int first_dead() const {
    Handle dead = null_, all = null_;
    int count = 0, rank = -1;
    mpi_.failure_ack(communicator_);
    if (mpi_.failure_get_acked(communicator_, &dead) != 0) return -1;
    const int first = 0;
    if (mpi_.Group_size(dead, &count) == 0 && count != 0 &&
        mpi_.Comm_group(communicator_, &all) == 0) {
      if (mpi_.Group_translate_ranks(dead, 1, &first, all, &rank) != 0) rank = -1;
      mpi_.Group_free(&all);
    }
    if (count != 0) mpi_.Group_free(&dead);  // the empty group is not to be freed
    return rank;
  }

  const MpiFunctions<Handle> mpi_;
  const MpiLibrary library_;
  const Handle communicator_, byte_, null_;
  mutable std::vector<std::byte> status_;
  std::vector<Transfer> transfers_;
  std::vector<Ticket> free_;
  const int payload_tags_;
  int payload_tag_ = 0;  // of the last large message, from first_payload_tag on
  std::vector<char> notice_buffer_;
  Handle notice_request_;
  std::deque<OutgoingNotice> outgoing_;
};

}  // namespace

std::recursive_mutex& mpi_turn() {
  static auto* instance = new std::recursive_mutex;
  return *instance;
}

std::unique_ptr<Transport> make_mpi_transport(const MpiLibrary& library,
                                              std::uintptr_t communicator, int rank, int size) {
  if (library.handle_bytes == sizeof(void*))
    return std::make_unique<MpiTransport<void*>>(library, communicator, rank, size);
  if (library.handle_bytes == sizeof(int))
    return std::make_unique<MpiTransport<int>>(library, communicator, rank, size);
  throw TransportError("MPI handles of " + std::to_string(library.handle_bytes) +
                       " bytes are not known");
}

}  // namespace tnt
