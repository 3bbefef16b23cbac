#include "ranks.h"

#include <exception>
#include <thread>

#include "transport/local.h"
#include "transport/paced.h"
#include "transport/router.h"
#include "transport/shared.h"

namespace tnt::test {
namespace {

constexpr std::size_t segment_bytes = std::size_t{1} << 30;  // of address space
constexpr double link_mbit_per_s = 100'000;

}  // namespace

Done Pending::done() {
  return [promise = promise_](const Failure& failure) { promise->set_value(failure.reason); };
}

std::string Pending::wait() {
  if (outcome_.wait_for(patience) != std::future_status::ready)
    throw CheckFailed("a collective did not end");
  return outcome_.get();
}

Ranks::Ranks(int size, double timeout_s, Joined joined, int lanes) {
  std::vector<std::shared_ptr<LocalNetwork>> networks;
  for (int lane = 0; lane < lanes; ++lane) networks.push_back(std::make_shared<LocalNetwork>(size));
  std::vector<int> node;
  std::vector<std::unique_ptr<Segment>> segments;
  std::vector<SegmentAddress> addresses;
  for (int rank = 0; rank < size; ++rank) {
    node.push_back(joined == Joined::by_memory ? 0 : joined == Joined::in_pairs ? rank / 2 : rank);
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
    if (joined == Joined::by_memory || joined == Joined::in_pairs)
      shared = std::make_shared<SharedNode>(std::move(segments[rank]), rank, near, near_addresses);
    const auto card = std::make_shared<Card>(link_mbit_per_s);
    std::vector<std::unique_ptr<Transport>> transports;
    for (int lane = 0; lane < lanes; ++lane) {
      transports.push_back(make_local_transport(networks[lane], rank));
      if (joined == Joined::by_links)
        transports.back() = make_paced_transport(std::move(transports.back()), card);
      if (shared != nullptr)
        transports.back() = make_router(make_shared_transport(shared, lane, rank, size),
                                        std::move(transports.back()), is_near);
    }
    engines_.push_back(std::make_unique<Engine>(std::move(transports), node, timeout_s));
  }
}

Ranks::~Ranks() {
  for (const auto& engine : engines_) engine->close();
}

void Ranks::run(const std::function<void(Engine&)>& body) {
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

void on_ranks(int size, const std::function<void(Engine&)>& body) { Ranks(size).run(body); }

void on_ranks_of_each_kind(int size, const std::function<void(Engine&)>& body, int lanes) {
  for (const Joined joined : every_joined) Ranks(size, 60, joined, lanes).run(body);
}

std::shared_ptr<Engine> borrowed(Engine& engine) {
  return std::shared_ptr<Engine>(&engine, [](Engine*) {});
}

void start(Engine& engine, std::uint32_t channel, Pending& pending, const Fill& fill) {
  Bucket& bucket = engine.take(channel);
  fill(bucket.request);
  engine.start(bucket, pending.done());
}

std::string call(Engine& engine, std::uint32_t channel, const Fill& fill, Way way) {
  Bucket& bucket = engine.take(channel);
  fill(bucket.request);
  if (way == Way::waited) {
    engine.begin(bucket);
    if (!engine.help(bucket, patience)) throw CheckFailed("a collective did not end");
    return engine.finish(bucket).reason;
  }
  Pending pending;
  if (way == Way::helped)
    engine.start_and_help(bucket, pending.done(), std::chrono::microseconds(10));
  else
    engine.start(bucket, pending.done());
  return pending.wait();
}

Fill barrier_of(const std::string& label) {
  return [label](Request& request) {
    request.collective = Collective::barrier;
    request.label = label;
  };
}

std::string barrier_and_wait(Engine& engine, const std::string& label) {
  return call(engine, 0, barrier_of(label));
}

}  // namespace tnt::test
