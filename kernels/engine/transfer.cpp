#include "engine/transfer.h"

#include "collective/writer.h"

namespace tnt {

std::shared_ptr<const Schedule> transfer(const Group& group, int from, int to, std::size_t count) {
  Task task;
  task.rank = group.index;
  task.node = group.node;
  // Within a node the receiver takes it from the sender itself, and says when it has. With nothing
  // to take there is still a message: the two must agree on that.
  const bool reaches = count == 0 || share_memory(task, from, to);
  Writer writer(task);
  if (task.rank == from) {
    writer.copy_in({0, count});
    writer.next_round();
    if (reaches) {
      writer.signal(to);
      writer.await(to);
    } else {
      writer.send(to, data_at(0), count);
    }
  } else if (reaches) {
    writer.await(from);
    writer.next_round();
    writer.copy(output_at(0), writer.data_of(from, 0), count);
    writer.signal(from);
  } else {
    writer.receive(from, data_at(0), count);
    writer.next_round();
    writer.copy_out({0, count});
  }
  return std::make_shared<const Schedule>(writer.finish());
}

void post(const std::shared_ptr<Engine>& engine, std::uint32_t channel, Request request,
          Done done) {
  // The engine must not own itself by what waits in it.
  engine->take_in_turn(channel,
                       [owner = std::weak_ptr<Engine>(engine), request = std::move(request),
                        done = std::move(done)](Bucket* bucket) mutable {
                         const auto alive = owner.lock();
                         if (alive == nullptr) return done({"communication is closed"});
                         if (bucket == nullptr) return done(alive->failure());
                         bucket->request = std::move(request);
                         try {
                           alive->start_and_help(*bucket, done, std::chrono::nanoseconds(0));
                         } catch (const std::exception& error) {
                           done({error.what()});
                         }
                       });
}

}  // namespace tnt
