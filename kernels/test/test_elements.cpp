// Reducing and converting arrays: what comes out, and that each instruction set gives the same
// bits.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "elements.h"
#include "elements/element_kernels.h"
#include "elements/largest.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace tnt;
using namespace tnt::test;

namespace {

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) <= sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// Elements: any bits, and for floats often those that are special.

template <class T>
constexpr int fraction_bits = std::is_same_v<T, float>      ? 23
                              : std::is_same_v<T, double>   ? 52
                              : std::is_same_v<T, BFloat16> ? 7
                                                            : 10;
template <class T>
constexpr std::uint64_t one_in_exponent = std::uint64_t{1} << fraction_bits<T>;
template <class T>
constexpr std::uint64_t sign_bit = std::uint64_t{1} << (8 * sizeof(T) - 1);
template <class T>
constexpr std::uint64_t infinity_bits = sign_bit<T> - one_in_exponent<T>;
template <class T>
constexpr std::uint64_t nan_bits = infinity_bits<T> + one_in_exponent<T> / 2;

template <class T>
std::vector<T> special_elements() {
  std::vector<T> all;
  if constexpr (!std::is_integral_v<T>) {
    const std::uint64_t one = one_in_exponent<T>, infinity = infinity_bits<T>;
    for (const std::uint64_t bits :
         {std::uint64_t{0}, std::uint64_t{1}, one - 1, one, one + 1, infinity / 2, infinity - 1,
          infinity, infinity + 1, nan_bits<T>, nan_bits<T> + 1, infinity + one - 1})
      for (const std::uint64_t sign : {std::uint64_t{0}, sign_bit<T>})
        all.push_back(bits_as<T>(bits | sign));
  } else {
    for (const T value : {std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), T{0}, T{1}})
      all.push_back(value);
  }
  return all;
}

// Each with each.
template <class T>
std::pair<std::vector<T>, std::vector<T>> pairs_of_special_elements() {
  std::pair<std::vector<T>, std::vector<T>> pairs;
  for (const T& left : special_elements<T>())
    for (const T& right : special_elements<T>()) {
      pairs.first.push_back(left);
      pairs.second.push_back(right);
    }
  return pairs;
}

template <class T>
std::vector<T> random_elements(std::mt19937_64& random, std::size_t count) {
  static const std::vector<T> special = special_elements<T>();
  std::vector<T> all;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random();
    switch (random() % 4) {
      case 0: all.push_back(special[bits % special.size()]); break;
      case 1: all.push_back(make<T>(static_cast<double>(bits % 200) / 8)); break;
      default: all.push_back(bits_as<T>(bits));
    }
  }
  return all;
}

// All 65536 elements of a narrow float, in some order.
template <class T>
std::vector<T> all_elements(std::mt19937_64& random) {
  std::vector<T> all;
  for (std::uint32_t bits = 0; bits < 65536; ++bits)
    all.push_back({static_cast<std::uint16_t>(bits)});
  std::shuffle(all.begin(), all.end(), random);
  return all;
}

// An array at any multiple of the element's size, with guards around it.
template <class T>
class Guarded {
 public:
  Guarded(std::mt19937_64& random, std::size_t count)
      : begin_(guard + random() % (64 / sizeof(T)) * sizeof(T)),
        count_(count),
        bytes_(begin_ + count * sizeof(T) + guard, pattern) {}
  Guarded(std::mt19937_64& random, const std::vector<T>& values) : Guarded(random, values.size()) {
    if (count_ != 0) std::memcpy(data(), values.data(), count_ * sizeof(T));
  }

  T* data() { return reinterpret_cast<T*>(bytes_.data() + begin_); }

  // Its elements, after a look at the guards.
  std::vector<T> values() {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (i < begin_ || i >= begin_ + count_ * sizeof(T)) CHECK(bytes_[i] == pattern);
    std::vector<T> all(count_);
    if (count_ != 0) std::memcpy(all.data(), data(), count_ * sizeof(T));
    return all;
  }

 private:
  static constexpr std::size_t guard = 256;
  static constexpr unsigned char pattern = 0xa5;
  std::size_t begin_, count_;
  std::vector<unsigned char> bytes_;
};

template <class T>
void check_same_bits(const std::vector<T>& values, const std::vector<T>& expected,
                     const std::string& what) {
  CHECK_EQUAL(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::memcmp(&values[i], &expected[i], sizeof(T)) != 0)
      throw CheckFailed(what + ": element " + std::to_string(i) + " of " +
                        std::to_string(values.size()) + " is " + std::to_string(read(values[i])) +
                        ", not " + std::to_string(read(expected[i])));
}

