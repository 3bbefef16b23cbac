// TntSend   gives a tensor to another rank, and is done: it keeps the tensor until that has it.
// TntPost   makes room for a tensor of a known shape from another rank, and is done.
// TntTake   the tensor that was posted, when it is there. It holds no thread.
//
// What is sent or posted on a channel before the last one has come through waits in line there.
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "engine/transfer.h"
#include "tensorflow/kernel.h"

namespace tnt::tf {
namespace {

struct Transfer {
  Address address;
  int peer;
  DataType type;
  Type moved;  // as what the engine moves it

  // Of the last call.
  std::shared_ptr<const Schedule> schedule;
  std::size_t count = 0;
  std::weak_ptr<Engine> engine;

  explicit Transfer(TF_OpKernelConstruction* construction)
      : address(construction),
        peer(static_cast<int>(int_attribute(construction, "peer"))),
        type(type_attribute(construction, "T")),
        moved(reduced_type(type).value_or(Type::uint8)) {}

  Request request(const std::shared_ptr<Engine>& now, bool sends, std::size_t bytes) {
    const std::size_t elements = bytes / size_of(moved);
    const auto group = now->find_group(address.group);
    const Group& among = group == nullptr ? now->world() : *group;
    const int from = sends ? among.index : peer, to = sends ? peer : among.index;
    if (schedule == nullptr || count != elements || engine.lock() != now) {
      schedule = transfer(among, from, to, elements);
      count = elements;
      engine = now;
    }
    Request made;
    made.collective = Collective::broadcast;
    made.type = made.wire = moved;
    made.agreed = static_cast<std::uint64_t>(type);  // what is moved as bytes may be anything
    made.group = group;
    made.root = from;
    made.count = elements;
    made.schedule = schedule;
    made.label = address.label;
    made.is_transfer = true;
    made.peer = peer;
    return made;
  }
};

void send(Transfer& kernel, TF_OpKernelContext* context, const Callback& done) {
  const auto engine = kernel.address.engine();
  const auto tensor = std::make_shared<TensorOwner>(input(context, 0));
  Request request = kernel.request(engine, true, TF_TensorByteSize(tensor->get()));
  request.inputs.add(static_cast<const std::byte*>(TF_TensorData(tensor->get())), request.count);
  // A failure is the engine's: whatever the rank exchanges next says it.
  post(engine, kernel.address.channel, std::move(request), [tensor](const Failure&) {});
  done();
}

// A tensor on its way here, and who waits for it.
struct Arrival {
  std::weak_ptr<Engine> engine;
  TensorOwner tensor;

  std::mutex mutex;  // of what follows
  bool ended = false;
  Failure failure;
  std::function<void()> waiting;
};

// Arrivals by ticket: what TntPost hands to TntTake.
class Tickets {
 public:
  std::int64_t add(std::shared_ptr<Arrival> arrival) {
    std::lock_guard lock(mutex_);
    // What a step that failed has not taken goes when there is another engine.
    for (auto entry = arrivals_.begin(); entry != arrivals_.end();)
      entry = entry->second->engine.expired() ? arrivals_.erase(entry) : std::next(entry);
    arrivals_.emplace(next_, std::move(arrival));
    return next_++;
  }
  std::shared_ptr<Arrival> take(std::int64_t ticket) {
    std::lock_guard lock(mutex_);
    const auto found = arrivals_.extract(ticket);
    if (found.empty()) throw std::runtime_error("this tensor has been taken already");
    return found.mapped();
  }

 private:
  std::mutex mutex_;
  std::int64_t next_ = 0;
  std::unordered_map<std::int64_t, std::shared_ptr<Arrival>> arrivals_;
};

Tickets& tickets() {
  static auto& all = *new Tickets;  // lives as long as threads may use it
  return all;
}

void arrived(Arrival& arrival, const Failure& failure) {
  std::function<void()> waiting;
  {
    std::lock_guard lock(arrival.mutex);
    arrival.ended = true;
    arrival.failure = failure;
    waiting = std::move(arrival.waiting);
  }
  if (waiting) waiting();
}

void make_room(Transfer& kernel, TF_OpKernelContext* context, const Callback& done) {
  const auto engine = kernel.address.engine();
  const TensorOwner shape = input(context, 0);
  const auto* axes = static_cast<const std::int64_t*>(TF_TensorData(shape.get()));
  const auto n = static_cast<int>(TF_TensorByteSize(shape.get()) / sizeof(std::int64_t));
  std::size_t bytes = TF_DataTypeSize(kernel.type);
  for (int axis = 0; axis < n; ++axis) bytes *= axes[axis];
  const auto arrival = std::make_shared<Arrival>();
  arrival->engine = engine;
  arrival->tensor = output(context, 0, kernel.type, axes, n);
  Request request = kernel.request(engine, false, bytes);
  request.outputs.add(static_cast<std::byte*>(TF_TensorData(arrival->tensor.get())), request.count);
  const std::int64_t number = tickets().add(arrival);
  put(context, 1, number);
  post(engine, kernel.address.channel, std::move(request),
       [arrival](const Failure& failure) { arrived(*arrival, failure); });
  done();
}

void give(TF_OpKernelContext* context, Arrival& arrival) {
  const StatusOwner status = new_status();
  if (!arrival.failure.empty())
    fail(context, arrival.failure);
  else
    TF_SetOutput(context, 0, arrival.tensor.get(), status.get());
  if (TF_GetCode(status.get()) != TF_OK) TF_OpKernelContext_Failure(context, status.get());
  arrival.tensor.reset();  // the output's alone from here
}

void take(Nothing&, TF_OpKernelContext* context, const Callback& done) {
  std::int64_t ticket = 0;
  std::memcpy(&ticket, TF_TensorData(input(context, 1).get()), sizeof ticket);
  const auto arrival = tickets().take(ticket);
  {
    std::lock_guard lock(arrival->mutex);
    if (!arrival->ended) {
      arrival->waiting = [context, done, arrival] {
        give(context, *arrival);
        done();
      };
      return;
    }
  }
  give(context, *arrival);
  done();
}

}  // namespace

void define_transfers() {
  const Words input{"input: T"}, shape{"shape: int64"}, posted{"room: T", "ticket: int64"};
  const Words output{"output: T"}, type{"T: {" TNT_MOVED "}"};
  const Words with_peer = with_address({"T: {" TNT_MOVED "}", "peer: int"});
  define<Transfer, send>({"TntSend", input, {}, with_peer});
  define<Transfer, make_room>({"TntPost", shape, posted, with_peer});
  define<Nothing, take>({"TntTake", posted, output, type});
}

}  // namespace tnt::tf
