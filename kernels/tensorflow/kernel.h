// What the ops have in common: definitions, attributes, errors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/registry.h"
#include "tensorflow/async_kernel.h"

namespace tnt::tf {

// Of a type that can be reduced; null for one of which only bytes can be moved.
std::optional<Type> reduced_type(DataType type);
// The same. Throws std::runtime_error instead.
Type element_type(DataType type);
#define TNT_REDUCED "float, double, bfloat16, half, int32, int64"
#define TNT_MOVED \
  TNT_REDUCED ", bool, uint8, int8, int16, uint16, uint32, uint64, complex64, complex128"

std::int64_t int_attribute(TF_OpKernelConstruction* construction, const char* name);
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

// Runs `body`, which calls `done` unless it throws.
template <class Body>
void guarded(TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback, Body&& body) {
  std::function<void()> done;
  try {
    done = copy_done(callback);
    body(done);
  } catch (const std::exception& error) {
    fail(context, TF_INTERNAL, error.what());
    if (done)
      done();
    else
      (*reinterpret_cast<std::function<void()>*>(callback))();
  }
}

using Shapes = void (*)(TF_ShapeInferenceContext*, TF_Status*);
void unknown_shape(TF_ShapeInferenceContext* context, TF_Status* status);

using Compute = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);

struct Definition {
  const char* name;
  std::vector<const char*> inputs, outputs, attributes;
  Shapes shapes;
  void* (*create)(TF_OpKernelConstruction*);
  Compute compute;
  void (*destroy)(void*);
};

// Registers an op and its kernel. Throws std::runtime_error with TensorFlow's message.
void define(const Definition& op);

void define_collectives();
void define_transfers();
void define_clock();

}  // namespace tnt::tf
