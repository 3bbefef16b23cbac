#include "engine/engine.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <functional>

#include "collective/algorithms.h"
#include "engine/backoff.h"
#include "engine/heading.h"

namespace tnt {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How often an idle engine looks for notices, and how often a busy one.
constexpr auto idle_poll = milliseconds(10);
constexpr std::uint64_t notices_every_ns = 1'000'000;

// How long a thread that waits for the turn sleeps before it looks again.
constexpr auto turn_poll = milliseconds(2);

// How long close() waits for the last notices to leave, an abort among them.
constexpr auto flush_limit = milliseconds(500);

// Schedules that a channel keeps.
constexpr std::size_t most_plans = 8;

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

std::vector<std::unique_ptr<Transport>> one(std::unique_ptr<Transport> transport) {
  std::vector<std::unique_ptr<Transport>> all;
  all.push_back(std::move(transport));
  return all;
}

// What cannot be carried out, before anything is.
void check_request(const Request& request) {
  const auto is_integer = [](Type type) {
    return type == Type::int32 || type == Type::int64 || type == Type::uint8;
  };
  if (is_integer(request.type) && request.scale != 0 && request.scale != 1)
    throw std::invalid_argument(std::string(name_of(request.type)) +
                                " takes a scale of 0 or 1 only, not " +
                                std::to_string(request.scale));
  if (request.type != request.wire && (is_integer(request.type) || is_integer(request.wire)))
    throw std::invalid_argument(std::string(name_of(request.type)) + " cannot be exchanged as " +
                                name_of(request.wire));
}

std::vector<int> numbers_below(int size) {
  std::vector<int> numbers;
  for (int i = 0; i < size; ++i) numbers.push_back(i);
  return numbers;
}

}  // namespace

Engine::Engine(std::unique_ptr<Transport> transport, double timeout_s)
    : Engine(one(std::move(transport)), {}, timeout_s) {}

Engine::Engine(std::vector<std::unique_ptr<Transport>> transports, std::vector<int> node,
               double timeout_s)
    : timeout_s_(timeout_s), world_(std::make_shared<Group>()), rules_(default_rules()) {
  const int size = transports.front()->size();
  world_->ranks = numbers_below(size);
  world_->node = node.empty() ? world_->ranks : std::move(node);
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

void Engine::set_rules(std::vector<Rule> rules) {
  std::lock_guard lock(mutex_);
  rules_ = std::move(rules);
  for (auto& [channel, bucket] : buckets_)
    if (!bucket->busy) bucket->plans.clear();
}

int Engine::add_group(std::vector<int> ranks) {
  auto group = std::make_shared<Group>();
  std::sort(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size() || (i > 0 && ranks[i] == ranks[i - 1]))
      throw std::invalid_argument("a group has each of its ranks once, from 0 to " +
                                  std::to_string(size() - 1));
    group->node.push_back(world_->node[static_cast<std::size_t>(ranks[i])]);
  }
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  if (own == ranks.end())
    throw std::invalid_argument("rank " + std::to_string(rank()) + " is not in the group");
  group->index = static_cast<int>(own - ranks.begin());
  group->ranks = std::move(ranks);
  std::lock_guard lock(mutex_);
  groups_.push_back(std::move(group));
  return static_cast<int>(groups_.size());
}

std::shared_ptr<const Group> Engine::find_group(int number) const {
  if (number == 0) return nullptr;
  std::lock_guard lock(mutex_);
  if (number < 0 || static_cast<std::size_t>(number) > groups_.size())
    throw std::invalid_argument("there is no group " + std::to_string(number));
  return groups_[static_cast<std::size_t>(number) - 1];
}

Bucket& Engine::take(std::uint32_t channel) {
  std::lock_guard lock(mutex_);
  return take_locked(channel);
}

