// Ranks for the tests: engines joined by an in-process network, each driven by a thread of its own.
#pragma once

#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "engine/engine.h"
#include "transport/local.h"
#include "transport/router.h"
#include "transport/shared.h"

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

// What joins the ranks: messages only; one node that shares memory; nodes of two ranks each.
enum class Joined { by_messages, by_memory, in_pairs };
constexpr Joined every_joined[] = {Joined::by_messages, Joined::by_memory, Joined::in_pairs};

inline const char* name_of(Joined joined) {
  switch (joined) {
    case Joined::by_messages: return "messages";
    case Joined::by_memory: return "memory";
    case Joined::in_pairs: return "pairs";
  }
  return "?";
}

class Ranks {
 public:
  static constexpr std::size_t segment_bytes = std::size_t{1} << 30;  // of address space

  explicit Ranks(int size, double timeout_s = 60, Joined joined = Joined::by_messages,
                 int lanes = 1) {
    std::vector<std::shared_ptr<LocalNetwork>> networks;
    for (int lane = 0; lane < lanes; ++lane)
      networks.push_back(std::make_shared<LocalNetwork>(size));
    std::vector<int> node;
    std::vector<std::unique_ptr<Segment>> segments;
    std::vector<SegmentAddress> addresses;
    for (int rank = 0; rank < size; ++rank) {
      node.push_back(joined == Joined::by_messages ? rank
                     : joined == Joined::by_memory ? 0
                                                   : rank / 2);
      segments.push_back(std::make_unique<Segment>(segment_bytes));
      addresses.push_back(segments.back()->address());
    }
    for (int rank = 0; rank < size; ++rank) {
      std::vector<int> near;
      std::vector<SegmentAddress> near_addresses;
      std::vector<bool> is_near;
      for (int peer = 0; peer < size; ++peer) {
        is_near.push_back(node[peer] == node[rank]);
        if (!is_near.back()) continue;
        near.push_back(peer);
        near_addresses.push_back(addresses[peer]);
      }
      std::shared_ptr<SharedNode> shared;
      if (joined != Joined::by_messages)
        shared =
            std::make_shared<SharedNode>(std::move(segments[rank]), rank, near, near_addresses);
      std::vector<std::unique_ptr<Transport>> transports;
      for (int lane = 0; lane < lanes; ++lane) {
        transports.push_back(make_local_transport(networks[lane], rank));
        if (shared != nullptr)
          transports.back() = make_router(make_shared_transport(shared, lane, rank, size),
                                          std::move(transports.back()), is_near);
      }
      engines_.push_back(std::make_unique<Engine>(std::move(transports), node, timeout_s));
    }
  }

  // No rank's memory goes while another may use it.
  ~Ranks() {
    for (const auto& engine : engines_) engine->close();
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

// What a shared_ptr to an engine of `Ranks` is: it does not own.
inline std::shared_ptr<Engine> borrowed(Engine& engine) {
  return std::shared_ptr<Engine>(&engine, [](Engine*) {});
}

// How a call is made: handed to the engine's threads, or moved by the caller.
enum class Way { started, helped, waited };

// Starts what fill(request) says; pending ends with it.
template <class Fill>
void start(Engine& engine, std::uint32_t channel, Pending& pending, Fill fill) {
  Bucket& bucket = engine.take(channel);
  fill(bucket.request);
  engine.start(bucket, pending.done());
}

// The same, and waits.
template <class Fill>
Failure call(Engine& engine, std::uint32_t channel, Fill fill, Way way = Way::started) {
  Bucket& bucket = engine.take(channel);
  fill(bucket.request);
  if (way == Way::waited) {
    engine.begin(bucket);
    if (!engine.help(bucket, patience)) throw CheckFailed("a collective did not end");
    return engine.finish(bucket);
  }
  Pending pending;
  if (way == Way::helped)
    engine.start_and_help(bucket, pending.done(), std::chrono::microseconds(10));
  else
    engine.start(bucket, pending.done());
  return pending.wait();
}

// An allreduce of values that takes their place; as private memory, which is copied in and out.
template <class T>
auto allreduce_of(std::vector<T>& values, Type type, Reduction reduction, double scale = 1,
                  const std::string& algorithm = "") {
  return [&values, type, reduction, scale, algorithm](Request& request) {
    request.collective = Collective::allreduce;
    request.type = request.wire = type;
    request.reduction = reduction;
    request.scale = scale;
    request.count = values.size();
    request.algorithm = algorithm;
    request.label = "allreduce of values";
    request.inputs.add(reinterpret_cast<const std::byte*>(values.data()), values.size());
    request.outputs.add(reinterpret_cast<std::byte*>(values.data()), values.size());
  };
}

template <class T>
Failure allreduce_in_place(Engine& engine, Type type, Reduction reduction, std::vector<T>& values,
                           double scale = 1, std::uint32_t channel = 0, Way way = Way::started) {
  return call(engine, channel, allreduce_of(values, type, reduction, scale), way);
}

inline auto barrier_of(const std::string& label) {
  return [label](Request& request) {
    request.collective = Collective::barrier;
    request.label = label;
  };
}

inline Failure barrier_and_wait(Engine& engine, const std::string& label = "barrier") {
  return call(engine, 0, barrier_of(label));
}

}  // namespace tnt::test
