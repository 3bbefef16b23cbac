// Allreduce on real engines, against a plain computation.
#include <algorithm>
#include <numeric>
#include <random>

#include "check.h"
#include "collective/algorithms.h"
#include "elements.h"
#include "ranks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

// Around the switch between the algorithms (32 KiB) and the parts of the ring.
const std::size_t counts[] = {0, 1, 2, 3, 7, 63, 1000, 4097, 8192, 8193, 32769, 100000};

// Small integers: their sums over nine ranks are exact in every type, in any order; and powers of
// two, whose products are. They repeat every 55 elements.
constexpr std::size_t period = 55;

double element(Reduction reduction, int rank, std::size_t i) {
  if (reduction == Reduction::product) return (i + rank) % 5 == 0 ? 2 : 1;
  return static_cast<double>((7 * i + 3 * rank) % 11);
}

double expected(Reduction reduction, int size, std::size_t i) {
  double result = element(reduction, 0, i);
  for (int rank = 1; rank < size; ++rank) {
    const double x = element(reduction, rank, i);
    if (reduction == Reduction::sum) result += x;
    if (reduction == Reduction::min) result = std::min(result, x);
    if (reduction == Reduction::max) result = std::max(result, x);
    if (reduction == Reduction::product) result *= x;
  }
  return result;
}

// Of element() for a rank, or of expected() for a number of ranks.
template <class T, class Value>
std::vector<T> vector_of(Value value, Reduction reduction, int rank_or_size, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = i < period ? make<T>(value(reduction, rank_or_size, i)) : values[i - period];
  return values;
}

// Fewer and shorter where every memory access is checked.
std::vector<int> sizes() {
#ifdef TNT_SANITIZED
  return {1, 2, 3, 5};
#endif
  if (thorough()) return {1, 2, 3, 4, 5, 6, 7, 8, 9};
  return {1, 2, 3, 4, 5, 8};
}

std::vector<std::size_t> lengths() {
#ifdef TNT_SANITIZED
  return {0, 1, 5, 4099, 30001};
#endif
  return {0, 1, 5, 4099, 300001};
}

}  // namespace

// The reductions take turns along lengths, types and numbers of ranks: for each pair of these, all
// are there.
TEST(every_type_reduction_size_and_number_of_ranks_equals_the_plain_computation) {
  for (const Joined joined : every_joined) {
    int row = 0;
    for (const int size : sizes()) {
      ++row;
      Ranks(size, 10, joined).run([&](Engine& engine) {
        for_each_type([&](Type type, auto zero) {
          using T = decltype(zero);
          for (std::size_t i = 0; i < std::size(counts); ++i)
            for_each_reduction([&](Reduction reduction) {
              const auto turn = (i + row + static_cast<std::size_t>(type)) % 4;
              if (turn != static_cast<std::size_t>(reduction) && !thorough()) return;
              auto values = vector_of<T>(element, reduction, engine.rank(), counts[i]);
              const auto way = static_cast<Way>(counts[i] % 3);
              CHECK_EQUAL(allreduce_in_place(engine, type, reduction, values, 0, way), "");
              CHECK(same_bits(values, vector_of<T>(expected, reduction, size, counts[i])));
            });
        });
      });
    }
  }
}

TEST(every_algorithm_that_fits_gives_the_plain_result_in_place_and_not) {
  for (const Joined joined : every_joined)
    for (const int size : sizes())
      Ranks(size, 10, joined).run([&](Engine& engine) {
        std::uint32_t channel = 0;
        for (const std::size_t count : lengths()) {
          const auto values = vector_of<float>(element, Reduction::sum, engine.rank(), count);
          const auto sums = vector_of<float>(expected, Reduction::sum, size, count);
          const Task task{Collective::allreduce, 0, size, count, 4, {}, 0, engine.world().node};
          for (const Algorithm& algorithm : algorithms()) {
            if (algorithm.collective != Collective::allreduce || !algorithm.fits(task)) continue;
            std::vector<float> copied = values;
            const auto in_private =
                allreduce_of(copied, Type::float32, Reduction::sum, algorithm.name);
            CHECK_EQUAL(call(engine, 0, in_private, Way::waited), "");
            CHECK(copied == sums);
            // On memory of the bucket.
            Bucket& bucket = engine.take(++channel);
            auto* memory = reinterpret_cast<float*>(engine.memory(bucket, 4 * count + 4));
            engine.release(bucket);
            std::copy(values.begin(), values.end(), memory);
            const auto in_place = [&](Request& request) {
              request.count = count;
              request.in_place = true;
              request.algorithm = algorithm.name;
              request.label = "allreduce in place";
            };
            CHECK_EQUAL(call(engine, channel, in_place), "");
            CHECK(std::equal(sums.begin(), sums.end(), memory));
          }
        }
      });
}

