// Allreduce on real engines, against a plain computation.
#include <algorithm>
#include <cmath>
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

// Fewer where every memory access is checked.
std::vector<int> sizes() {
#ifdef TNT_SANITIZED
  return {1, 2, 3, 5};
#endif
  if (thorough()) return {1, 2, 3, 4, 5, 6, 7, 8, 9};
  return {1, 2, 3, 4, 5, 8};
}

template <class T>
void check_plain(Engine& engine, Type type, Reduction reduction, std::size_t count, Way way) {
  auto values = vector_of<T>(element, reduction, engine.rank(), count);
  CHECK_EQUAL(allreduce_in_place(engine, type, reduction, values, 1, 0, way), "");
  CHECK(same_bits(values, vector_of<T>(expected, reduction, engine.size(), count)));
}

// What every rank holds after an allreduce of what make_values(rank) gives.
template <class T, class MakeValues>
std::vector<std::vector<T>> results(int size, Type type, Reduction reduction,
                                    MakeValues make_values, double scale = 1) {
  std::vector<std::vector<T>> all(size);
  on_ranks(size, [&](Engine& engine) {
    auto& values = all[engine.rank()];
    values = make_values(engine.rank());
    CHECK_EQUAL(allreduce_in_place(engine, type, reduction, values, scale), "");
  });
  return all;
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
          for (std::size_t i = 0; i < std::size(counts); ++i)
            for_each_reduction([&](Reduction reduction) {
              const auto turn = (i + row + static_cast<std::size_t>(type)) % 4;
              if (turn == static_cast<std::size_t>(reduction) || thorough())
                check_plain<decltype(zero)>(engine, type, reduction, counts[i],
                                            static_cast<Way>(counts[i] % 3));
            });
        });
      });
    }
  }
}