Bucket& Engine::take_locked(std::uint32_t channel) {
  auto& bucket = buckets_[channel];
  if (bucket == nullptr) {
    bucket = std::make_unique<Bucket>();
    bucket->channel = channel;
  }
  if (bucket->busy && failed_) {
    // Messages of a failed operation may still be under way from its memory.
    abandoned_.push_back(std::move(bucket));
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
  bucket.failure.clear();
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

void Engine::notify(int peer, std::uint32_t kind, std::string payload) {
  if (payload.size() > Transport::max_notice_bytes)
    throw std::invalid_argument("a notice has at most " +
                                std::to_string(Transport::max_notice_bytes) + " bytes");
  {
    std::lock_guard lock(mutex_);
    outgoing_.push_back({peer, {rank(), kind, std::move(payload)}});
    has_outgoing_ = true;
  }
  wake(*lanes_.front());
}

bool Engine::take_notice(Notice& notice) {
  std::lock_guard lock(mutex_);
  if (inbox_.empty()) return false;
  notice = std::move(inbox_.front());
  inbox_.pop_front();
  return true;
}

void Engine::set_places(std::vector<std::string> places) {
  std::lock_guard lock(mutex_);
  places_ = std::move(places);
}

void Engine::abort(const std::string& reason) {
  fail(reason.substr(0, Transport::max_notice_bytes), abort_kind);
}

Failure Engine::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void Engine::close() {
  // First: a thread that ends must find the reason, and nothing may be started after it.
  fail("communication is closed", 0);
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

std::vector<Transport*> Engine::transports() const {
  std::vector<Transport*> all;
  for (const auto& lane : lanes_) all.push_back(lane->transport.get());
  return all;
}

// Chooses the schedule and sizes the memory.
void Engine::prepare(Bucket& bucket) {
  try {
    check_request(bucket.request);
    const Plan& chosen = plan(bucket);
    const Request& request = bucket.request;
    const std::size_t element_bytes = size_of(request.wire);
    Transport& transport = *lane_of(bucket).transport;
    bucket.window = &bucket.data_for(chosen.schedule, request.in_place);
    bucket.window->reserve(transport, chosen.schedule->data_count * element_bytes);
    bucket.scratch.reserve(transport, chosen.schedule->scratch_count * element_bytes);
    if (request.scale != 1 && request.in_place)
      convert(request.wire, bucket.window->memory(), request.wire, bucket.window->memory(),
              request.scale, request.count);
  } catch (...) {
    release(bucket);
    throw;
  }
}

// The plan that fits the request, moved to the front of the channel's plans.
const Plan& Engine::plan(Bucket& bucket) {
  const Request& request = bucket.request;
  const std::size_t element_bytes = size_of(request.wire);
  auto& plans = bucket.plans;
  const auto fits = [&](const Plan& plan) {
    if (request.schedule != nullptr) return plan.schedule == request.schedule;
    return plan.collective == request.collective && plan.count == request.count &&
           plan.element_bytes == element_bytes && plan.root == request.root &&
           plan.in_place == request.in_place && plan.group == request.group &&
           plan.offsets == request.offsets && plan.asked == request.algorithm;
  };
  const auto found = std::find_if(plans.begin(), plans.end(), fits);
  if (found != plans.end()) {
    if (found != plans.begin()) std::rotate(plans.begin(), found, found + 1);
    return plans.front();
  }
  Plan plan{request.collective, request.count,
            element_bytes,      request.offsets,
            request.root,       request.in_place,
            request.algorithm,  request.group,
            request.schedule,   static_cast<int>(algorithms().size())};
  for (const std::size_t offset : request.offsets) plan.blocks = hash_of(offset, plan.blocks);
  if (plan.schedule == nullptr) {
    const Group& group = request.group == nullptr ? *world_ : *request.group;
    Task task{request.collective, group.index,  group.size(), request.count,   element_bytes,
              request.offsets,    request.root, group.node,   request.in_place};
    const Algorithm* algorithm = nullptr;
    if (request.algorithm.empty()) {
      algorithm = &choose(task, rules_);
    } else {
      algorithm = find_algorithm(request.collective, request.algorithm);
      if (algorithm == nullptr || !algorithm->fits(task))
        throw std::invalid_argument(std::string(name_of(request.collective)) + " by \"" +
                                    request.algorithm + "\" is not possible among these ranks");
    }
    plan.algorithm = static_cast<int>(algorithm - algorithms().data());
    plan.schedule = std::make_shared<const Schedule>(algorithm->make(task));
  }
  if (plans.size() == most_plans) plans.pop_back();
  plans.insert(plans.begin(), std::move(plan));
  return plans.front();
}

// False if the engine has failed: the operation has ended then.
bool Engine::submit(Bucket& bucket, Bucket::State state) {
  Lane& lane = lane_of(bucket);
  const std::uint64_t now = now_ns();
  if (!bucket.request.is_transfer)
    trace_.record(EventKind::ready, bucket.channel, now, now,
                  bucket.request.inputs.count() * size_of(bucket.request.type));
  bucket.state.store(state);
  {
    std::lock_guard lock(lane.mutex);
    if (!failed_) {
      lane.started.push_back(&bucket);
      lane.pending.fetch_add(1);
      if (state == Bucket::State::alone) wake(lane);
      return true;
    }
  }
  bucket.failure = failure();
  if (bucket.state.exchange(Bucket::State::ended) == Bucket::State::alone) call_done(bucket);
  return false;
}

// By the thread that holds the lane's turn. True if anything happened.
bool Engine::move(Lane& lane) {
  bool progressed = false;
  try {
    if (!failed_) move_operations(lane, progressed);
    look_after_notices(lane);
    // What the others are to hear of the failure may still wait for room on its way.
    if (lane.failed) lane.transport->sends_done();
  } catch (const PeerDied& death) {
    fail(obituary(death), abort_kind);
  } catch (const Stalled& error) {
    fail("rank " + std::to_string(rank()) + ": " + error.what(), stalled_kind);
  } catch (const std::exception& error) {
    fail("rank " + std::to_string(rank()) + ": " + error.what(), abort_kind);
  }
  if (failed_ && !lane.failed) {
    fail_operations(lane);
    progressed = true;
  }
  return progressed;
}

void Engine::move_operations(Lane& lane, bool& progressed) {
  if (lane.pending.load(std::memory_order_acquire) != static_cast<int>(lane.active.size())) {
    const std::size_t before = lane.active.size();
    {
      std::lock_guard lock(lane.mutex);
      lane.active.insert(lane.active.end(), lane.started.begin(), lane.started.end());
      lane.started.clear();
    }
    for (std::size_t i = before; i < lane.active.size(); ++i) {
      Bucket& bucket = *lane.active[i];
      const Request& request = bucket.request;
      const Plan& plan = bucket.plans.front();
      const std::size_t count = request.offsets.empty() ? request.count : request.offsets.back();
      const OperationFacts facts{request.collective, request.wire, request.reduction,
                                 plan.algorithm,     request.root, count};
      const std::uint64_t agreed =
          plan.blocks == 0 ? request.agreed : hash_of(plan.blocks, request.agreed);
      bucket.execution.begin(request, *plan.schedule, heading_of(facts, agreed), bucket.channel,
                             plan.algorithm, bucket.window->memory(), bucket.scratch.memory(),
                             *lane.transport, trace_);
    }
  }
  for (std::size_t i = 0; i < lane.active.size();) {
    Bucket& bucket = *lane.active[i];
    progressed |= bucket.execution.advance(timeout_s_);
    if (bucket.execution.finished()) {
      lane.active[i] = lane.active.back();
      lane.active.pop_back();
      end(lane, bucket, {});
    } else {
      ++i;
    }
  }
}

void Engine::look_after_notices(Lane& lane) {
  if (&lane != lanes_.front().get()) return;
  if (has_outgoing_) send_notices(lane);
  // While an operation is quick nobody has failed.
  const std::uint64_t now = now_ns();
  if (now - lane.notices_looked_ns < notices_every_ns) return;
  lane.notices_looked_ns = now;
  take_notices(lane);
}

void Engine::send_notices(Lane& lane) {
  std::vector<std::pair<int, Notice>> notices;
  {
    std::lock_guard lock(mutex_);
    notices.swap(outgoing_);
    has_outgoing_ = false;
  }
  for (const auto& [peer, notice] : notices)
    lane.transport->notify(peer, notice.kind, notice.payload);
}

void Engine::take_notices(Lane& lane) {
  Notice notice;
  while (!failed_ && lane.transport->take_notice(notice)) {
    if (notice.kind == abort_kind) return fail(notice.payload, 0);
    if (notice.kind == stalled_kind) {
      std::string reason = std::move(notice.payload);
      for (const Bucket* bucket : lane.active)
        if (const std::string awaited = bucket->execution.awaited(); !awaited.empty())
          reason += "\nrank " + std::to_string(rank()) + " itself waits for " + awaited;
      return fail(reason, 0);
    }
    std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(notice));
  }
}

// All ranks say the same, whoever noticed it.
std::string Engine::obituary(const PeerDied& death) const {
  std::lock_guard lock(mutex_);
  const auto peer = static_cast<std::size_t>(death.peer);
  const std::string place = peer < places_.size() ? " " + places_[peer] : "";
  return "rank " + std::to_string(death.peer) + " has died" + place + death.noticed;
}

void Engine::fail(const std::string& reason, std::uint32_t tell_as) {
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) {
      failure_ = reason;
      tell_as_ = tell_as;
    }
  }
  failed_ = true;
  for (auto& lane : lanes_) wake(*lane);
}

