// Weights that all ranks serve to each other: a parameter server without a machine of its own.
//
//   rank's step:  update --send()--> each rank adds its part of it to that part of the weights
//                 weights <--take()-- each rank answers with its part, as soon as no rank lacks
//                                     more than `staleness` of the updates that the asker has sent
//
// Each rank serves one of as many parts as there are ranks, on the threads of the engine: it
// answers whatever else the rank computes. Ho et al., Stale Synchronous Parallel, NeurIPS 2013; in
// parts as of Li et al., Parameter Server, OSDI 2014.
#pragma once

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/engine.h"

namespace tnt {

class Server : public std::enable_shared_from_this<Server> {
 public:
  // For `count` weights. It takes four channels for each rank, from its first. `group`: null for
  // all ranks.
  Server(const std::shared_ptr<Engine>& engine, std::shared_ptr<const Group> group,
         std::uint32_t first_channel, std::size_t count, std::int64_t staleness, std::string label);

  // Serves this rank's part of these weights, which are the same on all ranks. Once.
  void begin(const float* weights);

  // Sends an update of all weights to those who serve them, after the last answer has been taken.
  // The owner keeps its memory.
  void send(const float* update, std::shared_ptr<const void> owner);

  // Calls done() when all weights have come in answer to what was sent, which answer() then has.
  void take(Done done);
  const float* answer() const { return answer_.data(); }

  // How many updates of this rank's count lacked from the slowest rank in some part of the answer.
  std::int64_t behind() const { return behind_; }

  // Sends no more, and calls done() when no rank does: then part() is as it stays.
  void leave(Done done);
  const std::vector<float>& part() const { return part_; }

  bool is_of(const std::shared_ptr<Engine>& engine) const { return engine_.lock() == engine; }

 private:
  // Numbers before the weights of a message, as large as two of them.
  using Head = std::int64_t;
  static constexpr Head leaves = -1;
  static constexpr Head left_clock = std::numeric_limits<Head>::max();

  // Another rank, or this one, as it is served here. When it has its next update is its own affair,
  // until an answer to another one waits for it.
  struct Client final : Patience {
    Head clock = 0;  // updates that have come
    bool asks = false;
    Head head_in = 0, head_out = 0;
    std::vector<float> update, weights;  // on the way here, and there
    std::atomic<std::uint64_t> missed_since{0};

    std::uint64_t missed_since_ns() const override { return missed_since; }
  };

  enum class Way { update, answer };
  std::size_t begin_of(int rank) const { return count_ * rank / among_->size(); }
  std::size_t size_of_part(int rank) const { return begin_of(rank + 1) - begin_of(rank); }
  int self() const { return among_->index; }
  Request message(int from, int to, Way way) const;
  void start(int from, int to, Way way, Request request, Done done);
  void give(int to, Way way, const Head& head, const float* data, Done done);
  void get(int from, Way way, Head& head, float* data, Done done);
  Done unless_failed(std::shared_ptr<const void> owner);
  void expect(int client);
  void came(int client, Head head, const float* update);
  std::vector<int> answerable();
  void miss(Head slowest);
  void answered(Head behind);
  void fail(const Failure& failure);

  const std::weak_ptr<Engine> engine_;
  const std::shared_ptr<const Group> group_;
  std::shared_ptr<const Group> among_;  // the group, or the world
  const std::uint32_t first_channel_;
  const std::size_t count_;
  const std::int64_t staleness_;
  const std::string label_;

  // What this rank has sent and been answered.
  Head clock_ = 0;
  std::vector<Head> heads_;  // of the answers, by rank
  std::vector<float> answer_;
  std::int64_t behind_ = 0;

  std::mutex mutex_;  // of what follows
  std::vector<Client> clients_;
  std::vector<float> part_;
  std::size_t left_ = 0;        // clients
  std::size_t unanswered_ = 0;  // parts of the answer
  Done taking_, leaving_;
  Failure failure_;
};

}  // namespace tnt
