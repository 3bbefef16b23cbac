#include "elements/element.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "elements/element_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <cfenv>
#endif

namespace tnt {
namespace {

// The default floating-point modes for as long as it lives. TensorFlow's threads flush subnormal
// numbers to zero; results must not depend on the thread.
#if defined(__x86_64__)
class DefaultModes {
 public:
  DefaultModes() : modes_(_mm_getcsr()) {
    if (changed()) _mm_setcsr(defaults);
  }
  ~DefaultModes() {
    if (changed()) _mm_setcsr(modes_);
  }

 private:
  static constexpr unsigned defaults = 0x1f80, sticky_flags = 0x3f;
  bool changed() const { return (modes_ & ~sticky_flags) != defaults; }
  const unsigned modes_;
};
#else
class DefaultModes {
 public:
  DefaultModes() {
    std::fegetenv(&modes_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultModes() { std::fesetenv(&modes_); }

 private:
  std::fenv_t modes_;
};
#endif

// Streaming stores are not ordered: others shall not see less of them than of what is stored next.
void store_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

const ElementKernels& fastest() {
  static const ElementKernels& kernels = element_kernels().front();
  return kernels;
}

template <class Enum>
int index(Enum value) {
  return static_cast<int>(value);
}

bool is_float(Type type) { return type <= Type::float16; }

void copy(void* to, const void* from, std::size_t bytes, bool streaming) {
  if (to == from || bytes == 0) return;
  if (streaming) {
    fastest().copy_streaming(to, from, bytes);
    store_fence();
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

std::size_t size_of(Type type) {
  switch (type) {
    case Type::float32: return 4;
    case Type::float64: return 8;
    case Type::bfloat16: return 2;
    case Type::float16: return 2;
    case Type::int32: return 4;
    case Type::int64: return 8;
    case Type::uint8: return 1;
  }
  throw std::invalid_argument("unknown element type");
}

const char* name_of(Type type) {
  switch (type) {
    case Type::float32: return "float32";
    case Type::float64: return "float64";
    case Type::bfloat16: return "bfloat16";
    case Type::float16: return "float16";
    case Type::int32: return "int32";
    case Type::int64: return "int64";
    case Type::uint8: return "uint8";
  }
  return "unknown";
}

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::min: return "min";
    case Reduction::max: return "max";
    case Reduction::product: return "product";
  }
  return "unknown";
}

const char* instruction_set() { return fastest().instruction_set; }

void reduce(Type type, Reduction reduction, void* to, const void* a, const void* b,
            std::size_t count, bool streaming) {
  const DefaultModes modes;
  if (streaming) {
    fastest().reduce_streaming[index(type)][index(reduction)](to, a, b, count);
    store_fence();
  } else {
    fastest().reduce[index(type)][index(reduction)](to, a, b, count);
  }
}

void reduce_both(Type type, Reduction reduction, void* a, void* b, std::size_t count) {
  const DefaultModes modes;
  fastest().reduce_both[index(type)][index(reduction)](a, b, count);
}

void convert(Type to_type, void* to, Type from_type, const void* from, double scale,
             std::size_t count, bool streaming) {
  const bool floats = is_float(to_type) && is_float(from_type);
  if (!floats && to_type != from_type)
    throw std::invalid_argument(std::string(name_of(from_type)) + " is not converted to " +
                                name_of(to_type));
  if (!floats && scale != 0.0 && scale != 1.0)
    throw std::invalid_argument(std::string(name_of(from_type)) + " is not scaled");

  const std::size_t bytes = count * size_of(to_type);
  if (count == 0) return;
  if (scale == 0.0) {
    std::memset(to, 0, bytes);
  } else if (scale == 1.0 && to_type == from_type) {
    copy(to, from, bytes, streaming);
  } else {
    const DefaultModes modes;
    if (streaming) {
      fastest().convert_streaming[index(to_type)][index(from_type)](to, from, scale, count);
      store_fence();
    } else {
      fastest().convert[index(to_type)][index(from_type)](to, from, scale, count);
    }
  }
}

}  // namespace tnt
