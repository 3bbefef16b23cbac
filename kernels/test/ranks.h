// Ranks for the tests: engines joined by an in-process network, each driven by a thread of its own.
#pragma once

#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "engine/collectives.h"
#include "transport/local.h"

namespace tnt::test {

// No wait in a test is longer: what hangs is a failure and not a hanging test.
constexpr auto patience = std::chrono::seconds(120);

// One call under way: hand over done(), then wait().
class Pending {
 public:
  Done done() {
    return [promise = promise_](const Failure& failure) { promise->set_value(failure); };
  }
  Failure wait() {
    if (outcome_.wait_for(patience) != std::future_status::ready)
      throw CheckFailed("a collective did not end");
    return outcome_.get();
  }
  bool ended() { return outcome_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

 private:
  std::shared_ptr<std::promise<Failure>> promise_ = std::make_shared<std::promise<Failure>>();
  std::future<Failure> outcome_ = promise_->get_future();
};

class Ranks {
 public:
  explicit Ranks(int size, double timeout_s = 60) {
    auto network = std::make_shared<LocalNetwork>(size);
    for (int rank = 0; rank < size; ++rank)
      engines_.push_back(std::make_unique<Engine>(make_local_transport(network, rank), timeout_s));
  }

  Engine& operator[](int rank) { return *engines_[static_cast<std::size_t>(rank)]; }

  // Calls body(engine) for all ranks at once; throws what the first of them threw.
  template <class Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> errors(engines_.size());
    for (std::size_t i = 0; i < engines_.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          body(*engines_[i]);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }

 private:
  std::vector<std::unique_ptr<Engine>> engines_;
};

// In place, and waited for.
template <class T>
Failure allreduce_in_place(Engine& engine, Type type, Reduction reduction, std::vector<T>& values,
                           double scale = 1, std::uint32_t channel = 0) {
  Pending pending;
  allreduce(engine, {channel, "allreduce of values"}, type, reduction,
            {{values.data(), values.data(), values.size()}}, scale, pending.done());
  return pending.wait();
}

inline Failure barrier_and_wait(Engine& engine, const std::string& label = "barrier") {
  Pending pending;
  barrier(engine, {0, label}, pending.done());
  return pending.wait();
}

}  // namespace tnt::test
