// How the operations of a lane are moved, and ended: by a caller that holds its turn, or its
// thread.
#include "engine/backoff.h"
#include "engine/engine.h"
#include "engine/heading.h"

namespace tnt {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How often an idle engine looks for notices.
constexpr auto idle_poll = milliseconds(10);

// How long close() waits for the last notices to leave, an abort among them.
constexpr auto flush_limit = milliseconds(500);

}  // namespace

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
    fail({obituary(death)}, abort_kind);
  } catch (const Stalled& error) {
    fail({"rank " + std::to_string(rank()) + ": " + error.what(), true}, stalled_kind);
  } catch (const std::exception& error) {
    fail({"rank " + std::to_string(rank()) + ": " + error.what()}, abort_kind);
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
    lane.take_started();
    for (std::size_t i = before; i < lane.active.size(); ++i) {
      Bucket& bucket = *lane.active[i];
      const Plan& plan = bucket.plans.front();
      bucket.execution.begin(bucket.request, *plan.schedule,
                             heading_of(bucket.request, plan.algorithm, plan.blocks),
                             bucket.channel, plan.algorithm, bucket.window->memory(),
                             bucket.scratch.memory(), *lane.transport, trace_);
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

// By the thread that holds the turn, once for each lane.
void Engine::fail_operations(Lane& lane) {
  lane.failed = true;
  const Failure failed = failure();
  lane.take_started();  // nothing is added from here on: submit() looks at failed_ under its lock
  try {
    lane.transport->cancel_receives();
  } catch (const TransportError&) {
    // What failed may be the link itself, and the reason to tell is the first one.
  }
  for (int peer = 0; &lane == lanes_.front().get() && peer < size(); ++peer) {
    if (peer == rank()) continue;
    try {
      send_notices(lane);
      if (tell_as_ != 0) lane.transport->notify(peer, tell_as_, failed.reason);
    } catch (const TransportError&) {
      // The link to this peer is what failed; the others must hear of it all the same.
    }
  }
  for (Bucket* bucket : lane.active) end(lane, *bucket, failed);
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
