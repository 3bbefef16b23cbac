#include "checker/memories.h"

#include <algorithm>

namespace tnt {
namespace {

// Ticks of an operation of n steps: the caller writes the input from 0 to 1; step i runs from
// 2 + 2 i to 3 + 2 i, a message until 2 + 2 * (its round's last step + 1); the caller reads the
// result from 2 + 2 n to 3 + 2 n.
std::uint32_t tick_of(std::size_t step) { return static_cast<std::uint32_t>(2 + 2 * step); }

std::string text_of(const Place& place, std::size_t begin, std::size_t end) {
  std::string text = memory_names[static_cast<int>(place.memory)];
  text += "[" + std::to_string(begin) + ":" + std::to_string(end) + ")";
  if (place.rank != here) text += " of rank " + std::to_string(place.rank);
  return text;
}

void undefine(Cells& cells, std::size_t begin, std::size_t end) {
  cells.visit(begin, end, [](Cell& cell, std::size_t, std::size_t) { cell.content = {}; });
}

void store(Cells& cells, std::size_t origin, const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces)
    cells.visit(origin + piece.begin, origin + piece.end,
                [&](Cell& cell, std::size_t begin, std::size_t) {
                  cell.content = piece.content.after(begin - origin - piece.begin);
                });
}

}  // namespace

Memories::Memories(const std::vector<Schedule>& schedules, const Task& task, const Order& order)
    : schedules_(schedules), task_(task), order_(order), ranks_(schedules.size()) {
  Task own = task;
  for (own.rank = 0; own.rank < task.size; ++own.rank) {
    const Schedule& schedule = schedules[own.rank];
    Rank& rank = ranks_[own.rank];
    rank.input_begin = input_begin(own);
    rank.input_count = input_count(own);
    rank.output_begin = output_begin(own);
    rank.output_count = output_count(own);
    rank.ticks = tick_of(schedule.steps.size()) + 2;
    const std::size_t whole = task.in_place ? whole_count(own) : 0;
    for (Cells& cells : rank.data) cells = Cells(std::max(schedule.data_count, whole));
    rank.scratch = Cells(schedule.scratch_count);
    if (task.in_place) continue;
    rank.input = Cells(rank.input_count);
    rank.output = Cells(rank.output_count);
  }
}

std::uint32_t Memories::entry(int rank, int operation) const {
  return ranks_[rank].ticks * static_cast<std::uint32_t>(operation);
}

std::uint32_t Memories::clock(const Moment& moment) const {
  return entry(moment.rank, moment.operation) + tick_of(moment.step);
}

std::uint32_t Memories::end_of(const Moment& message) const {
  return entry(message.rank, message.operation) + tick_of(message.end);
}

Memories::Access Memories::access(const Moment& moment, const Place& place) const {
  const std::uint32_t begin = clock(moment);
  return {moment, begin, step_of(moment).is_message() ? end_of(moment) : begin + 1, place};
}

Memories::Access Memories::caller_access(int rank, int operation, std::uint32_t begin) const {
  const std::size_t steps = schedules_[rank].steps.size();
  return {{rank, operation, steps, steps}, begin, begin + 1, {}};
}

void Memories::begin_operation(int rank, int operation) {
  Rank& own = ranks_[rank];
  own.greeted.clear();
  undefine(own.scratch, 0, own.scratch.count());
  undefine(own.output, 0, own.output.count());
  Cells& cells = task_.in_place ? data_of(rank, operation) : own.input;
  const std::size_t whole = task_.in_place ? whole_count(task_) : own.input_count;
  const Access writing = caller_access(rank, operation, entry(rank, operation));
  cells.visit(0, whole, [&](Cell& cell, std::size_t begin, std::size_t end) {
    note_write(cell, writing, begin, end);
    cell.content = {};
  });
  Content given = contribution(operation, rank);
  given.first = own.input_begin;
  store(cells, task_.in_place ? own.input_begin : 0, {{0, own.input_count, given}});
}

const std::vector<Piece>& Memories::end_operation(int rank, int operation) {
  Rank& own = ranks_[rank];
  Cells& cells = task_.in_place ? data_of(rank, operation) : own.output;
  const std::size_t origin = task_.in_place ? own.output_begin : 0;
  const std::size_t steps = schedules_[rank].steps.size();
  const Access reading = caller_access(rank, operation, entry(rank, operation) + tick_of(steps));
  moved_.clear();
  cells.visit(origin, origin + own.output_count,
              [&](Cell& cell, std::size_t begin, std::size_t end) {
                note_read(cell, reading, begin, end);
                append(moved_, {begin - origin, end - origin, cell.content});
              });
  return moved_;
}

void Memories::read(const Moment& moment, const Place& place, std::size_t count,
                    std::vector<Piece>& pieces) {
  pieces.clear();
  const Access reading = access(moment, place);
  const auto visit = [&](Cell& cell, std::size_t begin, std::size_t end) {
    note_read(cell, reading, begin, end);
    if (!cell.content.defined())
      fail(moment, "reads " + text_of(place, begin, end) +
                       (place.memory == Memory::input
                            ? ", where output was written, which may be the same memory"
                            : ", where nothing was written"));
    append(pieces, {begin - place.begin, end - place.begin, cell.content});
  };
  reach(moment, place, count).visit(place.begin, place.begin + count, visit);
}