// What the definition says, one element at a time.

template <class Float>
Float reduced_float(Reduction reduction, Float a, Float b) {
  Float result{};
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Float>::quiet_NaN();
  if (reduction == Reduction::sum) result = a + b;
  if (reduction == Reduction::product) result = a * b;
  if (reduction == Reduction::min) result = std::min(a, b);
  if (reduction == Reduction::max) result = std::max(a, b);
  if (std::isnan(result)) return std::numeric_limits<Float>::quiet_NaN();
  const bool compared = reduction == Reduction::min || reduction == Reduction::max;
  return compared && result == 0 ? Float{0} : result;
}

template <class T>
T reduced(Reduction reduction, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return reduced_float(reduction, a, b);
  } else if constexpr (!std::is_integral_v<T>) {
    return narrow(reduced_float(reduction, widen(a), widen(b)), T{});
  } else {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    if (reduction == Reduction::sum) return bits_as<T>(x + y);
    if (reduction == Reduction::product) return bits_as<T>(x * y);
    return reduction == Reduction::min ? std::min(a, b) : std::max(a, b);
  }
}

template <class T>
std::vector<T> reduced(Reduction reduction, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(reduced(reduction, a[i], b[i]));
  return result;
}

int index(Type type) { return static_cast<int>(type); }
int index(Reduction reduction) { return static_cast<int>(reduction); }

// All ways of an instruction set to reduce a and b.
template <class T>
void check_reduce(const ElementKernels& kernels, Type type, Reduction reduction,
                  const std::vector<T>& a_values, const std::vector<T>& b_values,
                  std::mt19937_64& random) {
  const std::string what =
      std::string(kernels.instruction_set) + " " + name_of(reduction) + " of " + name_of(type);
  const std::size_t count = a_values.size();
  const std::vector<T> expected = reduced(reduction, a_values, b_values);
  for (const bool streaming : {false, true}) {
    const auto& table = streaming ? kernels.reduce_streaming : kernels.reduce;
    const ElementKernels::Reduce reduce = table[index(type)][index(reduction)];
    const std::string how = what + (streaming ? ", streaming" : "");
    Guarded<T> a(random, a_values), b(random, b_values), to(random, count);
    reduce(to.data(), a.data(), b.data(), count);
    check_same_bits(to.values(), expected, how);
    check_same_bits(a.values(), a_values, how + ": the first operand");
    check_same_bits(b.values(), b_values, how + ": the second operand");
    reduce(b.data(), a.data(), b.data(), count);
    check_same_bits(b.values(), expected, how + " into the second operand");
    b = Guarded<T>(random, b_values);
    reduce(a.data(), a.data(), b.data(), count);
    check_same_bits(a.values(), expected, how + " into the first operand");
    reduce(b.data(), b.data(), b.data(), count);
    check_same_bits(b.values(), reduced(reduction, b_values, b_values), how + " with itself");
  }
  Guarded<T> a(random, a_values), b(random, b_values);
  kernels.reduce_both[index(type)][index(reduction)](a.data(), b.data(), count);
  check_same_bits(a.values(), expected, what + " into both: the first operand");
  check_same_bits(b.values(), expected, what + " into both: the second operand");
}

// All ways of an instruction set to convert, against the portable loops.
template <class To, class From>
void check_convert(const ElementKernels& kernels, Type to_type, Type from_type,
                   const std::vector<From>& values, double scale, std::mt19937_64& random) {
  const std::string what = std::string(kernels.instruction_set) + " " + name_of(from_type) +
                           " to " + name_of(to_type) + " scaled by " + std::to_string(scale);
  const int to_index = index(to_type), from_index = index(from_type);
  std::vector<To> expected(values.size());
  element_kernels().back().convert[to_index][from_index](expected.data(), values.data(), scale,
                                                         values.size());
  for (const bool streaming : {false, true}) {
    const auto& table = streaming ? kernels.convert_streaming : kernels.convert;
    const ElementKernels::Convert convert = table[to_index][from_index];
    Guarded<From> from(random, values);
    Guarded<To> to(random, values.size());
    convert(to.data(), from.data(), scale, values.size());
    check_same_bits(to.values(), expected, what);
    check_same_bits(from.values(), values, what + ": the source");
    if constexpr (std::is_same_v<To, From>) {
      convert(from.data(), from.data(), scale, values.size());
      check_same_bits(from.values(), expected, what + ", in place");
    }
  }
}

