// What the backend did and when: a ring of fixed size, written by any thread without a lock, read
// at any time. The newest events overwrite the oldest.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/event_kind.h"

namespace tnt {

// What the fields of an event say beside the meaning of its kind (event_kind.h):
//   an action of a pipeline   channel: the micro-batch, channel & 0xffff, and the stage,
//                             channel >> 16 & 0x7fff; the highest bit is set in evaluation and
//                             prediction
//   send, receive             algorithm: the other rank
//   exchange                  algorithm: its number in algorithms()
struct Event {
  std::uint64_t begin_ns = 0;  // CLOCK_MONOTONIC
  std::uint64_t end_ns = 0;
  std::uint64_t bytes = 0;
  std::uint16_t kind = 0;  // EventKind
  std::uint16_t algorithm = 0;
  std::uint32_t channel = 0;
};

inline std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

class Trace {
 public:
  static constexpr std::size_t capacity = 1 << 15;

  void record(EventKind kind, std::uint32_t channel, std::uint64_t begin_ns, std::uint64_t end_ns,
              std::uint64_t bytes = 0, int algorithm = 0) {
    const std::uint64_t ticket = next_.fetch_add(1, std::memory_order_relaxed);
    Slot& slot = slots_[ticket % capacity];
    // Odd while being written; readers drop a slot whose version moved under them. The release of
    // each word keeps it after the odd version, the reader's acquire before the second look.
    slot.version.store(2 * ticket + 1, std::memory_order_relaxed);
    const std::uint64_t words[] = {begin_ns, end_ns, bytes,
                                   static_cast<std::uint64_t>(algorithm) << 48 |
                                       static_cast<std::uint64_t>(kind) << 32 | channel};
    for (std::size_t i = 0; i < slot.words.size(); ++i)
      slot.words[i].store(words[i], std::memory_order_release);
    slot.version.store(2 * ticket + 2, std::memory_order_release);
  }

  // How many events there have been.
  std::uint64_t count() const { return next_.load(std::memory_order_acquire); }

  // Events in the order in which they were recorded, the oldest first; without the first `since`.
  std::vector<Event> read(std::uint64_t since = 0) const {
    const std::uint64_t end = count();
    const std::uint64_t begin = std::min(end, std::max(since, end > capacity ? end - capacity : 0));
    std::vector<Event> events;
    events.reserve(end - begin);
    for (std::uint64_t ticket = begin; ticket < end; ++ticket) {
      const Slot& slot = slots_[ticket % capacity];
      if (slot.version.load(std::memory_order_acquire) != 2 * ticket + 2) continue;
      std::array<std::uint64_t, 4> words;
      for (std::size_t i = 0; i < words.size(); ++i)
        words[i] = slot.words[i].load(std::memory_order_acquire);
      if (slot.version.load(std::memory_order_relaxed) != 2 * ticket + 2) continue;
      events.push_back({words[0], words[1], words[2], static_cast<std::uint16_t>(words[3] >> 32),
                        static_cast<std::uint16_t>(words[3] >> 48),
                        static_cast<std::uint32_t>(words[3])});
    }
    return events;
  }

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> version{0};
    std::array<std::atomic<std::uint64_t>, 4> words{};
  };
  std::atomic<std::uint64_t> next_{0};
  std::unique_ptr<Slot[]> slots_{new Slot[capacity]};
};

}  // namespace tnt