void Memories::write(const Moment& moment, const Place& place, std::size_t count,
                     const std::vector<Piece>& pieces) {
  Cells& cells = reach(moment, place, count);
  const Access writing = access(moment, place);
  cells.visit(place.begin, place.begin + count,
              [&](Cell& cell, std::size_t begin, std::size_t end) {
                note_write(cell, writing, begin, end);
              });
  cells.merge(place.begin, place.begin + count, pieces.size());
  store(cells, place.begin, pieces);
  if (place.memory != Memory::output) return;
  // The input that may be in the same memory.
  Rank& own = ranks_[moment.rank];
  const std::size_t written = own.output_begin + place.begin;
  const std::size_t begin = std::max(written, own.input_begin);
  const std::size_t end = std::min(written + count, own.input_begin + own.input_count);
  if (begin < end) undefine(own.input, begin - own.input_begin, end - own.input_begin);
}

void Memories::move(const Moment& send, const Moment& receive) {
  const Step& source = step_of(send);
  const Step& target = step_of(receive);
  const std::size_t origin = source.from.begin;
  moved_.clear();
  memory_of(send, source.from)
      .visit(origin, origin + source.count, [&](Cell& cell, std::size_t begin, std::size_t end) {
        append(moved_, {begin - origin, end - origin, cell.content});
      });
  store(memory_of(receive, target.to), target.to.begin, moved_);
}

void Memories::greet(const Moment& receive, int source) {
  if (!share_memory(task_, source, receive.rank)) return;
  auto& greeted = ranks_[receive.rank].greeted;
  const auto [greeting, is_first] = greeted.emplace(source, end_of(receive));
  if (!is_first) greeting->second = std::min(greeting->second, end_of(receive));
}

void Memories::note_read(Cell& cell, const Access& access, std::size_t begin,
                         std::size_t end) const {
  const int rank = access.moment.rank;
  if (!order_.is_over(cell.writer, rank, access.begin + 1))
    fail_race(access, "reads", begin, end, cell.writer, "writing");
  if (!cell.readers.empty()) {
    Epoch& last = cell.readers.back();
    if (last.rank == rank) {
      last.tick = std::max(last.tick, access.end);
      return;
    }
    if (order_.is_over(last, rank, access.begin)) {  // who comes after this read comes after that
      last = {rank, access.end};
      return;
    }
  }
  cell.readers.push_back({rank, access.end});
}

void Memories::note_write(Cell& cell, const Access& access, std::size_t begin,
                          std::size_t end) const {
  const int rank = access.moment.rank;
  if (!order_.is_over(cell.writer, rank, access.begin + 1))
    fail_race(access, "writes", begin, end, cell.writer, "writing");
  for (const Epoch& reader : cell.readers)
    if (!order_.is_over(reader, rank, access.begin + 1))
      fail_race(access, "writes", begin, end, reader, "reading");
  cell.readers.clear();
  cell.writer = {rank, access.end};
}

void Memories::fail_race(const Access& access, const char* verb, std::size_t begin, std::size_t end,
                         Epoch other, const char* doing) const {
  std::string text = describe_epoch({access.moment.rank, access.end});
  text += std::string(" ") + verb + " " + text_of(access.place, begin, end);
  throw Fault(text + " while " + describe_epoch(other) + " may still be " + doing + " it");
}

// Looks whether the step may touch the range at all.
Cells& Memories::reach(const Moment& moment, const Place& place, std::size_t count) {
  Cells& cells = memory_of(moment, place);
  const int owner = place.rank == here ? moment.rank : place.rank;
  const std::size_t limit =
      place.memory == Memory::data ? schedules_[owner].data_count : cells.count();
  if (place.begin > limit || count > limit - place.begin)
    fail(moment, "touches " + text_of(place, place.begin, place.begin + count) +
                     ", but that memory has " + std::to_string(limit) + " elements");
  return cells;
}

Cells& Memories::memory_of(const Moment& moment, const Place& place) {
  Rank& own = ranks_[moment.rank];
  if (place.rank == here) {
    switch (place.memory) {
      case Memory::input: return own.input;
      case Memory::output: return own.output;
      case Memory::scratch: return own.scratch;
      case Memory::data: return data_of(moment.rank, moment.operation);
    }
  }
  if (place.rank == moment.rank) fail(moment, "names its own rank, which is called `here`");
  if (place.memory != Memory::data) fail(moment, "reaches for other than data memory of a rank");
  if (place.rank < 0 || place.rank >= task_.size || !share_memory(task_, place.rank, moment.rank))
    fail(moment, "reaches for rank " + std::to_string(place.rank) + ", which is on another node");
  if (!schedules_[moment.rank].shared)
    fail(moment, "reaches for data of rank " + std::to_string(place.rank) +
                     ", but the schedule is not `shared`");
  const auto greeting = own.greeted.find(place.rank);
  if (greeting == own.greeted.end() || greeting->second > clock(moment))
    fail(moment, "reaches for data of rank " + std::to_string(place.rank) +
                     " before a message has come from there");
  return data_of(place.rank, moment.operation);
}

Cells& Memories::data_of(int rank, int operation) {
  const bool alternates = schedules_[rank].alternates;
  return ranks_[rank].data[alternates ? operation % 2 : 0];
}

void Memories::fail(const Moment& moment, const std::string& what) const {
  throw Fault(describe(schedules_, moment) + ": " + what);
}

std::string Memories::describe_epoch(Epoch epoch) const {
  const std::uint32_t ticks = ranks_[epoch.rank].ticks;
  const std::uint32_t tick = epoch.tick % ticks;
  const int operation = static_cast<int>(epoch.tick / ticks);
  const auto& steps = schedules_[epoch.rank].steps;
  const std::size_t step = tick < 2 ? 0 : (tick - 2 - (tick % 2 == 0 ? 1 : 0)) / 2;
  if (tick > 1 && step < steps.size())
    return describe(schedules_, {epoch.rank, operation, step, step});
  return "the caller of rank " + std::to_string(epoch.rank) + (tick < 2 ? " before" : " after") +
         " operation " + std::to_string(operation + 1);
}

}  // namespace tnt