template <class Visit>
void for_each_float_type(Visit visit) {
  for_each_type([&](Type type, auto zero) {
    if constexpr (!std::is_integral_v<decltype(zero)>) visit(type, zero);
  });
}

}  // namespace

TEST(each_instruction_set_reduces_any_count_and_alignment_as_defined) {
  std::mt19937_64 random(1);
  for (const ElementKernels& kernels : element_kernels())
    for_each_type([&](Type type, auto zero) {
      using T = decltype(zero);
      std::vector<std::size_t> counts(201);
      std::iota(counts.begin(), counts.end(), 0);
      counts.insert(counts.end(), {511, 512, 513, 1500});
      const auto pairs = pairs_of_special_elements<T>();
      for_each_reduction([&](Reduction reduction) {
        check_reduce(kernels, type, reduction, pairs.first, pairs.second, random);
        for (const std::size_t count : counts)
          check_reduce(kernels, type, reduction, random_elements<T>(random, count),
                       random_elements<T>(random, count), random);
        if constexpr (sizeof(T) == 2)
          check_reduce(kernels, type, reduction, all_elements<T>(random), all_elements<T>(random),
                       random);
      });
    });
}

TEST(each_instruction_set_converts_any_count_and_alignment_alike) {
  std::mt19937_64 random(3);
  for (const ElementKernels& kernels : element_kernels())
    for_each_float_type([&](Type to_type, auto to) {
      for_each_float_type([&](Type from_type, auto from) {
        using To = decltype(to);
        using From = decltype(from);
        for (std::size_t count = 0; count <= 200; ++count)
          check_convert<To>(kernels, to_type, from_type, random_elements<From>(random, count),
                            count % 2 == 0 ? 1.0 : 1.0 / 3, random);
        for (const double scale : {1.0, -0.5, 1.0 / 3, 1e-5, 1e30, 1e-40, 1e-300})
          check_convert<To>(kernels, to_type, from_type, random_elements<From>(random, 3000), scale,
                            random);
        if constexpr (sizeof(From) == 2)
          for (const double scale : {1.0, 0.3, -1e5})
            check_convert<To>(kernels, to_type, from_type, all_elements<From>(random), scale,
                              random);
      });
    });
}

TEST(each_instruction_set_copies_any_count_and_alignment) {
  std::mt19937_64 random(5);
  for (const ElementKernels& kernels : element_kernels())
    for (std::size_t count = 0; count <= 400; ++count) {
      const auto values = random_elements<std::uint8_t>(random, count);
      Guarded<std::uint8_t> from(random, values), to(random, count);
      kernels.copy_streaming(to.data(), from.data(), count);
      check_same_bits(to.values(), values, kernels.instruction_set);
    }
}

TEST(a_reduction_may_be_streamed_or_written_to_both_operands) {
  for_each_type([&](Type type, auto zero) {
    for_each_reduction([&](Reduction reduction) {
      auto [a, b] = pairs_of_special_elements<decltype(zero)>();
      const auto expected = reduced(reduction, a, b);
      for (const bool streaming : {false, true}) {
        auto to = a;
        reduce(type, reduction, to.data(), a.data(), b.data(), a.size(), streaming);
        check_same_bits(to, expected, name_of(type));
      }
      reduce_both(type, reduction, a.data(), b.data(), a.size());
      check_same_bits(a, expected, name_of(type));
      check_same_bits(b, expected, name_of(type));
    });
  });
}

TEST(a_scaled_conversion_rounds_once_and_gives_one_quiet_nan) {
  for_each_float_type([](Type to_type, auto to_zero) {
    for_each_float_type([&](Type from_type, auto from_zero) {
      using To = decltype(to_zero);
      using From = decltype(from_zero);
      constexpr bool in_double = std::is_same_v<To, double> || std::is_same_v<From, double>;
      std::vector<From> source;
      for (const From& element : special_elements<From>())
        if (std::isnan(read(element))) source.push_back(element);
      std::vector<To> expected(source.size(), bits_as<To>(nan_bits<To>));
      for (int i = 0; i < 1000; ++i) {
        source.push_back(make<From>(i * 0.37));
        const double value = read(source.back());
        const double exact =
            in_double ? value * (1.0 / 3) : static_cast<float>(value) * static_cast<float>(1.0 / 3);
        expected.push_back(make<To>(exact));
      }
      for (const bool streaming : {false, true}) {
        std::vector<To> target(source.size());
        convert(to_type, target.data(), from_type, source.data(), 1.0 / 3, source.size(),
                streaming);
        check_same_bits(target, expected, name_of(to_type));
      }
    });
  });
}

