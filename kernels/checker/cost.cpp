#include "checker/cost.h"

#include <algorithm>
#include <stdexcept>

#include "checker/replay.h"

namespace tnt {
namespace {

// One message after another.
struct Line {
  double free_at = 0;

  double occupy(double from, double seconds) {
    free_at = std::max(free_at, from) + seconds;
    return free_at;
  }
};

struct Port {
  Line out, in;
};

class Timing : public Observer {
 public:
  Timing(const std::vector<Schedule>& schedules, const Task& task, const Costs& costs)
      : finished(schedules.size()),
        schedules_(schedules),
        task_(task),
        costs_(costs),
        ranks_(schedules.size()),
        node_of_(schedules.size()) {
    const auto nodes = ranks_by_node(task);
    for (std::size_t i = 0; i < nodes.size(); ++i)
      for (const int rank : nodes[i]) node_of_[rank] = i;
    nodes_.resize(nodes.size());
  }

  std::vector<double> finished;

 private:
  double local_step(const Moment&, const Step& step, double now) override {
    const bool copies = step.action == Action::copy;
    return now + bytes_of(step) * (copies ? costs_.copy_s_per_byte : costs_.reduce_s_per_byte);
  }

  Completion message_moves(const Moment& send, const Moment& receive, double now) override {
    const int source = send.rank, target = receive.rank;
    const bool in_memory = share_memory(task_, source, target);
    const LinkCost& cost = in_memory ? costs_.node : costs_.network;
    const double bytes = bytes_of(schedules_[source].steps[send.step]);
    const double moving = bytes * cost.seconds_per_byte;
    const double begin = std::max(now, ranks_[source].out.free_at);
    double sent = ranks_[source].out.occupy(begin, cost.latency_s + moving);
    double received = ranks_[target].in.occupy(begin, cost.latency_s + moving);
    const double passing = in_memory ? 0 : bytes * costs_.port_s_per_byte;
    if (passing > 0) {
      sent = std::max(sent, nodes_[node_of_[source]].out.occupy(begin + cost.latency_s, passing));
      const double leaves = sent - std::max(moving, passing);
      received = std::max(received, nodes_[node_of_[target]].in.occupy(leaves, passing));
    }
    return {sent, received};
  }

  void operation_ends(int rank, int, double now) override { finished[rank] = now; }

  double bytes_of(const Step& step) const {
    return static_cast<double>(step.count) * static_cast<double>(task_.element_bytes);
  }

  const std::vector<Schedule>& schedules_;
  const Task& task_;
  const Costs& costs_;
  std::vector<Port> ranks_, nodes_;
  std::vector<std::size_t> node_of_;
};

}  // namespace

std::vector<double> predict(const std::vector<Schedule>& schedules, const Task& task,
                            const Costs& costs) {
  Timing timing(schedules, task, costs);
  const std::string fault = replay(schedules, 1, timing);
  if (!fault.empty()) throw std::invalid_argument(fault);
  return timing.finished;
}

}  // namespace tnt
