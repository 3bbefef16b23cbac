// The loops over elements for one instruction set: element_kernels.cpp includes this file once for
// each, in a namespace of its own.
//
//   TNT_TARGET      the attribute that makes a function use the instruction set
//   TNT_F16_LANES   float16 elements that its conversion instructions take at once, 0 without any
//
// The compiler vectorises the loops by itself; only the conversions of float16 it must be shown.
// All sets must give the same bits, so: no estimates, no fused multiply-add, and one NaN only.

#define TNT_INLINE TNT_TARGET inline __attribute__((always_inline))

// Operations, on integers, floats, and vectors of floats.

struct Sum {
  template <class T>
  TNT_INLINE static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
    else
      return a + b;
  }
};

struct Product {
  template <class T>
  TNT_INLINE static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(std::make_unsigned_t<T>(a) * std::make_unsigned_t<T>(b));
    else
      return a * b;
  }
};

// A comparison with NaN is false and gives b, so that a is asked as well. -0 + 0 is +0.
struct Min {
  template <class T>
  TNT_INLINE static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return a < b ? a : b;
    else
      return (a == a ? (a < b ? a : b) : a) + 0;
  }
};

struct Max {
  template <class T>
  TNT_INLINE static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return a > b ? a : b;
    else
      return (a == a ? (a > b ? a : b) : a) + 0;
  }
};

// What an element is worth, and the element nearest to a value. Any NaN becomes the one quiet NaN.

template <class T>
TNT_INLINE T value_of(T element) {
  return element;
}
TNT_INLINE float value_of(BFloat16 element) { return widen(element); }
TNT_INLINE float value_of(Float16 element) { return widen(element); }

template <class Float>
TNT_INLINE Float same_nan(Float value) {
  return value == value ? value : Float{} + __builtin_nanf("");
}

// To a float that can be rounded further as if it were the double: the one next to it towards zero,
// made odd, unless it is exact.
TNT_INLINE float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  const std::uint32_t towards_zero = as_bits(nearest) - (std::fabs(back) > std::fabs(value));
  return as_float(towards_zero | (back != value));
}
TNT_INLINE float round_to_odd(float value) { return value; }

template <class T, class Value>
TNT_INLINE T nearest(Value value) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return narrow_bfloat16(round_to_odd(value));
  else if constexpr (std::is_same_v<T, Float16>)
    return narrow_float16(round_to_odd(value));
  else if constexpr (std::is_integral_v<T>)
    return value;
  else
    return same_nan(static_cast<T>(value));
}

// Two neighbours of bfloat16 in a 32-bit word: each is the upper half of a float.

struct Pair {
  float low, high;
};

TNT_INLINE Pair load_pair(const BFloat16* from) {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return {as_float(word << 16), as_float(word & 0xffff0000)};
}

TNT_INLINE void store_pair(BFloat16* to, Pair values) {
  const std::uint32_t low = as_bits(same_nan(values.low));
  const std::uint32_t high = as_bits(same_nan(values.high));
  // As narrow_bfloat16 rounds.
  const std::uint32_t word =
      (low + 0x7fff + (low >> 16 & 1)) >> 16 | ((high + 0x7fff + (high >> 16 & 1)) & 0xffff0000);
  std::memcpy(to, &word, sizeof word);
}

// float16, as many at once as there are instructions for.

#if TNT_F16_LANES == 16
using Floats = __m512;
TNT_INLINE Floats load(const Float16* from) {
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
TNT_INLINE void store(Float16* to, Floats values) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_maskz_cvtps_ph(0xffff, same_nan(values), _MM_FROUND_TO_NEAREST_INT));
}
#elif TNT_F16_LANES == 8
using Floats = __m256;
TNT_INLINE Floats load(const Float16* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
TNT_INLINE void store(Float16* to, Floats values) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(same_nan(values), _MM_FROUND_TO_NEAREST_INT));
}
#endif

TNT_INLINE void widen_array(float* to, const Float16* from, std::size_t count) {
  std::size_t i = 0;
#if TNT_F16_LANES
  for (; i + TNT_F16_LANES <= count; i += TNT_F16_LANES) {
    const Floats values = load(from + i);
    std::memcpy(to + i, &values, sizeof values);
  }
#endif
  const std::size_t rest = count - i;
  TNT_INDEPENDENT
  for (std::size_t j = 0; j < rest; ++j) to[i + j] = widen(from[i + j]);
}

