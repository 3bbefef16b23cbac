#include "checker/replay.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

namespace tnt {
namespace {

class Replay {
 public:
  Replay(const std::vector<Schedule>& schedules, int operations, Observer& observer)
      : schedules_(schedules),
        operations_(operations),
        observer_(observer),
        ranks_(schedules.size()) {}

  std::string run() {
    for (int rank = 0; rank < size(); ++rank) begin_operation(rank, 0);
    while (error_.empty() && !events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.is_round)
        begin_round(event.receive.rank, event.time);
      else
        move(event);
    }
    if (error_.empty()) find_waiting();
    return error_;
  }

 private:
  // Messages that end by the same step.
  struct Due {
    std::size_t end;
    std::size_t open;  // those that have not completed
    double time;       // when those that have were complete
  };

  struct Rank {
    int operation = 0;
    std::size_t begin = 0, end = 0;  // of the round under way
    std::vector<Due> dues;
    double time = 0;  // when all that the next round needs was complete
    bool waits = false;
    bool done = false;
  };

  // A message that may move, or a round of receive.rank that may begin.
  struct Event {
    double time;
    std::size_t sequence;
    bool is_round;
    Moment send, receive;
    bool operator<(const Event& other) const {  // the top of a queue is its greatest
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };

  struct Post {
    Moment moment;
    double time;
  };

  // The messages from one rank to another that wait for their other end: only sends, or only
  // receives.
  struct Link {
    std::vector<Post> waiting;
    std::size_t first = 0;
  };

  int size() const { return static_cast<int>(schedules_.size()); }
  const std::vector<Step>& steps_of(int rank) const { return schedules_[rank].steps; }
  Rank& at(int rank) { return ranks_[rank]; }

  void fail(const Moment& moment, const std::string& what) {
    if (error_.empty()) error_ = describe(schedules_, moment) + ": " + what;
  }

  void begin_operation(int rank, int operation) {
    Rank& state = at(rank);
    state.operation = operation;
    state.begin = state.end = 0;
    observer_.operation_begins(rank, operation);
    push({state.time, 0, true, {}, {rank, operation, 0, 0}});
  }

  void push(Event event) {
    event.sequence = ++sequence_;
    events_.push(event);
  }

  void begin_round(int rank, double now) {
    Rank& state = at(rank);
    const auto& steps = steps_of(rank);
    state.begin = state.end;
    if (state.begin == steps.size()) return end_operation(rank, now);
    while (state.end < steps.size() && steps[state.end].round == steps[state.begin].round)
      ++state.end;
    Moment moment{rank, state.operation, state.begin, 0};
    if (state.end < steps.size() && steps[state.end].round < steps[state.begin].round) {
      moment.step = state.end;
      return fail(moment, "is of an earlier round than the step before it");
    }
    for (; moment.step < state.end && error_.empty(); ++moment.step) {
      const Step& step = steps[moment.step];
      if (step.is_message())
        post(moment, step, now);
      else
        now = observer_.local_step(moment, step, now);
    }
    state.time = std::max(state.time, now);
    state.waits = true;
    end_round_if_complete(rank);
  }

  void post(Moment moment, const Step& step, double now) {
    if (step.peer < 0 || step.peer >= size() || step.peer == moment.rank)
      return fail(moment, "has the peer " + std::to_string(step.peer) + ", of " +
                              std::to_string(size()) + " ranks");
    if (step.span < 1) return fail(moment, "spans no round");
    Rank& state = at(moment.rank);
    const auto& steps = steps_of(moment.rank);
    moment.end = state.end;
    while (moment.end < steps.size() && steps[moment.end].round - step.round < step.span)
      ++moment.end;
    observer_.message_starts(moment, step);
    ++due(state, moment.end).open;
    const bool sends = step.action == Action::send;
    Link& link = link_of(sends ? moment.rank : step.peer, sends ? step.peer : moment.rank);
    if (link.waiting.empty() || action_of(link.waiting.back().moment) == step.action) {
      link.waiting.push_back({moment, now});
      return;
    }
    const Post other = link.waiting[link.first++];
    if (link.first == link.waiting.size()) {
      link.waiting.clear();
      link.first = 0;
    }
    match(sends ? moment : other.moment, sends ? other.moment : moment, std::max(now, other.time));
  }

