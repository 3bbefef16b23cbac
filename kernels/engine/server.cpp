#include "engine/server.h"

#include <algorithm>

#include "engine/transfer.h"

namespace tnt {
namespace {

constexpr std::size_t head_count = sizeof(std::int64_t) / sizeof(float);

// Of an answer: who is too slow for it is missed by the ranks that would give it.
struct AsLongAsItTakes final : Patience {
  std::uint64_t missed_since_ns() const override { return 0; }
} const as_long_as_it_takes;

void call(Done& waiting, const Failure& failure) {
  if (waiting) waiting(failure);
}

}  // namespace

Server::Server(const std::shared_ptr<Engine>& engine, std::shared_ptr<const Group> group,
               std::uint32_t first_channel, std::size_t count, std::int64_t staleness,
               std::string label)
    : engine_(engine),
      group_(std::move(group)),
      among_(group_ != nullptr ? group_ : std::make_shared<const Group>(engine->world())),
      first_channel_(first_channel),
      count_(count),
      staleness_(staleness),
      label_(std::move(label)),
      heads_(among_->size()),
      answer_(count),
      clients_(among_->size()) {}

void Server::begin(const float* weights) {
  part_.assign(weights + begin_of(self()), weights + begin_of(self() + 1));
  for (Client& client : clients_) {
    client.update.resize(part_.size());
    client.weights.resize(part_.size());
  }
  for (int rank = 0; rank < among_->size(); ++rank)
    if (rank != self()) expect(rank);
}

Request Server::message(int from, int to, Way way) const {
  Request request;
  request.collective = Collective::broadcast;
  request.type = request.wire = Type::int32;  // bits as they are
  request.group = group_;
  request.root = from;
  request.count = head_count + size_of_part(way == Way::update ? to : from);
  request.schedule = transfer(*among_, from, to, request.count);
  request.is_transfer = true;
  request.peer = from == self() ? to : from;
  if (to == self())
    request.patience =
        way == Way::update ? static_cast<const Patience*>(&clients_[from]) : &as_long_as_it_takes;
  request.label = (way == Way::update ? "an update to " : "the answer of ") + label_;
  return request;
}

// Two ranks have four channels between them: each sends updates, and each answers. For one rank
// their numbers are others with each other rank.
void Server::start(int from, int to, Way way, Request request, Done done) {
  const auto engine = engine_.lock();
  if (engine == nullptr) return done({"communication is closed"});
  const int ranks = among_->size(), kind = (way == Way::answer ? 2 : 0) + (from < to ? 0 : 1);
  post(engine, first_channel_ + kind * ranks + (from + to) % ranks, std::move(request),
       std::move(done));
}

void Server::give(int to, Way way, const Head& head, const float* data, Done done) {
  Request request = message(self(), to, way);
  request.inputs.add(reinterpret_cast<const std::byte*>(&head), head_count);
  request.inputs.add(reinterpret_cast<const std::byte*>(data), request.count - head_count);
  start(self(), to, way, std::move(request), std::move(done));
}

void Server::get(int from, Way way, Head& head, float* data, Done done) {
  Request request = message(from, self(), way);
  request.outputs.add(reinterpret_cast<std::byte*>(&head), head_count);
  request.outputs.add(reinterpret_cast<std::byte*>(data), request.count - head_count);
  start(from, self(), way, std::move(request), std::move(done));
}

void Server::expect(int rank) {
  Client& client = clients_[rank];
  get(rank, Way::update, client.head_in, client.update.data(),
      [server = shared_from_this(), rank, &client](const Failure& failure) {
        if (!failure.empty()) return server->fail(failure);
        server->came(rank, client.head_in, client.update.data());
      });
}

void Server::came(int rank, Head head, const float* update) {
  std::vector<int> ready;
  Done all_left;
  {
    std::lock_guard lock(mutex_);
    Client& client = clients_[rank];
    client.missed_since = 0;
    if (head == leaves) {
      client.clock = left_clock;
      if (++left_ == clients_.size()) all_left.swap(leaving_);
    } else {
      for (std::size_t i = 0; i < part_.size(); ++i) part_[i] += update[i];
      client.clock = head;
      client.asks = true;
    }
    ready = answerable();
  }
  // Before the answer, after which the next one comes.
  if (rank != self() && head != leaves) expect(rank);
  for (const int other : ready) {
    const Client& client = clients_[other];
    if (other == self()) {
      std::copy(client.weights.begin(), client.weights.end(), answer_.begin() + begin_of(other));
      answered(client.head_out);
    } else {
      give(other, Way::answer, client.head_out, client.weights.data(), unless_failed({}));
    }
  }
  call(all_left, {});
}

// Those whose answer waits no longer, and what it is. Under the lock.
std::vector<int> Server::answerable() {
  const auto earlier = [](const Client& a, const Client& b) { return a.clock < b.clock; };
  const Head slowest = std::min_element(clients_.begin(), clients_.end(), earlier)->clock;
  std::vector<int> ready;
  for (int rank = 0; rank < among_->size(); ++rank) {
    Client& client = clients_[rank];
    if (!client.asks || client.clock - slowest > staleness_) continue;
    client.asks = false;
    client.head_out = client.clock - slowest;
    client.weights = part_;
    ready.push_back(rank);
  }
  miss(slowest);
  return ready;
}

// Those for which an answer waits, and, when this rank leaves, those that have not; since they were
// last heard of.
void Server::miss(Head slowest) {
  const bool waits = std::any_of(clients_.begin(), clients_.end(),
                                 [](const Client& client) { return client.asks; });
  for (Client& client : clients_) {
    const bool here = client.clock != left_clock;
    if (!here || !(leaving_ || (waits && client.clock == slowest)))
      client.missed_since = 0;
    else if (client.missed_since == 0)
      client.missed_since = now_ns();
  }
}

void Server::answered(Head behind) {
  Done taking;
  {
    std::lock_guard lock(mutex_);
    behind_ = std::max(behind_, behind);
    if (--unanswered_ == 0) taking.swap(taking_);
  }
  call(taking, {});
}

void Server::fail(const Failure& failure) {
  Done taking, leaving;
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = failure;
    taking.swap(taking_);
    leaving.swap(leaving_);
  }
  call(taking, failure);
  call(leaving, failure);
}

