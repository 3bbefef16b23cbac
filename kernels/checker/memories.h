// The memories of all ranks in a symbolic run: what steps may touch, and in which order.
#pragma once

#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "checker/cells.h"
#include "checker/order.h"
#include "checker/replay.h"
#include "collective/schedule.h"
#include "collective/task.h"

namespace tnt {

// A sentence on what is wrong, and where.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Memories {
 public:
  Memories(const std::vector<Schedule>& schedules, const Task& task, const Order& order);

  // The caller writes the input, and loses what else was there.
  void begin_operation(int rank, int operation);

  // The caller reads the result.
  const std::vector<Piece>& end_operation(int rank, int operation);

  // A step reads or writes; a message does so until it has completed. All throw Fault.
  void read(const Moment& moment, const Place& place, std::size_t count,
            std::vector<Piece>& pieces);
  void write(const Moment& moment, const Place& place, std::size_t count,
             const std::vector<Piece>& pieces);

  // What the source sends is now where the target receives.
  void move(const Moment& send, const Moment& receive);

  // A message has come from another rank: its data memory is in reach when that has completed.
  void greet(const Moment& receive, int source);

  // The clock of a rank when it enters an operation, and when a step begins.
  std::uint32_t entry(int rank, int operation) const;
  std::uint32_t clock(const Moment& moment) const;

  const Step& step_of(const Moment& moment) const {
    return schedules_[moment.rank].steps[moment.step];
  }
  [[noreturn]] void fail(const Moment& moment, const std::string& what) const;

 private:
  struct Rank {
    Cells data[2], scratch, input, output;
    std::size_t input_begin = 0, input_count = 0;  // in the whole vector
    std::size_t output_begin = 0, output_count = 0;
    std::uint32_t ticks = 0;                         // that an operation takes
    std::unordered_map<int, std::uint32_t> greeted;  // by whom, and when that was complete
  };

  // Of a range of cells, from the tick `begin` of the rank's clock to `end`.
  struct Access {
    Moment moment;
    std::uint32_t begin, end;
    Place place;
  };

  std::uint32_t end_of(const Moment& message) const;
  Access access(const Moment& moment, const Place& place) const;
  Access caller_access(int rank, int operation, std::uint32_t begin) const;
  void note_read(Cell& cell, const Access& access, std::size_t begin, std::size_t end) const;
  void note_write(Cell& cell, const Access& access, std::size_t begin, std::size_t end) const;
  [[noreturn]] void fail_race(const Access& access, const char* verb, std::size_t begin,
                              std::size_t end, Epoch other, const char* doing) const;

  Cells& reach(const Moment& moment, const Place& place, std::size_t count);
  Cells& memory_of(const Moment& moment, const Place& place);
  Cells& data_of(int rank, int operation);

  std::string describe_epoch(Epoch epoch) const;

  const std::vector<Schedule>& schedules_;
  const Task task_;
  const Order& order_;
  std::vector<Rank> ranks_;
  std::vector<Piece> moved_;
};

}  // namespace tnt