  void match(const Moment& send, const Moment& receive, double time) {
    if (send.operation != receive.operation)
      return fail(send, "meets a receive of another operation, " + describe(schedules_, receive));
    const std::size_t sent = step_of(send).count, received = step_of(receive).count;
    if (sent != received)
      return fail(send, "sends " + std::to_string(sent) + " elements, but " +
                            describe(schedules_, receive) + " takes " + std::to_string(received));
    push({time, 0, false, send, receive});
  }

  void move(const Event& event) {
    const auto completion = observer_.message_moves(event.send, event.receive, event.time);
    complete(event.send, completion.send);
    complete(event.receive, completion.receive);
  }

  static Due& due(Rank& state, std::size_t end) {
    for (Due& due : state.dues)
      if (due.end == end) return due;
    return state.dues.emplace_back(Due{end, 0, 0});
  }

  void complete(const Moment& moment, double time) {
    Due& messages = due(at(moment.rank), moment.end);
    messages.time = std::max(messages.time, time);
    if (--messages.open == 0) end_round_if_complete(moment.rank);
  }

  void end_round_if_complete(int rank) {
    Rank& state = at(rank);
    const auto is_needed = [&](const Due& due) { return due.end <= state.end; };
    for (const Due& due : state.dues)
      if (is_needed(due) && due.open != 0) return;
    if (!state.waits) return;
    state.waits = false;
    for (const Due& due : state.dues)
      if (is_needed(due)) state.time = std::max(state.time, due.time);
    state.dues.erase(std::remove_if(state.dues.begin(), state.dues.end(), is_needed),
                     state.dues.end());
    observer_.messages_end(rank, state.operation, state.end);
    push({state.time, 0, true, {}, {rank, state.operation, 0, 0}});
  }

  void end_operation(int rank, double now) {
    const int operation = at(rank).operation;
    observer_.operation_ends(rank, operation, now);
    if (operation + 1 < operations_)
      begin_operation(rank, operation + 1);
    else
      at(rank).done = true;
  }

  // Of the messages that wait for ever, names one whose peer has ended: the others may only be
  // its consequence.
  void find_waiting() {
    const Moment* found = nullptr;
    const auto is_better = [&](const Moment& moment) {
      if (found == nullptr) return true;
      const bool ended = at(step_of(moment).peer).done, found_ended = at(step_of(*found).peer).done;
      if (ended != found_ended) return ended;
      return std::make_pair(moment.rank, moment.step) < std::make_pair(found->rank, found->step);
    };
    for (const auto& [ends, link] : links_)
      for (std::size_t i = link.first; i < link.waiting.size(); ++i)
        if (is_better(link.waiting[i].moment)) found = &link.waiting[i].moment;
    if (found == nullptr) return;
    const int peer = step_of(*found).peer;
    std::string what = "waits for ever for rank " + std::to_string(peer);
    if (at(peer).done)
      what += ", which has ended";
    else
      what += ", which waits in round " + std::to_string(steps_of(peer)[at(peer).begin].round);
    fail(*found, what);
  }

  Link& link_of(int source, int target) {
    return links_[static_cast<std::uint64_t>(source) << 32 | static_cast<std::uint32_t>(target)];
  }
  const Step& step_of(const Moment& moment) const { return steps_of(moment.rank)[moment.step]; }
  Action action_of(const Moment& moment) const { return step_of(moment).action; }

  const std::vector<Schedule>& schedules_;
  const int operations_;
  Observer& observer_;
  std::vector<Rank> ranks_;
  std::unordered_map<std::uint64_t, Link> links_;
  std::priority_queue<Event> events_;
  std::size_t sequence_ = 0;
  std::string error_;
};

}  // namespace

std::string replay(const std::vector<Schedule>& schedules, int operations, Observer& observer) {
  return Replay(schedules, operations, observer).run();
}

std::string describe(const std::vector<Schedule>& schedules, const Moment& moment) {
  const auto& steps = schedules[moment.rank].steps;
  std::string text = "rank " + std::to_string(moment.rank);
  if (moment.step < steps.size()) {
    const Step& step = steps[moment.step];
    text += ", round " + std::to_string(step.round) + ", step " + std::to_string(moment.step) +
            " (" + action_names[static_cast<int>(step.action)] + ")";
  } else {
    text += ", at the end";
  }
  if (moment.operation > 0) text += " of operation " + std::to_string(moment.operation + 1);
  return text;
}

}  // namespace tnt
