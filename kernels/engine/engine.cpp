#include "engine/engine.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/backoff.h"

namespace tnt {
namespace {

// How long a thread that waits for the turn sleeps before it looks again.
constexpr auto turn_poll = std::chrono::milliseconds(2);

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

Engine::Engine(std::vector<std::unique_ptr<Transport>> transports, std::vector<int> node,
               double timeout_s)
    : timeout_s_(timeout_s), world_(std::make_shared<Group>()), rules_(default_rules()) {
  world_->ranks.resize(transports.front()->size());
  std::iota(world_->ranks.begin(), world_->ranks.end(), 0);
  world_->node = std::move(node);
  world_->index = transports.front()->rank();
  for (auto& transport : transports) lanes_.push_back(std::make_unique<Lane>(std::move(transport)));
  completion_thread_ = thread_without_signals("tnt-completion", [this] { complete(); });
  for (auto& lane : lanes_)
    lane->thread = thread_without_signals("tnt-progress", [this, &lane] { progress(*lane); });
}

Engine::~Engine() {
  close();
  buckets_.clear();  // their memory is the transports'
  abandoned_.clear();
}

void Engine::add_group(int number, std::vector<int> ranks) {
  auto group = std::make_shared<Group>();
  std::sort(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size() || (i > 0 && ranks[i] == ranks[i - 1]))
      throw std::invalid_argument("a group has each of its ranks once, from 0 to " +
                                  std::to_string(size() - 1));
    group->node.push_back(world_->node[ranks[i]]);
  }
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  if (own == ranks.end())
    throw std::invalid_argument("rank " + std::to_string(rank()) + " is not in the group");
  group->index = static_cast<int>(own - ranks.begin());
  group->ranks = std::move(ranks);
  std::lock_guard lock(mutex_);
  groups_[number] = std::move(group);
}

std::shared_ptr<const Group> Engine::find_group(int number) const {
  if (number == 0) return nullptr;
  std::lock_guard lock(mutex_);
  const auto found = groups_.find(number);
  if (found == groups_.end())
    throw std::invalid_argument("there is no group " + std::to_string(number) +
                                ": ranks have died since it was made. Split the world again");
  return found->second;
}

Bucket& Engine::take(std::uint32_t channel) {
  std::lock_guard lock(mutex_);
  return take_locked(channel);
}

Bucket& Engine::take_locked(std::uint32_t channel) {
  auto& bucket = buckets_[channel];
  // Messages of a failed operation may still be under way from its memory.
  if (bucket != nullptr && bucket->busy && failed_) abandoned_.push_back(std::move(bucket));
  if (bucket == nullptr) {
    bucket = std::make_unique<Bucket>();
    bucket->channel = channel;
  }
  if (bucket->busy)
    throw std::logic_error("channel " + std::to_string(channel) +
                           " already carries a collective on rank " + std::to_string(rank()));
  bucket->busy = true;
  bucket->request.reset();
  return *bucket;
}

void Engine::release(Bucket& bucket) {
  bucket.state.store(Bucket::State::idle);
  std::function<void(Bucket*)> next;
  {
    std::lock_guard lock(mutex_);
    bucket.busy = !bucket.waiting.empty();
    if (!bucket.busy) return;
    next = std::move(bucket.waiting.front());
    bucket.waiting.pop_front();
    bucket.request.reset();
  }
  next(&bucket);
}

void Engine::take_in_turn(std::uint32_t channel, std::function<void(Bucket*)> begin) {
  Bucket* bucket = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!failed_) {
      const auto found = buckets_.find(channel);
      if (found != buckets_.end() && found->second->busy)
        return found->second->waiting.push_back(std::move(begin));
      bucket = &take_locked(channel);
    }
  }
  begin(bucket);
}

bool Engine::is_busy(std::uint32_t channel) const {
  std::lock_guard lock(mutex_);
  const auto found = buckets_.find(channel);
  return found != buckets_.end() && found->second->busy;
}

std::byte* Engine::memory(Bucket& bucket, std::size_t bytes) {
  return bucket.fixed.reserve(*lane_of(bucket).transport, bytes);
}

void Engine::forget(std::uint32_t channel) {
  std::lock_guard lock(mutex_);
  const auto found = buckets_.find(channel);
  // What a failed operation holds goes with the engine.
  if (found != buckets_.end() && !found->second->busy) buckets_.erase(found);
}

void Engine::start(Bucket& bucket, Done done) {
  prepare(bucket);
  bucket.done = std::move(done);
  submit(bucket, Bucket::State::alone);
}

void Engine::start_and_help(Bucket& bucket, Done done, std::chrono::nanoseconds limit) {
  prepare(bucket);
  bucket.done = std::move(done);
  submit(bucket, Bucket::State::helped);
  if (help(bucket, limit)) return call_done(bucket);
  auto expected = Bucket::State::helped;
  if (!bucket.state.compare_exchange_strong(expected, Bucket::State::alone))
    return call_done(bucket);  // it has ended meanwhile
  wake(lane_of(bucket));
}

void Engine::begin(Bucket& bucket) {
  prepare(bucket);
  submit(bucket, Bucket::State::helped);
}

bool Engine::help(Bucket& bucket, std::chrono::nanoseconds limit) {
  const auto ended = [&] {
    return bucket.state.load(std::memory_order_acquire) == Bucket::State::ended;
  };
  Lane& lane = lane_of(bucket);
  Backoff backoff;
  const std::uint64_t deadline = now_ns() + static_cast<std::uint64_t>(limit.count());
  bool in_time = true;
  while (!ended() && in_time) {
    std::unique_lock turn(lane.turn, std::try_to_lock);
    if (turn) {
      if (move(lane))
        backoff.reset();
      else if (!ended())
        backoff.wait(*lane.transport, [&] { return move(lane); });
    } else if (limit.count() != 0) {
      const std::uint32_t seen = lane.ended.enter();
      if (!ended()) lane.ended.sleep(seen, turn_poll);
      lane.ended.leave();
    }
    in_time = now_ns() < deadline;
  }
  if (lane.pending.load() != 0) wake(lane);  // what is left is the thread's again
  return ended();
}

Failure Engine::finish(Bucket& bucket) {
  Failure failure = std::move(bucket.failure);
  bucket.failure = {};
  if (failure.empty()) {
    release(bucket);
    return failure;
  }
  // Messages may still be under way from here: the bucket is used no more.
  std::deque<std::function<void(Bucket*)>> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting.swap(bucket.waiting);
  }
  for (const auto& begin : waiting) begin(nullptr);
  return failure;
}

void Engine::close() {
  // First: a thread that ends must find the reason, and nothing may be started after it.
  fail({"communication is closed"}, 0);
  if (closing_.exchange(true)) return;
  for (auto& lane : lanes_) wake(*lane);
  for (auto& lane : lanes_) lane->thread.join();
  {
    std::lock_guard lock(completion_mutex_);
    completion_closing_ = true;
    completion_wake_.notify_one();
  }
  completion_thread_.join();
}

}  // namespace tnt
