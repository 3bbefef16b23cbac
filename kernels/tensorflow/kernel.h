// What the ops have in common: definitions, attributes, tensors, errors.
//
// TF_NewAsyncKernelBuilder hands compute a pointer to a std::function<void()> on its caller's
// stack, which is gone when compute returns. A copy of it may be called later, from any thread.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/registry.h"
#include "tensorflow/api.h"

namespace tnt::tf {

struct Delete {
  void operator()(TF_Status* status) const { TF_DeleteStatus(status); }
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using StatusOwner = std::unique_ptr<TF_Status, Delete>;
using TensorOwner = std::unique_ptr<TF_Tensor, Delete>;

inline StatusOwner new_status() { return StatusOwner(TF_NewStatus()); }

// Throws std::runtime_error with TensorFlow's message.
inline void check(const StatusOwner& status) {
  if (TF_GetCode(status.get()) != TF_OK) throw std::runtime_error(TF_Message(status.get()));
}

// A copy of the callback. Throws std::runtime_error if it is not the std::function that it has
// been in every TensorFlow so far.
std::function<void()> copy_done(TF_AsyncOpKernelDoneCallback* done);

inline void fail(TF_OpKernelContext* context, Code code, const std::string& message) {
  const StatusOwner status = new_status();
  TF_SetStatus(status.get(), code, message.c_str());
  TF_OpKernelContext_Failure(context, status.get());
}

inline void fail(TF_OpKernelContext* context, const Failure& failure) {
  fail(context, failure.stalled ? TF_DEADLINE_EXCEEDED : TF_ABORTED, failure.reason);
}

inline TensorOwner input(TF_OpKernelContext* context, int index) {
  TF_Tensor* tensor = nullptr;
  const StatusOwner status = new_status();
  TF_GetInput(context, index, &tensor, status.get());
  check(status);
  return TensorOwner(tensor);
}

// An output with so many axes, to be filled.
inline TensorOwner output(TF_OpKernelContext* context, int index, DataType type,
                          const std::int64_t* axes, int count) {
  std::size_t bytes = TF_DataTypeSize(type);
  for (int axis = 0; axis < count; ++axis) bytes *= static_cast<std::size_t>(axes[axis]);
  const StatusOwner status = new_status();
  TensorOwner tensor(TF_AllocateOutput(context, index, type, axes, count, bytes, status.get()));
  check(status);
  return tensor;
}

// The axes of a tensor.
struct Axes {
  std::int64_t lengths[254];  // TensorShape::MaxDimensions()
  int count;

  explicit Axes(const TF_Tensor* tensor) : count(TF_NumDims(tensor)) {
    for (int axis = 0; axis < count; ++axis) lengths[axis] = TF_Dim(tensor, axis);
  }
};

// One of the axes of a tensor.
inline TensorOwner output_like(TF_OpKernelContext* context, int index, DataType type,
                               const TF_Tensor* tensor) {
  const Axes axes(tensor);
  return output(context, index, type, axes.lengths, axes.count);
}

// The output of the same index, of the input's axes: its memory, unless others will read that; what
// it holds is there in both cases. The input must not be held by anybody else meanwhile.
inline TensorOwner output_for(TF_OpKernelContext* context, int index, TensorOwner& in) {
  const Axes axes(in.get());
  in.reset();  // who holds it would be another reader
  const StatusOwner status = new_status();
  int forwarded = -1;
  TensorOwner out(TF_ForwardInputOrAllocateOutput(context, &index, 1, index, axes.lengths,
                                                  axes.count, &forwarded, status.get()));
  check(status);
  in = input(context, index);
  return out;
}

// A number as an output.
inline void put(TF_OpKernelContext* context, int index, std::int64_t number) {
  const TensorOwner tensor = output(context, index, TF_INT64, nullptr, 0);
  std::memcpy(TF_TensorData(tensor.get()), &number, sizeof number);
}

// Of a type that can be reduced; null for one of which only bytes can be moved.
std::optional<Type> reduced_type(DataType type);
// The same. Throws std::runtime_error instead.
Type element_type(DataType type);
#define TNT_REDUCED "float, double, bfloat16, half, int32, int64"
#define TNT_MOVED \
  TNT_REDUCED ", bool, uint8, int8, int16, uint16, uint32, uint64, complex64, complex128"

std::int64_t int_attribute(TF_OpKernelConstruction* construction, const char* name);
std::vector<std::int64_t> int_attributes(TF_OpKernelConstruction* construction, const char* name);
DataType type_attribute(TF_OpKernelConstruction* construction, const char* name);
std::string string_attribute(TF_OpKernelConstruction* construction, const char* name);

// What ops that communicate are made with.
struct Address {
  int world = 0, group = 0;
  std::uint32_t channel = 0;
  std::string label;

