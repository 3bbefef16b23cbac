// Once a channel has seen a request, the same request again allocates nothing, on any thread.
#include <atomic>
#include <cstdlib>
#include <new>

#include "check.h"
#include "ranks.h"

namespace {

std::atomic<std::size_t> allocations{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

using namespace tnt;
using namespace tnt::test;

namespace {

constexpr int size = 3, steps = 200, most_times = 20;
constexpr std::size_t count = 3000;

// All threads of the ranks meet here.
class Meeting {
 public:
  void wait() {
    const int round = arrived_++ / size;
    while (arrived_ < (round + 1) * size) std::this_thread::yield();
  }

 private:
  std::atomic<int> arrived_{0};
};

// What 200 calls of step(engine) on all ranks allocate.
template <class Step>
std::size_t allocations_now(Ranks& ranks, Step step) {
  Meeting meeting;
  std::atomic<std::size_t> before{0}, after{0};
  ranks.run([&](Engine& engine) {
    meeting.wait();
    before = allocations.load();
    meeting.wait();
    for (int i = 0; i < steps; ++i) step(engine);
    meeting.wait();
    after = allocations.load();
    meeting.wait();
  });
  return after - before;
}

// The same in the long run: lists grow until they have had as many entries as ever.
template <class Step>
std::size_t allocations_of(Ranks& ranks, Step step) {
  std::size_t found = 1;
  for (int time = 0; found != 0 && time < most_times; ++time) found = allocations_now(ranks, step);
  return found;
}

// Ends with done(), which TensorFlow's next nodes run in.
struct Ended {
  std::atomic<int> calls{0}, failures{0};
  void wait(int expected) const {
    while (calls < expected) std::this_thread::yield();
  }
};

std::vector<std::vector<std::vector<float>>> tensors_of_ranks() {
  return std::vector(size, std::vector(4, std::vector<float>(count)));
}

// Four tensors of one bucket with a label, as TensorFlow's op fills it.
void fill(Request& request, std::vector<std::vector<float>>& tensors) {
  static const std::string label = "allreduce of bucket 3 (dense/kernel, dense/bias)";
  request.type = request.wire = Type::float32;
  request.scale = 0.5;
  request.label = label;
  request.agreed = 7;
  for (auto& tensor : tensors) {
    give(request, tensor);
    take(request, tensor);
  }
  request.count = request.inputs.count();
}

void fill_in_place(Request& request) {
  request.type = request.wire = Type::float32;
  request.count = count;
  request.in_place = true;
  request.label.assign("allreduce in place of float32");
}

}  // namespace

TEST(the_counter_counts) {
  const std::size_t before = allocations;
  std::vector<int>(1000).swap(*std::make_unique<std::vector<int>>());
  CHECK_EQUAL(allocations - before, 2u);
}

TEST(a_bucket_that_a_caller_waits_for_allocates_nothing) {
  for (const int lanes : {1, 2}) {
    Ranks ranks(size, 60, Joined::by_memory, lanes);
    const auto step = [&](Engine& engine) {
      for (const std::uint32_t channel : {3u, 4u}) {
        Bucket& bucket = engine.take(channel);
        engine.memory(bucket, count * sizeof(float));
        fill_in_place(bucket.request);
        engine.begin(bucket);
        CHECK(engine.help(bucket, patience));
        CHECK_EQUAL(engine.finish(bucket).reason, "");
      }
    };
    CHECK_EQUAL(allocations_of(ranks, step), 0u);
  }
}

TEST(buckets_as_tensorflow_starts_them_allocate_nothing) {
  constexpr int buckets = 3;
  for (const int lanes : {1, 2}) {
    for (const auto limit : {std::chrono::microseconds(0), std::chrono::microseconds(15)}) {
      Ranks ranks(size, 60, Joined::by_memory, lanes);
      std::vector<Ended> ended(size);
      std::vector<int> started(size);
      std::vector tensors(buckets, tensors_of_ranks());
      const auto step = [&](Engine& engine) {
        const int rank = engine.rank();
        for (std::uint32_t number = 0; number < buckets; ++number) {
          Bucket& bucket = engine.take(16 + number);
          fill(bucket.request, tensors[number][rank]);
          const auto done = [&one = ended[rank]](const Failure& failure) {
            if (!failure.empty()) ++one.failures;
            ++one.calls;
          };
          if (limit.count() == 0)
            engine.start(bucket, done);
          else
            engine.start_and_help(bucket, done, limit);
        }
        ended[rank].wait(started[rank] += buckets);
      };
      CHECK_EQUAL(allocations_of(ranks, step), 0u);
      for (const Ended& one : ended) CHECK_EQUAL(one.failures, 0);
    }
  }
}

TEST(schedules_of_several_sizes_and_groups_on_one_channel_are_kept) {
  Ranks ranks(size, 60, Joined::by_memory);
  for (int rank = 0; rank < size; ++rank) ranks[rank].add_group(1, {0, 1, 2});
  auto tensors = tensors_of_ranks();
  const auto step = [&](Engine& engine) {
    for (const std::size_t elements : {1u, 100u, 3000u})
      for (const int group : {0, 1}) {
        Bucket& bucket = engine.take(5);
        Request& request = bucket.request;
        std::vector<float>& values = tensors[engine.rank()][0];
        request.type = request.wire = Type::float32;
        request.count = elements;
        request.group = engine.find_group(group);
        request.label.assign("allreduce in a group of ranks");
        request.inputs.add(reinterpret_cast<const std::byte*>(values.data()), elements);
        request.outputs.add(reinterpret_cast<std::byte*>(values.data()), elements);
        engine.begin(bucket);
        CHECK(engine.help(bucket, patience));
        CHECK_EQUAL(engine.finish(bucket).reason, "");
      }
  };
  CHECK_EQUAL(allocations_of(ranks, step), 0u);
}
