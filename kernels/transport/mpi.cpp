#include "transport/mpi.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <deque>

namespace tnt {
namespace {

// Longer messages go in pieces: MPI counts are ints.
constexpr std::size_t piece_bytes = std::size_t{1} << 30;

constexpr int notice_tag = 0;
constexpr int first_data_tag = 1;

template <class Handle>
struct Functions {
  int (*isend)(const void*, int, Handle, int, int, Handle, Handle*);
  int (*irecv)(void*, int, Handle, int, int, Handle, Handle*);
  int (*test)(Handle*, int*, void*);
  int (*wait)(Handle*, void*);
  int (*cancel)(Handle*);
  int (*test_cancelled)(const void*, int*);
  int (*get_count)(const void*, Handle, int*);
  int (*error_string)(int, char*, int*);

  explicit Functions(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) throw TransportError("MPI is not loaded in this process: " + path);
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) throw TransportError(std::string("MPI library without ") + name);
    };
    find(isend, "MPI_Isend");
    find(irecv, "MPI_Irecv");
    find(test, "MPI_Test");
    find(wait, "MPI_Wait");
    find(cancel, "MPI_Cancel");
    find(test_cancelled, "MPI_Test_cancelled");
    find(get_count, "MPI_Get_count");
    find(error_string, "MPI_Error_string");
    dlclose(library);  // only the reference taken here; mpi4py keeps its own
  }
};

template <class Handle>
class MpiTransport final : public Transport {
 public:
  MpiTransport(const MpiLibrary& library, std::uintptr_t communicator, int rank, int size)
      : mpi_(library.path),
        library_(library),
        communicator_(to_handle(communicator)),
        byte_(to_handle(library.byte_type)),
        null_(to_handle(library.null_request)),
        rank_(rank),
        status_(library.status_bytes),
        sent_(size),
        received_(size),
        notice_buffer_(header_bytes + max_notice_bytes) {
    post_notice_receive();
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(sent_.size()); }

  Ticket send(int peer, std::uint32_t tag, const void* data, std::size_t bytes) override {
    const Ticket ticket = open(Kind::send, peer, bytes);
    for (std::size_t at = 0; at == 0 || at < bytes; at += piece_bytes) {
      const int count = static_cast<int>(std::min(piece_bytes, bytes - at));
      Handle request = null_;
      check(mpi_.isend(static_cast<const std::byte*>(data) + at, count, byte_, peer, mpi_tag(tag),
                       communicator_, &request),
            "send to", peer);
      transfers_[ticket].pieces.push_back({request, count});
      ++sent_[peer];
    }
    return ticket;
  }

  Ticket receive(int peer, std::uint32_t tag, void* data, std::size_t bytes) override {
    const Ticket ticket = open(Kind::receive, peer, bytes);
    for (std::size_t at = 0; at == 0 || at < bytes; at += piece_bytes) {
      const int count = static_cast<int>(std::min(piece_bytes, bytes - at));
      Handle request = null_;
      check(mpi_.irecv(static_cast<std::byte*>(data) + at, count, byte_, peer, mpi_tag(tag),
                       communicator_, &request),
            "receive from", peer);
      transfers_[ticket].pieces.push_back({request, count});
    }
    return ticket;
  }

  bool done(Ticket ticket) override {
    Transfer& transfer = transfers_[ticket];
    while (transfer.next < transfer.pieces.size()) {
      Piece& piece = transfer.pieces[transfer.next];
      int flag = 0;
      const int code = mpi_.test(&piece.request, &flag, status_.data());
      if (code == 0 && flag == 0) return false;
      ++transfer.next;  // complete, if only with an error: a message too long is consumed as well
      if (transfer.kind == Kind::receive) ++received_[transfer.peer];
      check(code, transfer.kind == Kind::send ? "send to" : "receive from", transfer.peer);
      if (transfer.kind == Kind::receive) {
        int count = 0;
        check(mpi_.get_count(status_.data(), byte_, &count), "receive from", transfer.peer);
        if (count != piece.bytes)
          throw TransportError("rank " + std::to_string(transfer.peer) + " sent " +
                               std::to_string(count) + " bytes where " +
                               std::to_string(piece.bytes) + " were expected");
      }
    }
    transfer.kind = Kind::free;
    free_.push_back(ticket);
    return true;
  }

  void notify(int peer, std::uint32_t kind, const std::string& payload) override {
    reap_notices();
    OutgoingNotice& notice = outgoing_.emplace_back();
    notice.request = null_;
    notice.bytes.resize(header_bytes + std::min(payload.size(), max_notice_bytes));
    std::memcpy(notice.bytes.data(), &kind, header_bytes);
    std::memcpy(notice.bytes.data() + header_bytes, payload.data(),
                notice.bytes.size() - header_bytes);
    check(mpi_.isend(notice.bytes.data(), static_cast<int>(notice.bytes.size()), byte_, peer,
                     notice_tag, communicator_, &notice.request),
          "notify", peer);
    ++sent_[peer];
  }