// By the thread that holds the turn, once for each lane.
void Engine::fail_operations(Lane& lane) {
  lane.failed = true;
  const Failure reason = failure();
  {
    // Nothing is added from here on: submit() looks at failed_ under this lock.
    std::lock_guard lock(lane.mutex);
    lane.active.insert(lane.active.end(), lane.started.begin(), lane.started.end());
    lane.started.clear();
  }
  try {
    lane.transport->cancel_receives();
  } catch (const TransportError&) {
    // What failed may be the link itself, and the reason to tell is the first one.
  }
  for (int peer = 0; &lane == lanes_.front().get() && peer < size(); ++peer) {
    if (peer == rank()) continue;
    try {
      send_notices(lane);
      if (tell_as_ != 0) lane.transport->notify(peer, tell_as_, reason);
    } catch (const TransportError&) {
      // The link to this peer is what failed; the others must hear of it all the same.
    }
  }
  for (Bucket* bucket : lane.active) end(lane, *bucket, reason);
  lane.active.clear();
}

void Engine::end(Lane& lane, Bucket& bucket, const Failure& failure) {
  bucket.failure = failure;
  lane.pending.fetch_sub(1);
  if (bucket.state.exchange(Bucket::State::ended) == Bucket::State::helped)
    return lane.ended.ring();
  std::lock_guard lock(completion_mutex_);
  completed_.push_back(&bucket);
  completion_wake_.notify_one();
}

