// TntEncode      floats as a few bits each, and what the codes leave out of them
// TntDecodeSum   the sum of what several arrays of codes stand for
// TntLargest     where the elements of largest magnitude are
#include "elements/codes.h"

#include <cstring>

#include "elements/largest.h"
#include "tensorflow/kernel.h"

namespace tnt::tf {
namespace {

struct Codes {
  int bits;

  explicit Codes(TF_OpKernelConstruction* construction)
      : bits(static_cast<int>(int_attribute(construction, "bits"))) {
    if (!is_code_width(bits)) throw std::runtime_error("codes have 1, 2, 4 or 8 bits");
  }
};

std::size_t count_of(const TensorOwner& tensor) {
  return TF_TensorByteSize(tensor.get()) / sizeof(float);
}

const float* floats_of(const TensorOwner& tensor) {
  return static_cast<const float*>(TF_TensorData(tensor.get()));
}

void encode_all(Codes& kernel, TF_OpKernelContext* context) {
  const TensorOwner values = input(context, 0);
  std::int64_t seed = 0;
  std::memcpy(&seed, TF_TensorData(input(context, 1).get()), sizeof seed);
  const std::size_t count = count_of(values);
  const auto bytes = static_cast<std::int64_t>(encoded_bytes(count, kernel.bits));
  const TensorOwner codes = output(context, 0, TF_UINT8, &bytes, 1);
  auto* const to = static_cast<std::byte*>(TF_TensorData(codes.get()));
  encode(floats_of(values), count, kernel.bits, static_cast<std::uint32_t>(seed), to);
  const TensorOwner left = output_like(context, 1, TF_FLOAT, values.get());
  auto* const rest = static_cast<float*>(TF_TensorData(left.get()));
  for (std::size_t i = 0; i < count; ++i) rest[i] = 0;
  decode_and_add(to, count, kernel.bits, rest);
  for (std::size_t i = 0; i < count; ++i) rest[i] = floats_of(values)[i] - rest[i];
}

void decode_sum(Codes& kernel, TF_OpKernelContext* context) {
  const TensorOwner codes = input(context, 0), like = input(context, 1);
  const std::size_t count = count_of(like), bytes = encoded_bytes(count, kernel.bits);
  const std::size_t all = TF_TensorByteSize(codes.get());
  if (bytes == 0 ? all != 0 : all % bytes != 0)
    throw std::runtime_error(std::to_string(all) + " bytes of codes are not of arrays of " +
                             std::to_string(count) + " elements");
  const TensorOwner sum = output_like(context, 0, TF_FLOAT, like.get());
  auto* const to = static_cast<float*>(TF_TensorData(sum.get()));
  for (std::size_t i = 0; i < count; ++i) to[i] = 0;
  const auto* const from = static_cast<const std::byte*>(TF_TensorData(codes.get()));
  for (std::size_t begin = 0; begin < all; begin += bytes)
    decode_and_add(from + begin, count, kernel.bits, to);
}

struct Largest {
  std::int64_t most;

  explicit Largest(TF_OpKernelConstruction* construction)
      : most(int_attribute(construction, "count")) {}
};

void find_largest(Largest& kernel, TF_OpKernelContext* context) {
  const TensorOwner values = input(context, 0);
  const std::size_t count = count_of(values);
  if (kernel.most < 1 || static_cast<std::size_t>(kernel.most) > count || count > INT32_MAX)
    throw std::runtime_error("there are no " + std::to_string(kernel.most) + " largest of " +
                             std::to_string(count) + " elements");
  const TensorOwner places = output(context, 0, TF_INT32, &kernel.most, 1);
  largest(floats_of(values), count, static_cast<std::size_t>(kernel.most),
          static_cast<std::int32_t*>(TF_TensorData(places.get())));
}

}  // namespace

void define_codes() {
  define_at_once<Codes, encode_all>({"TntEncode", Words{"values: float", "seed: int64"},
                                     Words{"codes: uint8", "left: float"}, Words{"bits: int"}});
  define_at_once<Codes, decode_sum>({"TntDecodeSum", Words{"codes: uint8", "like: float"},
                                     Words{"sum: float"}, Words{"bits: int"}});
  define_at_once<Largest, find_largest>(
      {"TntLargest", Words{"values: float"}, Words{"places: int32"}, Words{"count: int"}});
}

}  // namespace tnt::tf
