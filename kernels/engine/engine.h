// The progress thread: runs the schedules of all collectives under way, in any order.
//
//   any thread --start()--> [incoming] --> progress thread: rounds of sends, receives, reduces
//                                              |  finished
//                                              v
//                                          completion thread: done(status), the caller's code
//
// done() may run a caller's long code (TensorFlow runs the graph's next nodes in it), which is why
// it has a thread of its own. After a failure an engine stays failed: every operation ends with
// the reason, and the caller builds a new engine when all ranks are ready for it.
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

#include "collective/schedule.h"
#include "engine/buffer.h"
#include "engine/execution.h"
#include "engine/trace.h"
#include "transport/transport.h"

namespace tnt {

// What a channel keeps between steps. It is the engine's, so that messages under way never point
// into memory that a failed caller has freed.
struct Bucket {
  Buffer data, scratch;
  Schedule schedule;
  std::vector<std::size_t> schedule_key;  // what `schedule` was made for
  bool busy = false;
};

class Engine {
 public:
  // An operation that waits longer than timeout_s for one message fails.
  Engine(std::unique_ptr<Transport> transport, double timeout_s);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Trace& trace() { return trace_; }
  void set_timeout(double timeout_s) { timeout_s_ = timeout_s; }

  // The bucket of a channel, marked busy. Throws std::logic_error if an operation is under way on
  // it: a channel carries one collective at a time.
  Bucket& take_bucket(std::uint32_t channel);
  void release_bucket(std::uint32_t channel);

  // From any thread; done() is called exactly once: on the caller's thread if the engine is closed.
  void start(Operation operation);

  // Sends a notice to one rank. Kinds below first_user_kind are the engine's own.
  static constexpr std::uint32_t first_user_kind = 16;
  void notify(int peer, std::uint32_t kind, std::string payload);
  bool take_notice(Notice& notice);

  // Fails all operations, here and on all other ranks, now and later. The first reason stays.
  void abort(const std::string& reason);
  Failure failure() const;

  // Stops the threads; what is under way fails. Then the transport can be drained.
  void close();
  Transport& transport() { return *transport_; }

 private:
  static constexpr std::uint32_t abort_kind = 1;

  void progress();
  void complete();
  bool advance_all();
  void take_notices();
  void fail(const std::string& reason, bool tell_peers);
  void finish(Done done, Failure failure);

  const std::unique_ptr<Transport> transport_;
  std::atomic<double> timeout_s_;
  const int rank_, size_;
  Trace trace_;

  mutable std::mutex mutex_;  // guards what follows up to the next blank line
  std::condition_variable wake_;
  std::vector<Operation> incoming_;
  std::vector<std::pair<int, Notice>> outgoing_;  // target, notice
  std::deque<Notice> inbox_;
  std::map<std::uint32_t, Bucket> buckets_;
  Failure failure_, abort_request_;
  bool closing_ = false;

  std::mutex completion_mutex_;
  std::condition_variable completion_wake_;
  std::deque<std::pair<Done, Failure>> completed_;
  bool completion_closing_ = false;

  std::vector<std::unique_ptr<Execution>> active_;  // progress thread only
  std::thread progress_thread_, completion_thread_;
};

}  // namespace tnt