  static constexpr const char* attributes[] = {"world: int", "group: int", "channel: int",
                                               "label: string"};
  explicit Address(TF_OpKernelConstruction* construction);
  std::shared_ptr<Engine> engine() const;  // throws std::runtime_error if there is none
};

struct Nothing {
  explicit Nothing(TF_OpKernelConstruction*) {}
};

std::vector<const char*> with_address(std::vector<const char*> attributes);

// Makes a kernel by its constructor that takes a TF_OpKernelConstruction*.
template <class Kernel>
void* create(TF_OpKernelConstruction* construction) {
  try {
    return new Kernel(construction);
  } catch (const std::exception& error) {
    const StatusOwner status = new_status();
    TF_SetStatus(status.get(), TF_INTERNAL, error.what());
    TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
}

template <class Kernel>
void destroy(void* kernel) {
  delete static_cast<Kernel*>(kernel);
}

// Runs body(kernel, context, done), which calls done() unless it throws.
using Callback = std::function<void()>;
template <class Kernel>
using Body = void (*)(Kernel& kernel, TF_OpKernelContext* context, const Callback& done);

template <class Kernel, Body<Kernel> body>
void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  Callback done;
  try {
    done = copy_done(callback);
    body(*static_cast<Kernel*>(kernel), context, done);
  } catch (const std::exception& error) {
    fail(context, TF_INTERNAL, error.what());
    if (done)
      done();
    else
      (*reinterpret_cast<Callback*>(callback))();
  }
}

using Shapes = void (*)(TF_ShapeInferenceContext*, TF_Status*);
void unknown_shape(TF_ShapeInferenceContext* context, TF_Status* status);

using Words = std::vector<const char*>;
struct Definition {
  const char* name;
  Words inputs, outputs, attributes;
  Shapes shapes = unknown_shape;
};

// Registers an op and its kernel. Throws std::runtime_error with TensorFlow's message.
void define(const Definition& op, TF_KernelBuilder* kernel);
template <class Kernel, Body<Kernel> body>
void define(const Definition& op) {
  define(op, TF_NewAsyncKernelBuilder(op.name, "CPU", create<Kernel>, compute<Kernel, body>,
                                      destroy<Kernel>));
}

// The same of an op that is done when body(kernel, context) returns: what waits for it may run on
// in the same thread, where after an async one TensorFlow wakes up another.
template <class Kernel>
using BodyAtOnce = void (*)(Kernel& kernel, TF_OpKernelContext* context);

template <class Kernel, BodyAtOnce<Kernel> body>
void compute_at_once(void* kernel, TF_OpKernelContext* context) {
  try {
    body(*static_cast<Kernel*>(kernel), context);
  } catch (const std::exception& error) {
    fail(context, TF_INTERNAL, error.what());
  }
}

template <class Kernel, BodyAtOnce<Kernel> body>
void define_at_once(const Definition& op) {
  define(op, TF_NewKernelBuilder(op.name, "CPU", create<Kernel>, compute_at_once<Kernel, body>,
                                 destroy<Kernel>));
}

void define_codes();
void define_collectives();
void define_moves();
void define_servers();
void define_transfers();

}  // namespace tnt::tf
