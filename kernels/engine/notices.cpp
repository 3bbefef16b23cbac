// Notices between ranks, and what they are for: that all fail when one does, with the same reason.
#include "engine/engine.h"

namespace tnt {
namespace {

// How often a busy engine looks for notices.
constexpr std::uint64_t notices_every_ns = 1'000'000;

}  // namespace

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
  fail({reason.substr(0, Transport::max_notice_bytes)}, abort_kind);
}

Failure Engine::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
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
    if (notice.kind == abort_kind) return fail({notice.payload}, 0);
    if (notice.kind == stalled_kind) {
      std::string reason = std::move(notice.payload);
      for (const Bucket* bucket : lane.active)
        if (const std::string awaited = bucket->execution.awaited(); !awaited.empty())
          reason += "\nrank " + std::to_string(rank()) + " itself waits for " + awaited;
      return fail({std::move(reason), true}, 0);
    }
    std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(notice));
  }
}

// All ranks say the same, whoever noticed it.
std::string Engine::obituary(const PeerDied& death) const {
  std::lock_guard lock(mutex_);
  const bool is_known = death.peer < static_cast<int>(places_.size());
  const std::string place = is_known ? " " + places_[death.peer] : "";
  return "rank " + std::to_string(death.peer) + " has died" + place + death.noticed;
}

void Engine::fail(Failure failure, std::uint32_t tell_as) {
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) {
      failure_ = std::move(failure);
      tell_as_ = tell_as;
    }
  }
  failed_ = true;
  for (auto& lane : lanes_) wake(*lane);
}

}  // namespace tnt
