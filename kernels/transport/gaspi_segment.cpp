#include "transport/gaspi_segment.h"

namespace tnt::gaspi {

Layout Layout::fit(const GaspiOptions& options, std::size_t notifications) {
  constexpr std::size_t most_bytes = std::size_t{32} << 20, least_slots = 4, least_bytes = 4096,
                        line = 64;
  Layout layout{options.hosts.size(), static_cast<std::size_t>(options.slots), options.slot_bytes};
  while ((layout.bytes() > most_bytes || layout.notifications() > notifications) &&
         layout.slots > least_slots)
    layout.slots /= 2;
  while (layout.bytes() > most_bytes && layout.slot_bytes >= 2 * least_bytes)
    layout.slot_bytes = layout.slot_bytes / 2 / line * line;
  return layout;
}

// GPI-2 keeps the value of a notification in one place for all ranks that it is sent to and all
// segments, and with libfabric reads it later: so it is the same for all ranks, and segments do not
// share notifications (unless ranks are too many).
//
// What uses one segment goes through one queue, which keeps the order: what an earlier transport
// has sent arrives before what this one sends.
Segment::Segment(const Library& library, const Limits& limits, int rank, SegmentId id,
                 std::uint32_t epoch, std::byte* data)
    : library_(library),
      limits_(limits),
      rank_(rank),
      id_(id),
      epoch_(epoch),
      data_(data),
      queue_(limits.queue_of(id)),
      first_notification_(id * limits.notification_stride),
      notifications_(static_cast<Number>(limits.layout.notifications())) {}

Number Segment::under_way() const {
  Number used = 0;
  return library_.queue_size(queue_, &used) == success ? used : limits_.queue_limit;
}

// Never fill a queue: GPI-2 takes the rank that was to be written to for dead then. Other
// transports may post to it at the same time.
bool Segment::has_room() const {
  constexpr Number reserve = 64;  // entries; a write with its notification takes two
  return under_way() + reserve <= limits_.queue_limit;
}

bool Segment::is_busy() const { return under_way() > limits_.queue_limit / 4; }

Segment::Posted Segment::put(int to, std::size_t slot, std::size_t bytes) {
  if (!has_room()) return Posted::later;
  const std::size_t notification = first_notification_ + layout().notification(rank(), slot);
  const Return code = library_.write_notify(
      id_, layout().staging(to, slot), static_cast<Rank>(to), id_, layout().ring(rank(), slot),
      bytes, static_cast<NotificationId>(notification), epoch_, queue_, test);
  return code == success ? Posted::yes : code == timed_out ? Posted::later : Posted::failed;
}

// Not more often: with libfabric, GPI-2 1.6 loses memory in every look at what is not done.
bool Segment::purge(std::chrono::steady_clock::time_point now) {
  constexpr auto interval = std::chrono::milliseconds(10);
  const Number used = under_way();
  if (used < limits_.queue_limit / 2 && now - purged_at_ < interval) return false;
  purged_at_ = now;
  if (used != 0) library_.wait(queue_, test);
  return true;
}

std::vector<State> Segment::states() const {
  std::vector<State> states(layout().ranks, healthy);
  library_.state_vec_get(states.data());
  return states;
}

}  // namespace tnt::gaspi