TEST(every_algorithm_that_fits_gives_the_plain_result_in_place_and_not) {
  for (const Joined joined : every_joined)
    for (int size = 1; size <= 6; ++size)
      Ranks(size, 10, joined).run([&](Engine& engine) {
        std::uint32_t channel = 0;
        for (const std::size_t count : {0UL, 1UL, 5UL, 4099UL, 300001UL}) {
          const auto values = vector_of<float>(element, Reduction::sum, engine.rank(), count);
          const auto sums = vector_of<float>(expected, Reduction::sum, size, count);
          const Task task{Collective::allreduce, 0, size, count, 4, {}, 0, engine.world().node};
          for (const Algorithm& algorithm : algorithms()) {
            if (algorithm.collective != Collective::allreduce || !algorithm.fits(task)) continue;
            std::vector<float> copied = values;
            const auto in_private =
                allreduce_of(copied, Type::float32, Reduction::sum, 1, algorithm.name);
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

TEST(groups_of_ranks_work_side_by_side) {
  on_ranks_of_each_kind(5, [](Engine& engine) {
    std::vector<int> members;  // the even ones, the odd ones
    for (int rank = engine.rank() % 2; rank < engine.size(); rank += 2) members.push_back(rank);
    engine.add_group(1, members);
    float sum = 0;
    for (const int rank : members) sum += static_cast<float>(rank);
    for (int i = 0; i < 100; ++i) {
      std::vector<float> values(1 + 1000 * (i % 9), static_cast<float>(engine.rank()));
      const auto fill = [&](Request& request) {
        allreduce_of(values, Type::float32, Reduction::sum)(request);
        request.group = engine.find_group(1);
      };
      CHECK_EQUAL(call(engine, 3, fill), "");
      CHECK(values == std::vector<float>(values.size(), sum));
    }
  });
}

TEST(several_lanes_move_their_channels_side_by_side) {
  const auto body = [](Engine& engine) {
    constexpr std::uint32_t channels = 7;
    for (int i = 0; i < 30; ++i) {
      std::vector<std::vector<float>> values(channels, std::vector<float>(20000, 2));
      std::vector<Pending> pending(channels);
      for (std::uint32_t k = 0; k < channels; ++k)
        start(engine, k, pending[k], allreduce_of(values[k], Type::float32, Reduction::sum));
      for (std::uint32_t k = 0; k < channels; ++k) {
        CHECK_EQUAL(pending[k].wait(), "");
        CHECK(values[k] == std::vector<float>(20000, 6));
      }
    }
  };
  on_ranks_of_each_kind(3, body, 3);
}

TEST(sums_have_the_same_bits_on_all_ranks_and_are_near_the_sum_in_double) {
  for_each_type([](Type type, auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_integral_v<T>) {
      const double precision = type == Type::float64    ? 1e-15
                               : type == Type::float32  ? 1e-6
                               : type == Type::bfloat16 ? 1e-2
                                                        : 1e-3;
      for (int size = 2; size <= 9; ++size)
        for (const std::size_t count : {5UL, 1000UL, 30001UL}) {
          const auto values = [&](int rank) {
            std::mt19937 random(static_cast<unsigned>(rank));
            std::normal_distribution<double> normal;
            std::vector<T> result;
            for (std::size_t i = 0; i < count; ++i) result.push_back(make<T>(normal(random)));
            return result;
          };
          const auto all = results<T>(size, type, Reduction::sum, values, 0.25);
          std::vector<double> sums(count), magnitudes(count);
          for (int rank = 0; rank < size; ++rank) {
            const auto input = values(rank);
            for (std::size_t i = 0; i < count; ++i) {
              sums[i] += 0.25 * read(input[i]);
              magnitudes[i] += std::fabs(0.25 * read(input[i]));
            }
          }
          for (const auto& result : all) CHECK(same_bits(result, all[0]));
          for (std::size_t i = 0; i < count; ++i)
            CHECK(std::fabs(read(all[0][i]) - sums[i]) <= size * precision * magnitudes[i]);
        }
    }
  });
}

TEST(special_values_have_the_same_bits_on_all_ranks) {
  const double nan = std::nan("");
  const double special[] = {nan, -nan, INFINITY, -INFINITY, 0.0, -0.0, 1.0, -1.0};
  constexpr std::size_t kinds = std::size(special);
  for_each_type([&](Type type, auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_integral_v<T>) {
      for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max})
        for (int size = 2; size <= 5; ++size)
          for (const std::size_t repeats : {1UL, 200UL}) {  // both algorithms
            // All pairs of kinds between the even and the odd ranks.
            const auto values = [&](int rank) {
              std::vector<T> result;
              for (std::size_t i = 0; i < kinds * kinds * repeats; ++i)
                result.push_back(make<T>(special[rank % 2 == 0 ? i % kinds : i / kinds % kinds]));
              return result;
            };
            const auto all = results<T>(size, type, reduction, values);
            for (const auto& result : all) CHECK(same_bits(result, all[0]));
            for (std::size_t i = 0; i < kinds * kinds; ++i) {
              const double a = special[i % kinds], b = special[i / kinds];
              const double got = read(all[0][i]);
              if (std::isnan(a) || std::isnan(b))
                CHECK(std::isnan(got));
              else if (reduction == Reduction::min)
                CHECK_EQUAL(got, std::min(a, b));
              else if (reduction == Reduction::max)
                CHECK_EQUAL(got, std::max(a, b));
              else if (std::isinf(a) && std::isinf(b) && a != b)
                CHECK(std::isnan(got));
              else if (std::isinf(a) || std::isinf(b))
                CHECK_EQUAL(got, std::isinf(a) ? a : b);
            }
          }
    }
  });
}

TEST(a_rank_with_scale_zero_contributes_nothing_even_if_it_holds_nan) {
  for (int size = 1; size <= 4; ++size)
    on_ranks(size, [&](Engine& engine) {
      const bool has_data = engine.rank() != 0;
      const double scale = has_data ? 0.5 : 0;
      std::vector<float> values(100, has_data ? 2.0F : std::nanf(""));
      CHECK_EQUAL(allreduce_in_place(engine, Type::float32, Reduction::sum, values, scale), "");
      for (const float x : values) CHECK_EQUAL(x, static_cast<float>(size - 1));
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

TEST(buckets_may_be_started_in_a_different_order_on_every_rank) {
  constexpr std::uint32_t buckets = 16;
  for (const Joined joined : every_joined) {
    Ranks ranks(4, 60, joined);
    for (unsigned round = 0; round < 25; ++round)
      ranks.run([&](Engine& engine) {
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
      });
  }
}

TEST(buckets_may_be_started_by_several_threads_of_a_rank) {
  constexpr int threads = 4, times = 50;
  on_ranks_of_each_kind(2, [](Engine& engine) {
    std::vector<std::future<void>> ends;
    for (std::uint32_t channel = 0; channel < threads; ++channel)
      ends.push_back(std::async(std::launch::async, [&engine, channel] {
        for (int i = 0; i < times; ++i) {
          std::vector<double> values(100 + channel, i);
          CHECK_EQUAL(allreduce_in_place(engine, Type::float64, Reduction::sum, values, 1, channel,
                                         static_cast<Way>((i + engine.rank()) % 3)),
                      "");
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
      CHECK_EQUAL(allreduce_in_place(engine, Type::int64, Reduction::sum, values, 1, 0,
                                     static_cast<Way>((i + engine.rank()) % 3)),
                  "");
      for (const std::int64_t x : values) CHECK_EQUAL(x, 4 * i + 6);
    }
  });
}