TNT_INLINE void narrow_array(Float16* to, const float* from, std::size_t count) {
  std::size_t i = 0;
#if TNT_F16_LANES
  for (; i + TNT_F16_LANES <= count; i += TNT_F16_LANES) {
    Floats values;
    std::memcpy(&values, from + i, sizeof values);
    store(to + i, values);
  }
#endif
  const std::size_t rest = count - i;
  TNT_INDEPENDENT
  for (std::size_t j = 0; j < rest; ++j) to[i + j] = narrow_float16(from[i + j]);
}

// So many float16 at a time go through an array of floats: in registers, or in the innermost cache
// where there are no instructions for them.
constexpr std::size_t block = TNT_F16_LANES ? 32 : 512;

// to[i] = a[i] (op) b[i]

template <class Op, class T>
TNT_INLINE void reduce(T* to, const T* a, const T* b, std::size_t count) {
  TNT_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i)
    to[i] = nearest<T>(Op::of(value_of(a[i]), value_of(b[i])));
}

template <class Op>
TNT_INLINE void reduce(BFloat16* to, const BFloat16* a, const BFloat16* b, std::size_t count) {
  const std::size_t paired = count / 2 * 2;
  TNT_INDEPENDENT
  for (std::size_t i = 0; i < paired; i += 2) {
    const Pair x = load_pair(a + i), y = load_pair(b + i);
    store_pair(to + i, {Op::of(x.low, y.low), Op::of(x.high, y.high)});
  }
  if (paired != count) to[paired] = narrow_bfloat16(Op::of(widen(a[paired]), widen(b[paired])));
}

template <class Op>
TNT_INLINE void reduce_block(Float16* to, const Float16* a, const Float16* b, std::size_t count) {
  float wide_a[block], wide_b[block];
  widen_array(wide_a, a, count);
  widen_array(wide_b, b, count);
  reduce<Op>(wide_a, wide_a, wide_b, count);
  narrow_array(to, wide_a, count);
}

template <class Op>
TNT_INLINE void reduce(Float16* to, const Float16* a, const Float16* b, std::size_t count) {
  std::size_t i = 0;
#if TNT_F16_LANES
  for (; i + TNT_F16_LANES <= count; i += TNT_F16_LANES)
    store(to + i, Op::of(load(a + i), load(b + i)));
#endif
  for (; i < count; i += block) reduce_block<Op>(to + i, a + i, b + i, std::min(block, count - i));
}

// to[i] = factor * from[i]

template <class To, class From, class Value>
TNT_INLINE void convert(To* to, const From* from, Value factor, std::size_t count) {
  TNT_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i)
    to[i] = nearest<To>(factor * static_cast<Value>(value_of(from[i])));
}

TNT_INLINE void convert(BFloat16* to, const BFloat16* from, float factor, std::size_t count) {
  const std::size_t paired = count / 2 * 2;
  TNT_INDEPENDENT
  for (std::size_t i = 0; i < paired; i += 2) {
    const Pair x = load_pair(from + i);
    store_pair(to + i, {factor * x.low, factor * x.high});
  }
  if (paired != count) to[paired] = narrow_bfloat16(factor * widen(from[paired]));
}

template <class To, class Value>
TNT_INLINE void convert_block(To* to, const Float16* from, Value factor, std::size_t count) {
  float wide[block];
  widen_array(wide, from, count);
  convert(to, wide, factor, count);
}

template <class From, class Value>
TNT_INLINE void convert_block(Float16* to, const From* from, Value factor, std::size_t count) {
  float wide[block];
  TNT_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i)
    wide[i] = round_to_odd(factor * static_cast<Value>(value_of(from[i])));
  narrow_array(to, wide, count);
}

TNT_INLINE void convert_block(Float16* to, const Float16* from, float factor, std::size_t count) {
  float wide[block];
  widen_array(wide, from, count);
  convert_block(to, wide, factor, count);
}

