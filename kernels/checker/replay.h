// Runs the schedules of all ranks together, message by message, without hardware.
//
// The k-th send from a to b meets the k-th receive on b from a. A send completes only when its
// receive has been posted, which is stricter than any transport: what ends here deadlocks nowhere.
#pragma once

#include <string>
#include <vector>

#include "collective/schedule.h"

namespace tnt {

// A step under way.
struct Moment {
  int rank = 0;
  int operation = 0;
  std::size_t step = 0;  // index in the schedule of the rank
  std::size_t end = 0;   // of a message: index of the first step for which it has completed
};

// Says what becomes of a replay, and how long things take. Times are in seconds; where nothing
// takes time, all happens at 0, in an order that the messages allow.
class Observer {
 public:
  struct Completion {
    double send = 0, receive = 0;
  };

  virtual ~Observer() = default;

  virtual void operation_begins(int /*rank*/, int /*operation*/) {}
  virtual void message_starts(const Moment&, const Step&) {}

  // A copy or reduce begins. Returns when it ends.
  virtual double local_step(const Moment&, const Step&, double now) { return now; }

  // A send has met its receive. Returns when each is complete.
  virtual Completion message_moves(const Moment& /*send*/, const Moment& /*receive*/, double now) {
    return {now, now};
  }

  // All messages that end by this step have completed; so the round that it begins, or the end of
  // the operation, comes next.
  virtual void messages_end(int /*rank*/, int /*operation*/, std::size_t /*step*/) {}
  virtual void operation_ends(int /*rank*/, int /*operation*/, double /*now*/) {}
};

// Replays so many operations with the same schedules, one after the other on each rank. Empty if
// all ended, else a sentence that says which rank waits for ever, or whose messages do not match.
std::string replay(const std::vector<Schedule>& schedules, int operations, Observer& observer);

// "rank 3, round 2, step 17 (receive)", and of which operation if it is not the first.
std::string describe(const std::vector<Schedule>& schedules, const Moment& moment);

}  // namespace tnt
