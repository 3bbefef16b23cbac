// bfloat16 and float16 against what their definition says, computed in double.
#include <cmath>
#include <random>
#include <vector>

#include "check.h"
#include "elements.h"

using namespace tnt;
using namespace tnt::test;

namespace {

constexpr std::uint32_t patterns = 1 << 16;

struct Format {
  int fraction_bits, exponent_bits;

  bool is_nan(std::uint32_t bits) const {
    return exponent(bits) == (1 << exponent_bits) - 1 && fraction(bits) != 0;
  }
  // IEEE 754, section 3.4.
  double value(std::uint32_t bits) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double sign = bits >> 15 != 0 ? -1 : 1;
    const double scaled = std::ldexp(fraction(bits), -fraction_bits);
    if (exponent(bits) == 0) return sign * std::ldexp(scaled, 1 - bias);
    if (exponent(bits) == (1 << exponent_bits) - 1)
      return fraction(bits) != 0 ? std::nan("") : sign * INFINITY;
    return sign * std::ldexp(1 + scaled, exponent(bits) - bias);
  }
  // The pattern nearest to a value that is not NaN, ties to the even one.
  std::uint32_t nearest(double x) const {
    const std::uint32_t sign = std::signbit(x) ? 0x8000 : 0;
    x = std::fabs(x);
    const std::uint32_t infinity = ((1U << exponent_bits) - 1) << fraction_bits;
    // Patterns of one sign are ordered as their values: the last one that is not above x.
    std::uint32_t below = 0;
    for (std::uint32_t bit = 1U << 14; bit != 0; bit >>= 1)
      if (below + bit < infinity && value(below + bit) <= x) below += bit;
    // Infinity takes the place of the number that would come next.
    const double gap = value(below) - value(below == 0 ? 0 : below - 1);
    const double next = below + 1 < infinity ? value(below + 1) : value(below) + gap;
    const double middle = (value(below) + next) / 2;
    const bool up = x > middle || (x == middle && below % 2 == 1);
    return sign | (below + (up ? 1 : 0));
  }

 private:
  int exponent(std::uint32_t bits) const {
    return static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  }
  int fraction(std::uint32_t bits) const {
    return static_cast<int>(bits & ((1U << fraction_bits) - 1));
  }
};

constexpr Format bfloat16{7, 8}, float16{10, 5};

constexpr Type type_of(BFloat16) { return Type::bfloat16; }
constexpr Type type_of(Float16) { return Type::float16; }

// What each pattern is worth as a float, and that it comes back from there; of NaNs, one comes.
template <class T>
void check_widening(const Format& format, std::uint16_t nan) {
  for (std::uint32_t bits = 0; bits < patterns; ++bits) {
    const float wide = widen(T{static_cast<std::uint16_t>(bits)});
    CHECK_EQUAL(narrow(wide, T{}).bits, format.is_nan(bits) ? nan : bits);
    CHECK_EQUAL(std::isnan(wide), format.is_nan(bits));
    if (std::isnan(wide)) continue;
    CHECK_EQUAL(static_cast<double>(wide), format.value(bits));
    CHECK_EQUAL(std::signbit(wide), bits >= 0x8000);
  }
}

// Every number, every midpoint between neighbours, and the floats just beside both.
template <class T>
void check_rounding(const Format& format) {
  const auto check = [&](float x) {
    CHECK_EQUAL(narrow(x, T{}).bits, format.nearest(x));
    CHECK_EQUAL(narrow(-x, T{}).bits, format.nearest(-x));
  };
  const std::uint32_t infinity = ((1U << format.exponent_bits) - 1) << format.fraction_bits;
  for (std::uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    const auto value = static_cast<float>(format.value(bits));
    const auto middle = static_cast<float>((format.value(bits) + format.value(bits + 1)) / 2);
    for (const float x : {value, middle}) {
      check(x);
      check(std::nextafter(x, INFINITY));
      if (x > 0) check(std::nextafter(x, 0.0F));
    }
  }
  for (const float x : {INFINITY, std::numeric_limits<float>::max()}) {
    check(x);  // both become infinity
    CHECK_EQUAL(widen(narrow(x, T{})), INFINITY);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float x = as_float(static_cast<std::uint32_t>(random()));
    if (!std::isnan(x)) check(x);
  }
}

// Doubles so close to the midpoints that a float on the way would be rounded to them.
template <class T>
void check_rounding_of_doubles(const Format& format) {
  std::vector<double> values{1e300, -1e300, 1e-300, -1e-300, INFINITY, -INFINITY};
  const std::uint32_t infinity = ((1U << format.exponent_bits) - 1) << format.fraction_bits;
  for (std::uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    const double middle = (format.value(bits) + format.value(bits + 1)) / 2;
    for (const double x : {middle, std::nextafter(middle, 1e300), std::nextafter(middle, 0.0)}) {
      values.push_back(x);
      values.push_back(-x);
    }
  }
  std::vector<T> narrowed(values.size());
  convert(type_of(T{}), narrowed.data(), Type::float64, values.data(), 1, values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK_EQUAL(narrowed[i].bits, format.nearest(values[i]));
}

}  // namespace

TEST(bfloat16_is_worth_what_its_definition_says_and_survives_the_way_through_float) {
  check_widening<BFloat16>(bfloat16, 0x7fc0);
}
TEST(float16_is_worth_what_its_definition_says_and_survives_the_way_through_float) {
  check_widening<Float16>(float16, 0x7e00);
}
TEST(floats_become_the_nearest_bfloat16) { check_rounding<BFloat16>(bfloat16); }
TEST(floats_become_the_nearest_float16) { check_rounding<Float16>(float16); }
TEST(doubles_become_the_nearest_bfloat16) { check_rounding_of_doubles<BFloat16>(bfloat16); }
TEST(doubles_become_the_nearest_float16) { check_rounding_of_doubles<Float16>(float16); }