// Of a message that is given, whose memory lives until then.
Done Server::unless_failed(std::shared_ptr<const void> owner) {
  return [server = shared_from_this(), owner = std::move(owner)](const Failure& failure) {
    if (!failure.empty()) server->fail(failure);
  };
}

void Server::send(const float* update, std::shared_ptr<const void> owner) {
  {
    std::lock_guard lock(mutex_);
    ++clock_;
    unanswered_ = clients_.size();
    behind_ = 0;
  }
  const auto server = shared_from_this();
  for (int rank = 0; rank < among_->size(); ++rank) {
    if (rank == self()) continue;
    get(rank, Way::answer, heads_[rank], answer_.data() + begin_of(rank),
        [server, rank](const Failure& failure) {
          failure.empty() ? server->answered(server->heads_[rank]) : server->fail(failure);
        });
    give(rank, Way::update, clock_, update + begin_of(rank), unless_failed(owner));
  }
  came(self(), clock_, update + begin_of(self()));
}

void Server::take(Done done) {
  Failure failure;
  {
    std::lock_guard lock(mutex_);
    failure = failure_;
    if (failure.empty() && unanswered_ != 0) {
      taking_ = std::move(done);
      return;
    }
  }
  done(failure);
}

void Server::leave(Done done) {
  static constexpr Head left = leaves;
  Failure failure;
  {
    std::lock_guard lock(mutex_);
    failure = failure_;
    if (failure.empty()) leaving_ = std::move(done);
  }
  if (!failure.empty()) return done(failure);
  for (int rank = 0; rank < among_->size(); ++rank)
    if (rank != self())
      give(rank, Way::update, left, answer_.data() + begin_of(rank), unless_failed({}));
  came(self(), leaves, nullptr);
}

}  // namespace tnt
