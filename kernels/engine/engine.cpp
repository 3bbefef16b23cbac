#include "engine/engine.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>

namespace tnt {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How often an idle engine looks for notices.
constexpr auto idle_poll = milliseconds(10);

// How long close() waits for the last notices to leave, an abort among them.
constexpr auto flush_limit = milliseconds(500);

// Waiting for a message: a few pauses, then the core is given away, then the thread sleeps, so
// that a rank that waits does not steal the time of one that computes on the same core.
class Backoff {
 public:
  void reset() { idle_ = 0; }
  void wait() {
    ++idle_;
    if (idle_ <= pauses) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else if (idle_ <= yields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(microseconds(idle_ <= short_naps ? 20 : 100));
    }
  }

 private:
  static constexpr int pauses = 20, yields = 200, short_naps = 2000;
  int idle_ = 0;
};

// Signals belong to the interpreter's threads.
std::thread thread_without_signals(const char* name, std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_setname_np(thread.native_handle(), name);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

Engine::Engine(std::unique_ptr<Transport> transport, double timeout_s)
    : transport_(std::move(transport)),
      timeout_s_(timeout_s),
      rank_(transport_->rank()),
      size_(transport_->size()) {
  progress_thread_ = thread_without_signals("tnt-progress", [this] { progress(); });
  completion_thread_ = thread_without_signals("tnt-completion", [this] { complete(); });
}

Engine::~Engine() { close(); }

Bucket& Engine::take_bucket(std::uint32_t channel) {
  std::lock_guard lock(mutex_);
  Bucket& bucket = buckets_[channel];
  if (bucket.busy)
    throw std::logic_error("channel " + std::to_string(channel) +
                           " already carries a collective on rank " + std::to_string(rank_));
  bucket.busy = true;
  return bucket;
}

void Engine::release_bucket(std::uint32_t channel) {
  std::lock_guard lock(mutex_);
  buckets_[channel].busy = false;
}

void Engine::start(Operation operation) {
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty() && !closing_) {
      incoming_.push_back(std::move(operation));
      wake_.notify_one();
      return;
    }
  }
  finish(std::move(operation.done), failure().empty() ? "communication is closed" : failure());
}

void Engine::notify(int peer, std::uint32_t kind, std::string payload) {
  if (payload.size() > Transport::max_notice_bytes)
    throw std::invalid_argument("a notice has at most " +
                                std::to_string(Transport::max_notice_bytes) + " bytes");
  std::lock_guard lock(mutex_);
  outgoing_.push_back({peer, {rank_, kind, std::move(payload)}});
  wake_.notify_one();
}

bool Engine::take_notice(Notice& notice) {
  std::lock_guard lock(mutex_);
  if (inbox_.empty()) return false;
  notice = std::move(inbox_.front());
  inbox_.pop_front();
  return true;
}

void Engine::abort(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (abort_request_.empty()) abort_request_ = reason.substr(0, Transport::max_notice_bytes);
  wake_.notify_one();
}

Failure Engine::failure() const {
  std::lock_guard lock(mutex_);
  return failure_.empty() ? abort_request_ : failure_;
}

void Engine::close() {
  {
    std::lock_guard lock(mutex_);
    if (closing_) return;
    closing_ = true;
    wake_.notify_one();
  }
  progress_thread_.join();
  {
    std::lock_guard lock(completion_mutex_);
    completion_closing_ = true;
    completion_wake_.notify_one();
  }
  completion_thread_.join();
}

void Engine::progress() {
  Backoff backoff;
  std::vector<Operation> started;
  std::vector<std::pair<int, Notice>> notices;
  bool closing = false;
  while (!closing) {
    Failure request;
    {
      std::unique_lock lock(mutex_);
      const auto nothing_to_do = [&] {
        return incoming_.empty() && outgoing_.empty() && !closing_ &&
               (abort_request_.empty() || !failure_.empty());
      };
      if (active_.empty() && nothing_to_do()) wake_.wait_for(lock, idle_poll);
      started.swap(incoming_);
      notices.swap(outgoing_);
      closing = closing_;
      if (failure_.empty()) request = abort_request_;
    }
    try {
      if (!started.empty()) backoff.reset();
      for (Operation& operation : started) {
        active_.push_back(std::make_unique<Execution>(std::move(operation), *transport_));
        active_.back()->begin();
      }
      started.clear();
      for (const auto& [peer, notice] : notices)
        transport_->notify(peer, notice.kind, notice.payload);
      notices.clear();
      take_notices();
      if (!request.empty()) fail(request, true);

      if (advance_all())
        backoff.reset();
      else if (!active_.empty())
        backoff.wait();
    } catch (const std::exception& error) {
      fail("rank " + std::to_string(rank_) + ": " + error.what(), true);
      for (Operation& operation : started)
        if (operation.done) finish(std::move(operation.done), failure());
      started.clear();
      notices.clear();
    }
  }
  try {
    fail("communication is closed", false);
    const auto limit = std::chrono::steady_clock::now() + flush_limit;
    while (!transport_->sends_done() && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(microseconds(100));
  } catch (const TransportError&) {
    // The link is broken and the engine is being closed: there is nobody left to tell.
  }
}

// True if anything happened.
bool Engine::advance_all() {
  bool progressed = false;
  for (const auto& execution : active_) {
    progressed |= execution->advance(timeout_s_);
    if (!execution->finished()) continue;
    execution->record(trace_);
    finish(execution->take_done(), {});
  }
  const auto is_finished = [](const auto& execution) { return execution->finished(); };
  active_.erase(std::remove_if(active_.begin(), active_.end(), is_finished), active_.end());
  return progressed;
}

void Engine::take_notices() {
  Notice notice;
  while (failure().empty() && transport_->take_notice(notice)) {
    if (notice.kind == abort_kind) {
      fail(notice.payload, false);
      return;
    }
    std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(notice));
  }
}

void Engine::fail(const std::string& reason, bool tell_peers) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = reason;
    for (Operation& operation : incoming_) finish(std::move(operation.done), reason);
    incoming_.clear();
  }
  for (const auto& execution : active_)
    if (!execution->finished()) finish(execution->take_done(), reason);
  active_.clear();
  try {
    transport_->cancel_receives();
  } catch (const TransportError&) {
    // What failed may be the link itself, and the reason to tell is the first one.
  }
  for (int peer = 0; tell_peers && peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      transport_->notify(peer, abort_kind, reason);
    } catch (const TransportError&) {
      // The link to this peer is what failed; the others must hear of it all the same.
    }
  }
}

void Engine::finish(Done done, Failure failure) {
  {
    std::lock_guard lock(completion_mutex_);
    if (!completion_closing_) {
      completed_.emplace_back(std::move(done), std::move(failure));
      completion_wake_.notify_one();
      return;
    }
  }
  done(failure);  // the completion thread has gone, or goes now
}

void Engine::complete() {
  while (true) {
    std::pair<Done, Failure> next;
    {
      std::unique_lock lock(completion_mutex_);
      completion_wake_.wait(lock, [&] { return !completed_.empty() || completion_closing_; });
      if (completed_.empty()) return;
      next = std::move(completed_.front());
      completed_.pop_front();
    }
    next.first(next.second);
  }
}

}  // namespace tnt