template <class To, class From, class Value>
TNT_INLINE void convert_blocks(To* to, const From* from, Value factor, std::size_t count) {
  std::size_t i = 0;
  for (; i + block <= count; i += block) convert_block(to + i, from + i, factor, block);
  if (i != count) convert_block(to + i, from + i, factor, count - i);
}

// A few cache lines of results, between the loop that makes them and stores that the compiler would
// not do by itself. Just so many that the loop is a vector or two, and they stay in registers.

template <class... T>
constexpr std::size_t lines_size() {
  constexpr bool float16 = (std::is_same_v<T, Float16> || ...);
  return float16 && TNT_F16_LANES == 0 ? block : 64 / std::min({sizeof(T)...});
}

template <class T, std::size_t size>
struct Lines {
  // What the loops store at once. It is passed on in the same parts, or it would go through memory.
  static constexpr std::size_t part =
      TNT_F16_LANES == 0 ? 16 : TNT_F16_LANES * (std::is_same_v<T, Float16> ? 2 : 4);

  alignas(64) T elements[size];
};

template <class T, std::size_t size>
TNT_INLINE void store(T* to, const Lines<T, size>& lines) {
  for (std::size_t byte = 0; byte < sizeof lines; byte += Lines<T, size>::part)
    std::memcpy(reinterpret_cast<std::byte*>(to) + byte,
                reinterpret_cast<const std::byte*>(lines.elements) + byte, Lines<T, size>::part);
}

#ifdef TNT_X86
template <std::size_t bytes>
using Bytes = std::integral_constant<std::size_t, bytes>;

TNT_INLINE void stream(std::byte* to, const std::byte* from, Bytes<16>) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                   _mm_load_si128(reinterpret_cast<const __m128i*>(from)));
}
#if TNT_F16_LANES >= 8
TNT_INLINE void stream(std::byte* to, const std::byte* from, Bytes<32>) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
}
#endif
#if TNT_F16_LANES >= 16
TNT_INLINE void stream(std::byte* to, const std::byte* from, Bytes<64>) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_load_si512(from));
}
#endif
#endif

// To where a cache line begins.
template <class T, std::size_t size>
TNT_INLINE void store_streaming(T* to, const Lines<T, size>& lines) {
#ifdef TNT_X86
  for (std::size_t byte = 0; byte < sizeof lines; byte += Lines<T, size>::part)
    stream(reinterpret_cast<std::byte*>(to) + byte,
           reinterpret_cast<const std::byte*>(lines.elements) + byte,
           Bytes<Lines<T, size>::part>{});
#else
  store(to, lines);
#endif
}

// How many elements there are before the first beginning of a line.
template <class T>
TNT_INLINE std::size_t before_line(const T* array, std::size_t count) {
  const std::size_t bytes = -reinterpret_cast<std::uintptr_t>(array) % 64;
  return std::min(bytes / sizeof(T), count);
}

// The functions of the table.

template <class T, class Op>
TNT_TARGET void reduce_kernel(void* to, const void* a, const void* b, std::size_t count) {
  reduce<Op>(static_cast<T*>(to), static_cast<const T*>(a), static_cast<const T*>(b), count);
}

template <class T, class Op>
TNT_TARGET void reduce_streaming_kernel(void* to_array, const void* a_array, const void* b_array,
                                        std::size_t count) {
  auto* to = static_cast<T*>(to_array);
  const auto* a = static_cast<const T*>(a_array);
  const auto* b = static_cast<const T*>(b_array);
  std::size_t i = before_line(to, count);
  if (i != 0) reduce_kernel<T, Op>(to, a, b, i);
  constexpr std::size_t size = lines_size<T>();
  for (; i + size <= count; i += size) {
    Lines<T, size> lines;
    reduce<Op>(lines.elements, a + i, b + i, size);
    store_streaming(to + i, lines);
  }
  if (i != count) reduce_kernel<T, Op>(to + i, a + i, b + i, count - i);
}

template <class T, class Op>
TNT_TARGET void reduce_both_kernel(void* a_array, void* b_array, std::size_t count) {
  auto* a = static_cast<T*>(a_array);
  auto* b = static_cast<T*>(b_array);
  std::size_t i = 0;
  constexpr std::size_t size = lines_size<T>();
  for (; i + size <= count; i += size) {
    Lines<T, size> lines;
    reduce<Op>(lines.elements, a + i, b + i, size);
    store(a + i, lines);
    store(b + i, lines);
  }
  if (i == count) return;
  reduce_kernel<T, Op>(a + i, a + i, b + i, count - i);
  std::memcpy(b + i, a + i, (count - i) * sizeof(T));
}