  bool take_notice(Notice& notice) override {
    int flag = 0;
    check(mpi_.test(&notice_request_, &flag, status_.data()), "notice for", rank_);
    if (flag == 0) return false;
    int count = 0;
    check(mpi_.get_count(status_.data(), byte_, &count), "notice for", rank_);
    notice.source = status_source();
    std::memcpy(&notice.kind, notice_buffer_.data(), header_bytes);
    notice.payload.assign(notice_buffer_.data() + header_bytes,
                          static_cast<std::size_t>(count) - header_bytes);
    ++received_[notice.source];
    post_notice_receive();
    return true;
  }

  void cancel_receives() override {
    for (Transfer& transfer : transfers_) {
      if (transfer.kind != Kind::receive) continue;
      for (std::size_t i = transfer.next; i < transfer.pieces.size(); ++i)
        cancel(transfer.pieces[i].request, transfer.peer);
      transfer.next = transfer.pieces.size();
    }
    cancel(notice_request_, rank_);
  }

  bool sends_done() override {
    reap_notices();
    bool all = outgoing_.empty();
    for (Ticket ticket = 0; ticket < static_cast<Ticket>(transfers_.size()); ++ticket)
      if (transfers_[ticket].kind == Kind::send && !done(ticket)) all = false;
    return all;
  }

  std::vector<std::uint64_t> sent() const override { return sent_; }
  std::vector<std::uint64_t> received() const override { return received_; }

 private:
  static constexpr std::size_t header_bytes = sizeof(std::uint32_t);
  enum class Kind { free, send, receive };
  struct Piece {
    Handle request;
    int bytes;
  };
  struct Transfer {
    Kind kind = Kind::free;
    int peer = 0;
    std::vector<Piece> pieces;
    std::size_t next = 0;
  };
  struct OutgoingNotice {
    Handle request;
    std::vector<char> bytes;
  };

  static Handle to_handle(std::uintptr_t value) {
    Handle handle;
    std::memcpy(&handle, &value, sizeof handle);  // little endian: an int handle is the low half
    return handle;
  }

  int mpi_tag(std::uint32_t tag) const {
    return first_data_tag + static_cast<int>(tag % static_cast<std::uint32_t>(library_.tag_limit));
  }

  Ticket open(Kind kind, int peer, std::size_t bytes) {
    if (free_.empty()) {
      free_.push_back(static_cast<Ticket>(transfers_.size()));
      transfers_.emplace_back();
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    Transfer& transfer = transfers_[ticket];
    transfer.kind = kind;
    transfer.peer = peer;
    transfer.next = 0;
    transfer.pieces.clear();
    transfer.pieces.reserve(bytes / piece_bytes + 1);
    return ticket;
  }

  void post_notice_receive() {
    notice_request_ = null_;
    check(mpi_.irecv(notice_buffer_.data(), static_cast<int>(notice_buffer_.size()), byte_,
                     library_.any_source, notice_tag, communicator_, &notice_request_),
          "notice for", rank_);
  }

  void reap_notices() {
    while (!outgoing_.empty()) {
      int flag = 0;
      check(mpi_.test(&outgoing_.front().request, &flag, status_.data()), "notice from", rank_);
      if (flag == 0) return;
      outgoing_.pop_front();
    }
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
    check(mpi_.cancel(&request), "cancel of a receive from", peer);
    const int code = mpi_.wait(&request, status_.data());
    int cancelled = 0;
    if (code == 0) mpi_.test_cancelled(status_.data(), &cancelled);
    if (cancelled == 0) ++received_[code == 0 ? status_source() : peer];
    request = null_;
  }

  void check(int code, const char* what, int peer) const {
    if (code == 0) return;
    char text[1024] = {};  // MPI_MAX_ERROR_STRING is at most 512 in every implementation
    int length = 0;
    mpi_.error_string(code, text, &length);
    throw TransportError(std::string("MPI ") + what + " rank " + std::to_string(peer) +
                         " failed: " + text);
  }

  const Functions<Handle> mpi_;
  const MpiLibrary library_;
  const Handle communicator_, byte_, null_;
  const int rank_;
  mutable std::vector<std::byte> status_;
  std::vector<Transfer> transfers_;
  std::vector<Ticket> free_;
  std::vector<std::uint64_t> sent_, received_;
  std::vector<char> notice_buffer_;
  Handle notice_request_;
  std::deque<OutgoingNotice> outgoing_;
};

}  // namespace

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
