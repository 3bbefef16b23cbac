#include "engine/gather.h"

namespace tnt {

// Two collectives on one channel: first the sizes, then the blocks.
void gather(std::shared_ptr<Engine> engine, std::shared_ptr<const Group> group,
            std::uint32_t channel, const std::string& label, const void* input, std::size_t bytes,
            std::function<void*(std::size_t)> allocate, Done done) {
  const std::size_t size = group == nullptr ? engine->size() : group->size();
  auto sizes = std::make_shared<std::vector<std::int64_t>>(size + 1);
  sizes->back() = static_cast<std::int64_t>(bytes);

  Bucket& bucket = engine->take(channel);
  bucket.request.collective = Collective::allgather;
  bucket.request.type = bucket.request.wire = Type::int64;
  for (std::size_t i = 0; i <= size; ++i) bucket.request.offsets.push_back(i);
  bucket.request.group = group;
  bucket.request.label = label;
  bucket.request.inputs.add(reinterpret_cast<const std::byte*>(&sizes->back()), 1);
  bucket.request.outputs.add(reinterpret_cast<std::byte*>(sizes->data()), size);

  const auto gather_blocks = [=, owner = std::weak_ptr<Engine>(engine),
                              allocate = std::move(allocate),
                              done = std::move(done)](const Failure& failure) {
    const auto alive = owner.lock();
    if (!failure.empty() || alive == nullptr)
      return done(failure.empty() ? Failure{"communication is closed"} : failure);
    try {
      std::vector<std::size_t> offsets{0};
      for (std::size_t i = 0; i < size; ++i) offsets.push_back(offsets.back() + (*sizes)[i]);
      void* output = allocate(offsets.back());
      if (output == nullptr && offsets.back() != 0) throw std::bad_alloc();
      Bucket& blocks = alive->take(channel);
      blocks.request.collective = Collective::allgather;
      blocks.request.type = blocks.request.wire = Type::uint8;
      blocks.request.group = group;
      blocks.request.label = label;
      blocks.request.inputs.add(static_cast<const std::byte*>(input), bytes);
      blocks.request.outputs.add(static_cast<std::byte*>(output), offsets.back());
      blocks.request.offsets = std::move(offsets);
      alive->start(blocks, done);
    } catch (const std::exception& error) {
      // Out of memory for the blocks: the other ranks wait in them.
      const std::string reason =
          "rank " + std::to_string(alive->rank()) + ": " + error.what() + " in " + label;
      alive->abort(reason);
      done({reason});
    }
  };
  engine->start(bucket, gather_blocks);
}

}  // namespace tnt
