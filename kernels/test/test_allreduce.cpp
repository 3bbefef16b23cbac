// Allreduce on real engines, against a plain computation.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "check.h"
#include "elements.h"
#include "ranks.h"

using namespace tnt;
using namespace tnt::test;

namespace {

// Around the switch between the algorithms (32 KiB) and the parts of the ring.
const std::size_t counts[] = {0, 1, 2, 3, 7, 63, 1000, 4097, 8192, 8193, 32769, 100000};

// Small integers: their sums over nine ranks are exact in every type, in any order.
double element(int rank, std::size_t i) { return static_cast<double>((7 * i + 3 * rank) % 11); }

double expected(Reduction reduction, int size, std::size_t i) {
  double result = element(0, i);
  for (int rank = 1; rank < size; ++rank) {
    const double x = element(rank, i);
    if (reduction == Reduction::sum) result += x;
    if (reduction == Reduction::min) result = std::min(result, x);
    if (reduction == Reduction::max) result = std::max(result, x);
  }
  return result;
}

template <class T>
void check_plain(Engine& engine, Type type, Reduction reduction, std::size_t count) {
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(make<T>(element(engine.rank(), i)));
  CHECK_EQUAL(allreduce_in_place(engine, type, reduction, values), "");
  for (std::size_t i = 0; i < count; ++i)
    CHECK_EQUAL(read(values[i]), expected(reduction, engine.size(), i));
}

// What every rank holds after an allreduce of what make_values(rank) gives.
template <class T, class MakeValues>
std::vector<std::vector<T>> results(int size, Type type, Reduction reduction,
                                    MakeValues make_values, double scale = 1) {
  Ranks ranks(size);
  std::vector<std::vector<T>> all(static_cast<std::size_t>(size));
  ranks.run([&](Engine& engine) {
    auto& values = all[static_cast<std::size_t>(engine.rank())];
    values = make_values(engine.rank());
    CHECK_EQUAL(allreduce_in_place(engine, type, reduction, values, scale), "");
  });
  return all;
}

}  // namespace

TEST(every_type_reduction_size_and_number_of_ranks_equals_the_plain_computation) {
  for (int size = 1; size <= 9; ++size) {
    Ranks ranks(size);
    for_each_type([&](Type type, auto zero) {
      for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max})
        for (const std::size_t count : counts)
          ranks.run(
              [&](Engine& engine) { check_plain<decltype(zero)>(engine, type, reduction, count); });
    });
  }
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
  for (int size = 1; size <= 4; ++size) {
    Ranks ranks(size);
    ranks.run([&](Engine& engine) {
      const bool has_data = engine.rank() != 0;
      std::vector<float> values(100, has_data ? 2.0F : std::nanf(""));
      CHECK_EQUAL(
          allreduce_in_place(engine, Type::float32, Reduction::sum, values, has_data ? 0.5 : 0),
          "");
      for (const float x : values) CHECK_EQUAL(x, static_cast<float>(size - 1));
    });
  }
}

TEST(a_bucket_of_several_tensors_leaves_inputs_alone_and_fills_each_output) {
  Ranks ranks(3);
  ranks.run([](Engine& engine) {
    const std::vector<float> a(3, 1), b, c(40000, static_cast<float>(engine.rank()));
    std::vector<float> out_a(3), out_c(40000);
    Pending pending;
    allreduce(
        engine, {7, "three tensors"}, Type::float32, Reduction::sum,
        {{a.data(), out_a.data(), 3}, {b.data(), nullptr, 0}, {c.data(), out_c.data(), 40000}}, 1,
        pending.done());
    CHECK_EQUAL(pending.wait(), "");
    CHECK(a == std::vector<float>(3, 1));
    CHECK(out_a == std::vector<float>(3, 3));
    CHECK(out_c == std::vector<float>(40000, 3));
  });
}

TEST(buckets_may_be_started_in_a_different_order_on_every_rank) {
  constexpr std::uint32_t buckets = 16;
  Ranks ranks(4);
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
        allreduce(engine, {k, "bucket"}, Type::float32, Reduction::sum,
                  {{values[k].data(), values[k].data(), values[k].size()}}, 1, pending[k].done());
      }
      for (std::uint32_t k = 0; k < buckets; ++k) {
        CHECK_EQUAL(pending[k].wait(), "");
        CHECK(values[k] == std::vector<float>(values[k].size(), 4.0F * (k + round)));
      }
    });
}

TEST(buckets_may_be_started_by_several_threads_of_a_rank) {
  constexpr int threads = 4, times = 50;
  Ranks ranks(2);
  ranks.run([](Engine& engine) {
    std::vector<std::future<void>> ends;
    for (std::uint32_t channel = 0; channel < threads; ++channel)
      ends.push_back(std::async(std::launch::async, [&engine, channel] {
        for (int i = 0; i < times; ++i) {
          std::vector<double> values(100 + channel, i);
          CHECK_EQUAL(allreduce_in_place(engine, Type::float64, Reduction::sum, values, 1, channel),
                      "");
          CHECK_EQUAL(values.back(), 2.0 * i);
        }
      }));
    for (auto& end : ends) end.get();
  });
}

TEST(a_thousand_in_a_row) {
  Ranks ranks(4);
  ranks.run([](Engine& engine) {
    for (int i = 0; i < 1000; ++i) {
      std::vector<std::int64_t> values(static_cast<std::size_t>(i % 50), i + engine.rank());
      CHECK_EQUAL(allreduce_in_place(engine, Type::int64, Reduction::sum, values), "");
      for (const std::int64_t x : values) CHECK_EQUAL(x, 4 * i + 6);
    }
  });
}
