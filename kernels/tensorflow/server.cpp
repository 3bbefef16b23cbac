// TntServe        an update of the weights that all ranks serve, and what they have then
// TntLeaveServer  the end of it: this rank's part of the weights, when no rank sends any more;
//                 empty if nothing is served
//
// The first TntServe of a channel begins to serve the weights that it is given.
#include "engine/server.h"

#include <cstring>
#include <map>

#include "tensorflow/kernel.h"

namespace tnt::tf {
namespace {

// By world, group and channel: what TntServe begins and TntLeaveServer ends.
class Servers {
 public:
  using Key = std::tuple<int, int, std::uint32_t>;

  // Null if there is none, or if it is of an engine that has failed since.
  std::shared_ptr<Server> find(const Key& key, const std::shared_ptr<Engine>& engine) {
    std::lock_guard lock(mutex_);
    const auto found = servers_.find(key);
    if (found == servers_.end()) return nullptr;
    if (found->second->is_of(engine)) return found->second;
    servers_.erase(found);
    return nullptr;
  }
  void keep(const Key& key, std::shared_ptr<Server> server) {
    std::lock_guard lock(mutex_);
    servers_[key] = std::move(server);
  }
  void forget(const Key& key) {
    std::lock_guard lock(mutex_);
    servers_.erase(key);
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Server>> servers_;
};

Servers& servers() {
  static auto& all = *new Servers;  // lives as long as threads may use it
  return all;
}

Servers::Key key_of(const Address& address) {
  return {address.world, address.group, address.channel};
}

struct Serve {
  Address address;
  std::int64_t staleness;

  explicit Serve(TF_OpKernelConstruction* construction)
      : address(construction), staleness(int_attribute(construction, "staleness")) {}
};

TensorOwner floats(TF_OpKernelContext* context, std::size_t count) {
  const auto axis = static_cast<std::int64_t>(count);
  return output(context, 0, TF_FLOAT, &axis, 1);
}

float* floats_of(const TensorOwner& tensor) {
  return static_cast<float*>(TF_TensorData(tensor.get()));
}

// Calls next(), which may throw, unless something has failed; then done().
template <class Next>
Done then(TF_OpKernelContext* context, const Callback& done, Next next) {
  return [context, done, next](const Failure& failure) {
    try {
      if (!failure.empty())
        fail(context, failure);
      else
        next();
    } catch (const std::exception& error) {
      fail(context, TF_INTERNAL, error.what());
    }
    done();
  };
}

// Without staleness the answer to this update is waited for. With it, that to the one before, which
// has had a step's time: it lacks one update more, and this rank adds its own itself.
void serve(Serve& kernel, TF_OpKernelContext* context, const Callback& done) {
  const auto engine = kernel.address.engine();
  const auto update = std::make_shared<const TensorOwner>(input(context, 0));
  const TensorOwner weights = input(context, 1);
  const std::size_t count = TF_TensorByteSize(update->get()) / sizeof(float);
  if (TF_TensorByteSize(weights.get()) != count * sizeof(float))
    throw std::runtime_error("an update has as many elements as the weights");
  const bool is_late = kernel.staleness > 0;
  const auto key = key_of(kernel.address);
  auto server = servers().find(key, engine);
  const auto answer = [context, count, update, is_late](const float* before, std::int64_t behind) {
    const TensorOwner served = floats(context, count);
    float* const to = floats_of(served);
    const float* const own = floats_of(*update);
    for (std::size_t i = 0; i < count; ++i) to[i] = is_late ? before[i] + own[i] : before[i];
    put(context, 1, behind);
  };
  if (server == nullptr) {
    server = std::make_shared<Server>(
        engine, engine->find_group(kernel.address.group), kernel.address.channel, count,
        std::max<std::int64_t>(0, kernel.staleness - 1), kernel.address.label);
    server->begin(floats_of(weights));
    servers().keep(key, server);
    if (is_late) {
      server->send(floats_of(*update), update);
      answer(floats_of(weights), 0);
      return done();
    }
  }
  if (!is_late) server->send(floats_of(*update), update);
  server->take(then(context, done, [server, update, answer, is_late] {
    answer(server->answer(), server->behind() + (is_late ? 1 : 0));
    if (is_late) server->send(floats_of(*update), update);
  }));
}

struct Leave {
  Address address;

  explicit Leave(TF_OpKernelConstruction* construction) : address(construction) {}
};

void leave(Leave& kernel, TF_OpKernelContext* context, const Callback& done) {
  const auto key = key_of(kernel.address);
  const auto server = servers().find(key, kernel.address.engine());
  const auto give = [context](const std::vector<float>& part) {
    const TensorOwner left = floats(context, part.size());
    std::copy(part.begin(), part.end(), floats_of(left));
  };
  if (server == nullptr) {
    give({});
    return done();
  }
  const auto left = then(context, done, [give, server, key] {
    give(server->part());
    servers().forget(key);
  });
  server->take([server, left](const Failure& failure) {
    failure.empty() ? server->leave(left) : left(failure);
  });
}

}  // namespace

void define_servers() {
  define<Serve, serve>({"TntServe", Words{"update: float", "weights: float"},
                        Words{"served: float", "behind: int64"}, with_address({"staleness: int"})});
  define<Leave, leave>({"TntLeaveServer", {}, Words{"part: float"}, with_address({})});
}

}  // namespace tnt::tf
