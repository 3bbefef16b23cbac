// Memory that the ranks of a transport write into, over GASPI: where things are in it, and how they
// get there.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "transport/gaspi.h"
#include "transport/gaspi_library.h"

namespace tnt::gaspi {

// The same on all ranks.
//
//   [ring of rank 0 | ring of rank 1 | ...][staging ring for rank 0 | for rank 1 | ...]
//   ring: [slot 0 | slot 1 | ... | credit]    slot: [heading | part of a message]
//
// Each slot has a notification, and so has the credit.
struct Layout {
  static constexpr std::size_t heading_bytes = 64;
  std::size_t ranks = 0, slots = 0, slot_bytes = 0;

  // As GaspiOptions want it, or smaller: memory and notifications are limited.
  static Layout fit(const GaspiOptions& options, std::size_t notifications);

  std::size_t credit() const { return slots; }  // as a slot
  std::size_t ring_bytes() const { return slots * (heading_bytes + slot_bytes) + heading_bytes; }
  std::size_t bytes() const { return 2 * ranks * ring_bytes(); }
  std::size_t ring(int rank, std::size_t slot) const {
    return rank * ring_bytes() + slot * (heading_bytes + slot_bytes);
  }
  std::size_t staging(int rank, std::size_t slot) const { return bytes() / 2 + ring(rank, slot); }
  std::size_t notification(int rank, std::size_t slot) const { return rank * (slots + 1) + slot; }
  std::size_t notifications() const { return ranks * (slots + 1); }
};

// What this process has of GASPI, the same for all segments.
struct Limits {
  Layout layout;
  Number queues = 1, queue_limit = 0;
  Number notification_stride = 0;  // from segment to segment

  Queue queue_of(SegmentId id) const { return static_cast<Queue>(id % queues); }
};

// A segment as one transport uses it. Ranks are those of the job. Nothing waits here.
class Segment {
 public:
  Segment(const Library& library, const Limits& limits, int rank, SegmentId id, std::uint32_t epoch,
          std::byte* data);

  int rank() const { return rank_; }
  const Layout& layout() const { return limits_.layout; }

  // What goes to a slot of another rank, and what has come from it.
  std::byte* staging(int to, std::size_t slot) { return data_ + layout().staging(to, slot); }
  const std::byte* ring(int from, std::size_t slot) const {
    return data_ + layout().ring(from, slot);
  }

  // Writes the begin of a staging slot into the same slot of this rank's ring at `to`. A later try
  // may succeed; a failed one means that the rank is gone.
  enum class Posted { yes, later, failed };
  Posted put(int to, std::size_t slot, std::size_t bytes);
  bool has_room() const;  // else it would be `later`
  bool is_busy() const;   // much is under way

  // What has come since the last call: calls found(rank, slot).
  template <class Found>
  void take(Found found) {
    const std::size_t each = layout().slots + 1;
    const NotificationId end = first_notification_ + notifications_;
    NotificationId at = first_notification_;
    while (at < end && library_.notify_waitsome(id_, at, end - at, &at, test) == success) {
      // A notification that comes amid a reset is given out, and stays.
      Value epoch = 0, next = 0;
      while (library_.notify_reset(id_, at, &next) == success && next != 0) epoch = next;
      const std::size_t number = at++ - first_notification_;
      if (epoch == epoch_) found(static_cast<int>(number / each), number % each);
    }
  }

  // Forgets what has been sent, now and then: true if it did, and states() may be news.
  bool purge(std::chrono::steady_clock::time_point now);
  std::vector<State> states() const;  // by rank

 private:
  Number under_way() const;  // entries of the queue

  const Library& library_;
  const Limits& limits_;
  const int rank_;
  const SegmentId id_;
  const Value epoch_;  // the value of its notifications: those of earlier transports differ
  std::byte* const data_;
  const Queue queue_;
  const NotificationId first_notification_;
  const Number notifications_;
  std::chrono::steady_clock::time_point purged_at_;
};

}  // namespace tnt::gaspi