TEST(scale_zero_gives_zeros_and_scale_one_the_same_bits_whatever_the_source_holds) {
  std::mt19937_64 random(8);
  for_each_type([&](Type type, auto zero) {
    using T = decltype(zero);
    std::vector<T> source = random_elements<T>(random, 1000);
    const std::vector<T> values = source;
    for (const bool streaming : {false, true}) {
      std::vector<T> target(source);
      convert(type, target.data(), type, source.data(), 0, source.size(), streaming);
      CHECK(same_bits(target, std::vector<T>(source.size())));
      convert(type, target.data(), type, source.data(), 1, source.size(), streaming);
      CHECK(same_bits(target, values));
      convert(type, source.data(), type, source.data(), 1, source.size(), streaming);
      CHECK(same_bits(source, values));
    }
  });
}

TEST(integers_are_neither_scaled_nor_converted) {
  std::int32_t integers[3] = {1, 2, 3};
  float floats[3] = {};
  CHECK_THROWS(convert(Type::int32, integers, Type::int32, integers, 0.5, 3),
               std::invalid_argument);
  CHECK_THROWS(convert(Type::float32, floats, Type::int32, integers, 1, 3), std::invalid_argument);
  CHECK_THROWS(convert(Type::int32, integers, Type::float32, floats, 1, 3), std::invalid_argument);
  CHECK_THROWS(convert(Type::int64, integers, Type::int32, integers, 1, 1), std::invalid_argument);
  CHECK_EQUAL(integers[1], 2);
}

// TensorFlow's threads flush subnormal numbers to zero.
TEST(the_floating_point_modes_of_the_thread_do_not_show_and_are_kept) {
  std::mt19937_64 random(10);
  for_each_float_type([&](Type type, auto zero) {
    using T = decltype(zero);
    const auto a = random_elements<T>(random, 1000), b = random_elements<T>(random, 1000);
    struct Results {
      std::vector<T> sum, scaled;
      std::vector<BFloat16> narrowed;
    };
    const auto compute = [&] {
      const std::size_t count = a.size();
      Results to{std::vector<T>(count), std::vector<T>(count), std::vector<BFloat16>(count)};
      reduce(type, Reduction::sum, to.sum.data(), a.data(), b.data(), count);
      convert(type, to.scaled.data(), type, a.data(), 0.3, count);
      convert(Type::bfloat16, to.narrowed.data(), type, a.data(), 0.3, count);
      return to;
    };
    const Results expected = compute();
    std::fenv_t modes;
    std::fegetenv(&modes);
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, and take subnormal numbers as zero
    const unsigned set = _mm_getcsr() & ~0x3fU;
#endif
    const Results results = compute();
    const int rounding = std::fegetround();
#if defined(__x86_64__)
    const unsigned kept = _mm_getcsr() & ~0x3fU;
#endif
    std::fesetenv(&modes);
    check_same_bits(results.sum, expected.sum, name_of(type));
    check_same_bits(results.scaled, expected.scaled, name_of(type));
    check_same_bits(results.narrowed, expected.narrowed, name_of(type));
    CHECK_EQUAL(rounding, FE_UPWARD);
#if defined(__x86_64__)
    CHECK_EQUAL(kept, set);
#endif
  });
}

TEST(the_largest_are_those_of_a_sort_and_of_equal_ones_the_first) {
  std::mt19937_64 random(11);
  std::normal_distribution<float> number;
  for (const std::size_t count : {1UL, 2UL, 7UL, 1000UL, 20000UL}) {
    std::vector<float> values(count);
    for (float& value : values) value = std::round(4 * number(random)) / 4;  // many are equal
    if (count > 2) values[2] = std::numeric_limits<float>::quiet_NaN();
    std::vector<std::int32_t> in_order(count);
    std::iota(in_order.begin(), in_order.end(), 0);
    std::stable_sort(in_order.begin(), in_order.end(), [&](std::int32_t a, std::int32_t b) {
      const float of_a = std::fabs(values[a]), of_b = std::fabs(values[b]);
      return std::isnan(of_b) ? false : std::isnan(of_a) || of_a > of_b;
    });
    for (const std::size_t most : {std::size_t{1}, count / 3, count - 1, count}) {
      if (most == 0) continue;
      std::vector<std::int32_t> found(most), expected(in_order.begin(), in_order.begin() + most);
      largest(values.data(), count, most, found.data());
      std::sort(found.begin(), found.end());
      std::sort(expected.begin(), expected.end());
      CHECK(found == expected);
    }
  }
}
