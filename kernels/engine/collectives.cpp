#include "engine/collectives.h"

#include <cstring>

#include "collective/algorithms.h"

namespace tnt {
namespace {

enum Kind : std::size_t { kind_allreduce, kind_allgather, kind_broadcast, kind_barrier };

// Takes the channel's bucket, makes its schedule unless it is the one that `key` names, sizes its
// memory for `count` elements and has it filled. The channel is free again if any of that throws.
template <class Make, class Fill>
Bucket& take(Engine& engine, std::uint32_t channel, std::vector<std::size_t> key,
             std::size_t element_bytes, std::size_t count, Make&& make, Fill&& fill) {
  Bucket& bucket = engine.take_bucket(channel);
  try {
    if (bucket.schedule_key != key) {
      bucket.schedule = make();
      bucket.schedule_key = std::move(key);
    }
    bucket.scratch.reserve(bucket.schedule.scratch_count * element_bytes);
    fill(bucket.data.reserve(count * element_bytes));
  } catch (...) {
    engine.release_bucket(channel);
    throw;
  }
  return bucket;
}

// Runs the bucket's schedule; then `copy_out` on success, and done() in any case.
void run(Engine& engine, Call call, Bucket& bucket, Type type, Reduction reduction,
         std::size_t bytes, std::function<void(const std::byte*)> copy_out, Done done) {
  Operation operation;
  operation.channel = call.channel;
  operation.label = std::move(call.label);
  operation.schedule = &bucket.schedule;
  operation.type = type;
  operation.reduction = reduction;
  operation.data = bucket.data.reserve(0);
  operation.scratch = bucket.scratch.reserve(0);
  operation.done = [&engine, &bucket, bytes, channel = call.channel, copy_out = std::move(copy_out),
                    done = std::move(done)](const Failure& failure) {
    if (failure.empty() && copy_out) {
      const std::uint64_t begin = now_ns();
      copy_out(bucket.data.reserve(0));
      engine.trace().record(EventKind::copy_out, channel, begin, now_ns(), bytes);
    }
    // After a failure messages may still be under way from here: the bucket is used no more.
    if (failure.empty()) engine.release_bucket(channel);
    done(failure);
  };
  engine.start(std::move(operation));
}

}  // namespace

void allreduce(Engine& engine, Call call, Type type, Reduction reduction,
               std::vector<Tensor> tensors, double scale, Done done) {
  const std::size_t element_bytes = size_of(type);
  std::size_t count = 0;
  for (const Tensor& tensor : tensors) count += tensor.count;
  const std::size_t bytes = count * element_bytes;
  const std::uint64_t ready = now_ns();
  engine.trace().record(EventKind::ready, call.channel, ready, ready, bytes);

  if (engine.size() == 1) {
    for (const Tensor& tensor : tensors)
      if (tensor.output != tensor.input || scale != 1.0)
        scaled_copy(type, tensor.output, tensor.input, scale, tensor.count);
    engine.trace().record(EventKind::copy_in, call.channel, ready, now_ns(), bytes);
    done(engine.failure());
    return;
  }
  if (const Failure failure = engine.failure(); !failure.empty()) return done(failure);
  Bucket& bucket = take(
      engine, call.channel, {kind_allreduce, count, element_bytes}, element_bytes, count,
      [&] { return allreduce(engine.rank(), engine.size(), count, element_bytes); },
      [&](std::byte* memory) {
        for (const Tensor& tensor : tensors) {
          scaled_copy(type, memory, tensor.input, scale, tensor.count);
          memory += tensor.count * element_bytes;
        }
      });
  engine.trace().record(EventKind::copy_in, call.channel, ready, now_ns(), bytes);
  const auto copy_out = [tensors = std::move(tensors), element_bytes](const std::byte* result) {
    for (const Tensor& tensor : tensors) {
      const std::size_t tensor_bytes = tensor.count * element_bytes;
      if (tensor_bytes != 0) std::memcpy(tensor.output, result, tensor_bytes);
      result += tensor_bytes;
    }
  };
  run(engine, std::move(call), bucket, type, reduction, bytes, copy_out, std::move(done));
}

// Two collectives on one channel: first the sizes, then the blocks.
void allgather(Engine& engine, Call call, const void* input, std::size_t bytes,
               std::function<void*(std::size_t)> allocate, Done done) {
  const std::size_t size = static_cast<std::size_t>(engine.size());
  const std::size_t rank = static_cast<std::size_t>(engine.rank());
  if (size == 1) {
    if (void* output = allocate(bytes); output != nullptr && bytes != 0)
      std::memcpy(output, input, bytes);
    return done(engine.failure());
  }
  if (const Failure failure = engine.failure(); !failure.empty()) return done(failure);
  const auto* begin = static_cast<const std::byte*>(input);
  std::vector<std::byte> block(begin, begin + bytes);

  constexpr std::size_t word = sizeof(std::uint64_t);
  Bucket& bucket = take(
      engine, call.channel, {kind_allgather}, word, size,
      [&] {
        std::vector<std::size_t> offsets(size + 1);
        for (std::size_t i = 0; i <= size; ++i) offsets[i] = i;
        return allgather_ring(engine.rank(), engine.size(), offsets);
      },
      [&](std::byte* memory) {
        const std::uint64_t own = bytes;
        std::memcpy(memory + rank * word, &own, word);
      });

  auto offsets = std::make_shared<std::vector<std::size_t>>(size + 1);
  const auto read_sizes = [offsets, size](const std::byte* sizes) {
    for (std::size_t i = 0; i < size; ++i) {
      std::uint64_t bytes_of_rank = 0;
      std::memcpy(&bytes_of_rank, sizes + i * word, word);
      (*offsets)[i + 1] = (*offsets)[i] + bytes_of_rank;
    }
  };
  const auto gather_blocks = [&engine, call, offsets, rank, block = std::move(block),
                              allocate = std::move(allocate),
                              done = std::move(done)](const Failure& failure) {
    if (!failure.empty()) return done(failure);
    try {
      const std::size_t total = offsets->back();
      void* output = allocate(total);
      std::vector<std::size_t> key{kind_allgather};
      key.insert(key.end(), offsets->begin(), offsets->end());
      Bucket& blocks = take(
          engine, call.channel, std::move(key), 1, total,
          [&] { return allgather_ring(engine.rank(), engine.size(), *offsets); },
          [&](std::byte* memory) {
            if (!block.empty()) std::memcpy(memory + (*offsets)[rank], block.data(), block.size());
          });
      const auto copy_out = [output, total](const std::byte* result) {
        if (output != nullptr && total != 0) std::memcpy(output, result, total);
      };
      run(engine, call, blocks, Type::uint8, Reduction::sum, total, copy_out, done);
    } catch (const std::exception& error) {
      // Out of memory for the blocks: the other ranks wait in them.
      const Failure reason =
          "rank " + std::to_string(rank) + ": " + error.what() + " in " + call.label;
      engine.abort(reason);
      done(reason);
    }
  };
  run(engine, call, bucket, Type::int64, Reduction::sum, size * word, read_sizes, gather_blocks);
}

void broadcast(Engine& engine, Call call, void* memory, std::size_t bytes, int root, Done done) {
  if (engine.size() == 1) return done(engine.failure());
  if (const Failure failure = engine.failure(); !failure.empty()) return done(failure);
  const bool is_root = engine.rank() == root;
  Bucket& bucket = take(
      engine, call.channel, {kind_broadcast, bytes, static_cast<std::size_t>(root)}, 1, bytes,
      [&] { return broadcast_binomial(engine.rank(), engine.size(), bytes, root); },
      [&](std::byte* data) {
        if (is_root && bytes != 0) std::memcpy(data, memory, bytes);
      });
  const auto copy_out = [memory, bytes, is_root](const std::byte* result) {
    if (!is_root && bytes != 0) std::memcpy(memory, result, bytes);
  };
  run(engine, std::move(call), bucket, Type::uint8, Reduction::sum, bytes, copy_out,
      std::move(done));
}

void barrier(Engine& engine, Call call, Done done) {
  if (const Failure failure = engine.failure(); !failure.empty()) return done(failure);
  Bucket& bucket = take(
      engine, call.channel, {kind_barrier}, 1, 0,
      [&] { return barrier_dissemination(engine.rank(), engine.size()); }, [](std::byte*) {});
  run(engine, std::move(call), bucket, Type::uint8, Reduction::sum, 0, nullptr, std::move(done));
}

}  // namespace tnt