void Engine::call_done(Bucket& bucket) {
  const Done done = std::move(bucket.done);
  bucket.done = nullptr;
  const Failure failure = finish(bucket);  // a new operation may begin on the channel now
  done(failure);
}

void Engine::wake(Lane& lane) {
  lane.work.ring();
  lane.transport->doorbell().ring();
}

void Engine::progress(Lane& lane) {
  Backoff backoff;
  while (!closing_) {
    std::unique_lock turn(lane.turn, std::try_to_lock);
    if (turn && move(lane)) {
      backoff.reset();
      continue;
    }
    if (turn && lane.pending.load() != 0) {
      backoff.wait(*lane.transport, [&] { return move(lane) || closing_; });
      continue;
    }
    // Nothing to do, or somebody else does it; who leaves work behind rings the bell.
    if (turn) turn.unlock();
    const std::uint32_t seen = lane.work.enter();
    const bool work = lane.pending.load() != 0 || has_outgoing_ || (failed_ && !lane.failed);
    if (!closing_ && !(work && turn.try_lock())) lane.work.sleep(seen, idle_poll);
    lane.work.leave();
  }
  // Helpers see that the engine has failed, and give the turn away.
  std::lock_guard turn(lane.turn);
  if (!lane.failed) fail_operations(lane);
  try {
    // Other messages that are under way belong to failed operations: it may be that nobody ever
    // receives them.
    const auto limit = std::chrono::steady_clock::now() + flush_limit;
    while (!lane.transport->notices_done() && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(microseconds(100));
  } catch (const TransportError&) {
    // The link is broken and the engine is being closed: there is nobody left to tell.
  }
}

void Engine::complete() {
  std::vector<Bucket*> some;  // takes turns with completed_, so that both keep their memory
  while (true) {
    {
      std::unique_lock lock(completion_mutex_);
      completion_wake_.wait(lock, [&] { return !completed_.empty() || completion_closing_; });
      if (completed_.empty()) return;
      some.swap(completed_);
    }
    for (Bucket* bucket : some) call_done(*bucket);
    some.clear();
  }
}

}  // namespace tnt