TEST(an_exchange_may_be_narrower_than_the_tensors) {
  on_ranks_of_each_kind(3, [](Engine& engine) {
    for (const std::size_t count : {7UL, 100000UL}) {
      std::vector<float> values(count, 1.0F + 0x1p-12F);  // rounded to 1 on the way
      const auto fill = [&](Request& request) {
        allreduce_of(values, Type::float32, Reduction::sum)(request);
        request.wire = Type::bfloat16;
      };
      CHECK_EQUAL(call(engine, 0, fill), "");
      CHECK(values == std::vector<float>(count, 3));
    }
  });
}

TEST(a_bucket_of_several_tensors_leaves_inputs_alone_and_fills_each_output) {
  on_ranks_of_each_kind(3, [](Engine& engine) {
    const std::vector<float> a(3, 1), b, c(40000, static_cast<float>(engine.rank()));
    std::vector<float> out_a(3), out_b, out_c(40000);
    const auto fill = [&](Request& request) {
      request.count = 40003;
      request.label = "three tensors";
      for (const auto* tensor : {&a, &b, &c}) give(request, *tensor);
      for (auto* tensor : {&out_a, &out_b, &out_c}) take(request, *tensor);
    };
    CHECK_EQUAL(call(engine, 7, fill), "");
    CHECK(a == std::vector<float>(3, 1));
    CHECK(out_a == std::vector<float>(3, 3));
    CHECK(out_c == std::vector<float>(40000, 3));
  });
}

TEST(buckets_may_be_started_in_a_different_order_on_every_rank_of_one_lane_or_several) {
  constexpr std::uint32_t buckets = 16;
  const auto body = [](Engine& engine) {
    for (unsigned round = 0; round < 15; ++round) {
      std::vector<std::uint32_t> order(buckets);
      std::iota(order.begin(), order.end(), 0);
      std::mt19937 random(100 * round + static_cast<unsigned>(engine.rank()));
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::vector<float>> values(buckets);
      std::vector<Pending> pending(buckets);
      for (const std::uint32_t k : order) {
        values[k].assign(1 + 1000 * k, static_cast<float>(k + round));
        start(engine, k, pending[k], allreduce_of(values[k], Type::float32, Reduction::sum));
      }
      for (std::uint32_t k = 0; k < buckets; ++k) {
        CHECK_EQUAL(pending[k].wait(), "");
        CHECK(values[k] == std::vector<float>(values[k].size(), 4.0F * (k + round)));
      }
    }
  };
  for (const int lanes : {1, 3}) on_ranks_of_each_kind(4, body, lanes);
}

TEST(buckets_may_be_started_by_several_threads_of_a_rank) {
  constexpr int threads = 4, times = 50;
  on_ranks_of_each_kind(2, [](Engine& engine) {
    std::vector<std::future<void>> ends;
    for (std::uint32_t channel = 0; channel < threads; ++channel)
      ends.push_back(std::async(std::launch::async, [&engine, channel] {
        for (int i = 0; i < times; ++i) {
          std::vector<double> values(100 + channel, i);
          const auto way = static_cast<Way>((i + engine.rank()) % 3);
          CHECK_EQUAL(
              allreduce_in_place(engine, Type::float64, Reduction::sum, values, channel, way), "");
          CHECK_EQUAL(values.back(), 2.0 * i);
        }
      }));
    for (auto& end : ends) end.get();
  });
}

TEST(a_thousand_in_a_row) {
  on_ranks_of_each_kind(4, [](Engine& engine) {
    for (int i = 0; i < 1000; ++i) {
      std::vector<std::int64_t> values(i % 50, i + engine.rank());
      const auto way = static_cast<Way>((i + engine.rank()) % 3);
      CHECK_EQUAL(allreduce_in_place(engine, Type::int64, Reduction::sum, values, 0, way), "");
      for (const std::int64_t x : values) CHECK_EQUAL(x, 4 * i + 6);
    }
  });
}
