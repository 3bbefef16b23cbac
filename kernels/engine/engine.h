// Runs the schedules of all collectives under way, in any order.
//
//   caller --start()--> lane: [started] -> rounds of messages, reduces, copies -> ended
//
// A lane is a transport, the operations of its channels, and a thread. Whoever holds the lane's
// turn moves all its operations: a caller that waits does so itself (run()), because handing an
// operation to another thread costs more than a small one takes; the thread takes over when nobody
// waits (start()), or when a caller has waited long enough (TensorFlow's threads have better to
// do).
//
// done() may run a caller's long code (TensorFlow runs the graph's next nodes in it), so it is
// called on a thread of its own, never on one that holds a turn. After a failure an engine stays
// failed: every operation ends with the reason, and the caller builds a new engine when all ranks
// are ready for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collective/select.h"
#include "engine/bucket.h"
#include "engine/trace.h"
#include "transport/transport.h"

namespace tnt {

class Engine {
 public:
  // One transport for each lane: channel c is moved by lane c % lanes. node[r] is the number of
  // rank r's node. An operation that waits longer than timeout_s for one message fails.
  Engine(std::vector<std::unique_ptr<Transport>> transports, std::vector<int> node,
         double timeout_s);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return world_->index; }
  int size() const { return world_->size(); }
  int lanes() const { return static_cast<int>(lanes_.size()); }
  Trace& trace() { return trace_; }
  void set_timeout(double timeout_s) { timeout_s_ = timeout_s; }

  // Which algorithm for which collective; the same on all ranks, and only while nothing is under
  // way.
  void set_rules(std::vector<Rule> rules);

  const Group& world() const { return *world_; }

  // Some of the ranks, this one among them; find_group() has it by its number, which is above 0.
  void add_group(int number, std::vector<int> ranks);
  std::shared_ptr<const Group> find_group(int number) const;  // 0, the world, is null

  // The bucket of a channel, marked busy: its request is the caller's to fill. Throws
  // std::logic_error if an operation is under way on it: a channel carries one at a time.
  Bucket& take(std::uint32_t channel);
  void release(Bucket& bucket);

  // Calls begin() with the channel's bucket, marked busy, when those that asked before have ended:
  // now, or on the thread that releases it. With null if the engine has failed by then.
  void take_in_turn(std::uint32_t channel, std::function<void(Bucket*)> begin);
  bool is_busy(std::uint32_t channel) const;

  // Memory of the bucket that operations in place work on; it stays where it is as long as no more
  // is asked for. forget() gives it back, with all that the channel keeps.
  std::byte* memory(Bucket& bucket, std::size_t bytes);
  void forget(std::uint32_t channel);

  // Starts bucket.request and returns; done() is called once, with the bucket released. Throws, the
  // bucket released and nothing started, if the request cannot be carried out.
  void start(Bucket& bucket, Done done);

  // As start(), and moves the operation itself as long as others are quick, at most for `limit` (0:
  // as far as it comes without waiting). done() may be called on this thread, before this returns.
  void start_and_help(Bucket& bucket, Done done, std::chrono::nanoseconds limit);

  // begin(), then help() until it says true: a call that waits. finish() gives the outcome, and
  // releases the bucket.
  void begin(Bucket& bucket);
  bool help(Bucket& bucket, std::chrono::nanoseconds limit);
  Failure finish(Bucket& bucket);

  // Sends a notice to one rank. Kinds below first_user_kind are the engine's own.
  static constexpr std::uint32_t first_user_kind = 16;
  void notify(int peer, std::uint32_t kind, std::string payload);
  bool take_notice(Notice& notice);

  // What is said of each rank that has died: "on node3".
  void set_places(std::vector<std::string> places);

  // Fails all operations, here and on all other ranks, now and later. The first reason stays.
  void abort(const std::string& reason);
  Failure failure() const;

  // Stops the threads; what is under way fails. Then each lane's transport can be drained.
  void close();
  Transport& transport(int lane) { return *lanes_.at(lane)->transport; }

 private:
  // Why all must fail; of a stalled rank, who may wait for one that waits itself.
  static constexpr std::uint32_t abort_kind = 1, stalled_kind = 2;

  struct Lane {
    explicit Lane(std::unique_ptr<Transport> moved) : transport(std::move(moved)) {}
    std::unique_ptr<Transport> transport;
    std::mutex turn;  // to call the transport, and for what follows up to the next blank line
    std::vector<Bucket*> active;
    std::uint64_t notices_looked_ns = 0;
    std::atomic<bool> failed{false};  // its operations have been told

    void take_started() {
      std::lock_guard lock(mutex);
      active.insert(active.end(), started.begin(), started.end());
      started.clear();
    }

    std::mutex mutex;  // of what follows
    std::vector<Bucket*> started;
    std::atomic<int> pending{0};  // operations started and not ended
    Doorbell work;                // for the thread, while there is none
    Doorbell ended;               // for callers that wait while another has the turn
    std::thread thread;
  };

  Bucket& take_locked(std::uint32_t channel);
  Lane& lane_of(const Bucket& bucket) { return *lanes_[bucket.channel % lanes_.size()]; }
  void prepare(Bucket& bucket);
  const Plan& plan(Bucket& bucket);
  bool submit(Bucket& bucket, Bucket::State state);
  bool move(Lane& lane);
  void move_operations(Lane& lane, bool& progressed);
  void look_after_notices(Lane& lane);
  void send_notices(Lane& lane);
  void take_notices(Lane& lane);
  std::string obituary(const PeerDied& death) const;
  void fail(Failure failure, std::uint32_t tell_as);  // 0: the others need not be told
  void fail_operations(Lane& lane);
  void end(Lane& lane, Bucket& bucket, const Failure& failure);
  void call_done(Bucket& bucket);
  void wake(Lane& lane);
  void progress(Lane& lane);
  void complete();

  std::atomic<double> timeout_s_;
  std::shared_ptr<Group> world_;
  Trace trace_;
  std::vector<Rule> rules_;
  std::vector<std::unique_ptr<Lane>> lanes_;

  mutable std::mutex mutex_;                      // guards what follows up to the next blank line
  std::vector<std::pair<int, Notice>> outgoing_;  // target, notice
  std::deque<Notice> inbox_;
  std::map<std::uint32_t, std::unique_ptr<Bucket>> buckets_;
  std::vector<std::unique_ptr<Bucket>> abandoned_;  // after a failure
  std::map<int, std::shared_ptr<const Group>> groups_;
  std::vector<std::string> places_;
  Failure failure_;
  std::uint32_t tell_as_ = 0;

  std::atomic<bool> failed_{false}, closing_{false}, has_outgoing_{false};

  std::mutex completion_mutex_;
  std::condition_variable completion_wake_;
  std::vector<Bucket*> completed_;
  bool completion_closing_ = false;
  std::thread completion_thread_;
};

}  // namespace tnt
