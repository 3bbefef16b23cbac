// Ranks for the tests: engines joined by an in-process network, each driven by a thread of its own.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "engine/engine.h"

namespace tnt::test {

// No wait in a test is longer: what hangs is a failure and not a hanging test.
constexpr auto patience = std::chrono::seconds(120);

// One call under way: hand over done(), then wait().
class Pending {
 public:
  Done done();
  std::string wait();
  bool ended() { return outcome_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

 private:
  std::shared_ptr<std::promise<std::string>> promise_ =
      std::make_shared<std::promise<std::string>>();
  std::future<std::string> outcome_ = promise_->get_future();
};

// What joins the ranks: messages only; one node that shares memory; nodes of two ranks each;
// messages over emulated links.
enum class Joined { by_messages, by_memory, in_pairs, by_links };
constexpr Joined every_joined[] = {Joined::by_messages, Joined::by_memory, Joined::in_pairs,
                                   Joined::by_links};

class Ranks {
 public:
  explicit Ranks(int size, double timeout_s = 60, Joined joined = Joined::by_messages,
                 int lanes = 1);

  // No rank's memory goes while another may use it.
  ~Ranks();

  Engine& operator[](int rank) { return *engines_[rank]; }

  // Calls body(engine) for all ranks at once; throws what the first of them threw.
  void run(const std::function<void(Engine&)>& body);

 private:
  std::vector<std::unique_ptr<Engine>> engines_;
};

// Calls body(engine) for so many new ranks at once, joined by messages; and in each way.
void on_ranks(int size, const std::function<void(Engine&)>& body);
void on_ranks_of_each_kind(int size, const std::function<void(Engine&)>& body, int lanes = 1);

// What a shared_ptr to an engine of `Ranks` is: it does not own.
std::shared_ptr<Engine> borrowed(Engine& engine);

// How a call is made: handed to the engine's threads, or moved by the caller.
enum class Way { started, helped, waited };

// Starts what fill(request) says; pending ends with it.
using Fill = std::function<void(Request&)>;
void start(Engine& engine, std::uint32_t channel, Pending& pending, const Fill& fill);

// The same, and waits.
std::string call(Engine& engine, std::uint32_t channel, const Fill& fill, Way way = Way::started);

// Values of a request: what it reads, and where it writes.
template <class T>
void give(Request& request, const std::vector<T>& values) {
  request.inputs.add(reinterpret_cast<const std::byte*>(values.data()), values.size());
}
template <class T>
void take(Request& request, std::vector<T>& values) {
  request.outputs.add(reinterpret_cast<std::byte*>(values.data()), values.size());
}

// An allreduce of values that takes their place; as private memory, which is copied in and out.
template <class T>
auto allreduce_of(std::vector<T>& values, Type type, Reduction reduction,
                  const std::string& algorithm = "") {
  return [&values, type, reduction, algorithm](Request& request) {
    request.collective = Collective::allreduce;
    request.type = request.wire = type;
    request.reduction = reduction;
    request.count = values.size();
    request.algorithm = algorithm;
    request.label = "allreduce of values";
    give(request, values);
    take(request, values);
  };
}

template <class T>
std::string allreduce_in_place(Engine& engine, Type type, Reduction reduction,
                               std::vector<T>& values, std::uint32_t channel = 0,
                               Way way = Way::started) {
  return call(engine, channel, allreduce_of(values, type, reduction), way);
}

Fill barrier_of(const std::string& label);
std::string barrier_and_wait(Engine& engine, const std::string& label = "barrier");

}  // namespace tnt::test