template <class To, class From>
TNT_INLINE void convert_array(To* to, const From* from, double scale, std::size_t count) {
  constexpr bool wide = std::is_same_v<To, double> || std::is_same_v<From, double>;
  const auto factor = static_cast<std::conditional_t<wide, double, float>>(scale);
  if constexpr (std::is_same_v<To, Float16> || std::is_same_v<From, Float16>)
    convert_blocks(to, from, factor, count);
  else
    convert(to, from, factor, count);
}

template <class To, class From>
TNT_TARGET void convert_kernel(void* to, const void* from, double scale, std::size_t count) {
  convert_array(static_cast<To*>(to), static_cast<const From*>(from), scale, count);
}

template <class To, class From>
TNT_TARGET void convert_streaming_kernel(void* to_array, const void* from_array, double scale,
                                         std::size_t count) {
  auto* to = static_cast<To*>(to_array);
  const auto* from = static_cast<const From*>(from_array);
  std::size_t i = before_line(to, count);
  if (i != 0) convert_kernel<To, From>(to, from, scale, i);
  constexpr std::size_t size = lines_size<To, From>();
  for (; i + size <= count; i += size) {
    Lines<To, size> lines;
    convert_array(lines.elements, from + i, scale, size);
    store_streaming(to + i, lines);
  }
  if (i != count) convert_kernel<To, From>(to + i, from + i, scale, count - i);
}

TNT_TARGET inline void copy_streaming_kernel(void* to_array, const void* from_array,
                                             std::size_t bytes) {
  auto* to = static_cast<std::uint8_t*>(to_array);
  const auto* from = static_cast<const std::uint8_t*>(from_array);
  std::size_t i = before_line(to, bytes);
  std::memcpy(to, from, i);
  for (; i + 64 <= bytes; i += 64) {
    Lines<std::uint8_t, 64> lines;
    std::memcpy(lines.elements, from + i, 64);
    store_streaming(to + i, lines);
  }
  std::memcpy(to + i, from + i, bytes - i);
}

template <class T, class Op>
void fill(ElementKernels& kernels, std::size_t type, Reduction reduction) {
  kernels.reduce[type][index(reduction)] = reduce_kernel<T, Op>;
  kernels.reduce_streaming[type][index(reduction)] = reduce_streaming_kernel<T, Op>;
  kernels.reduce_both[type][index(reduction)] = reduce_both_kernel<T, Op>;
}

template <class To, class From>
void fill(ElementKernels& kernels, std::size_t to, Type from) {
  kernels.convert[to][index(from)] = convert_kernel<To, From>;
  kernels.convert_streaming[to][index(from)] = convert_streaming_kernel<To, From>;
}

template <class T>
void fill(ElementKernels& kernels, Type type) {
  fill<T, Sum>(kernels, index(type), Reduction::sum);
  fill<T, Min>(kernels, index(type), Reduction::min);
  fill<T, Max>(kernels, index(type), Reduction::max);
  fill<T, Product>(kernels, index(type), Reduction::product);
  if constexpr (!std::is_integral_v<T>) {
    fill<T, float>(kernels, index(type), Type::float32);
    fill<T, double>(kernels, index(type), Type::float64);
    fill<T, BFloat16>(kernels, index(type), Type::bfloat16);
    fill<T, Float16>(kernels, index(type), Type::float16);
  }
}

inline ElementKernels kernels(const char* instruction_set) {
  ElementKernels all{};
  all.instruction_set = instruction_set;
  all.copy_streaming = copy_streaming_kernel;
  fill<float>(all, Type::float32);
  fill<double>(all, Type::float64);
  fill<BFloat16>(all, Type::bfloat16);
  fill<Float16>(all, Type::float16);
  fill<std::int32_t>(all, Type::int32);
  fill<std::int64_t>(all, Type::int64);
  fill<std::uint8_t>(all, Type::uint8);
  return all;
}

#undef TNT_INLINE
#undef TNT_F16_LANES
#undef TNT_TARGET
