// TensorFlow ops over the engine, registered when tf.load_op_library loads this library.
//
//   TntAllreduce   N tensors in, N tensors out: one bucket. It runs when its last input is ready
//                  and holds no thread while messages travel.
//   TntAllgather   blocks of all ranks, concatenated along the first axis.
//   TntSend        a tensor to another rank, which takes it by
//   TntReceive     of a shape that it knows. Neither holds a thread.
//   TntCheck       completes from another thread: proves that done() may be kept (see Python).
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/gather.h"
#include "engine/heading.h"
#include "engine/registry.h"
#include "engine/transfer.h"
#include "tensorflow/async_kernel.h"

namespace tnt::tf {

std::function<void()> copy_done(TF_AsyncOpKernelDoneCallback* done) {
  // libstdc++'s std::function: 16 bytes of state, then two pointers to code.
  void* code[2];
  std::memcpy(code, reinterpret_cast<const char*>(done) + 16, sizeof code);
  // It is the same code in every call, and to look it up takes most of a millisecond.
  static std::atomic<void*> known[2];
  const auto is_known = [&] { return known[0] == code[0] && known[1] == code[1]; };
  Dl_info info;
  if (code[0] == nullptr || code[1] == nullptr ||
      (!is_known() && (dladdr(code[0], &info) == 0 || dladdr(code[1], &info) == 0)))
    throw std::runtime_error(
        "this TensorFlow hands async kernels a callback that tnt_notebook does not know; install "
        "a TensorFlow version named in the README");
  known[0] = code[0];
  known[1] = code[1];
  return *reinterpret_cast<std::function<void()>*>(done);
}

namespace {

Type element_type(DataType type) {
  switch (type) {
    case TF_FLOAT: return Type::float32;
    case TF_DOUBLE: return Type::float64;
    case TF_BFLOAT16: return Type::bfloat16;
    case TF_HALF: return Type::float16;
    case TF_INT32: return Type::int32;
    case TF_INT64: return Type::int64;
  }
  throw std::runtime_error("element type " + std::to_string(type) + " cannot be exchanged");
}

// An op of a graph, with the attributes that both collectives have, and the call under way: its
// channel carries one at a time.
struct Kernel {
  int world = 0, group = 0;
  std::uint32_t channel = 0;
  std::string label;
  Reduction reduction = Reduction::sum;
  Type wire = Type::float32;
  int peer = 0;
  DataType type = TF_FLOAT;                  // of a transfer
  std::shared_ptr<const Schedule> schedule;  // of the last transfer
  std::size_t count = 0;                     // of its elements
  std::weak_ptr<Engine> engine;              // that it is for

  TF_OpKernelContext* context = nullptr;
  std::function<void()> done;
  std::vector<TensorOwner> tensors;
};

std::int64_t int_attribute(TF_OpKernelConstruction* construction, const char* name) {
  std::int64_t value = 0;
  const StatusOwner status = new_status();
  TF_OpKernelConstruction_GetAttrInt64(construction, name, &value, status.get());
  check(status);
  return value;
}

DataType type_attribute(TF_OpKernelConstruction* construction, const char* name) {
  DataType value = TF_FLOAT;
  const StatusOwner status = new_status();
  TF_OpKernelConstruction_GetAttrType(construction, name, &value, status.get());
  check(status);
  return value;
}

std::string string_attribute(TF_OpKernelConstruction* construction, const char* name) {
  std::int32_t list = 0, bytes = 0;
  const StatusOwner status = new_status();
  TF_OpKernelConstruction_GetAttrSize(construction, name, &list, &bytes, status.get());
  check(status);
  std::string value(static_cast<std::size_t>(bytes), '\0');
  TF_OpKernelConstruction_GetAttrString(construction, name, value.data(), value.size(),
                                        status.get());
  check(status);
  return value;
}

Reduction reduction_named(const std::string& name) {
  for (const Reduction reduction : {Reduction::min, Reduction::max, Reduction::product})
    if (name == name_of(reduction)) return reduction;
  return Reduction::sum;
}

enum class Attributes { common, reduction, peer };

template <Attributes more>
void* create(TF_OpKernelConstruction* construction) {
  try {
    auto kernel = std::make_unique<Kernel>();
    kernel->world = static_cast<int>(int_attribute(construction, "world"));
    kernel->channel = static_cast<std::uint32_t>(int_attribute(construction, "channel"));
    kernel->label = string_attribute(construction, "label");
    if (more == Attributes::peer) {
      kernel->peer = static_cast<int>(int_attribute(construction, "peer"));
      kernel->type = type_attribute(construction, "T");
    }
    if (more == Attributes::reduction) {
      kernel->group = static_cast<int>(int_attribute(construction, "group"));
      kernel->reduction = reduction_named(string_attribute(construction, "reduction"));
      kernel->wire = element_type(type_attribute(construction, "wire"));
    }
    return kernel.release();
  } catch (const std::exception& error) {
    const StatusOwner status = new_status();
    TF_SetStatus(status.get(), TF_INTERNAL, error.what());
    TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
}

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

std::shared_ptr<Engine> engine_of(const Kernel& kernel) {
  auto engine = find_engine(kernel.world);
  if (engine == nullptr) throw std::runtime_error("communication is closed: " + kernel.label);
  return engine;
}

TensorOwner output_like(TF_OpKernelContext* context, int index, DataType type, TF_Tensor* tensor) {
  constexpr int most_axes = 254;  // TensorShape::MaxDimensions()
  std::int64_t shape[most_axes];
  const int axes = TF_NumDims(tensor);
  for (int axis = 0; axis < axes; ++axis) shape[axis] = TF_Dim(tensor, axis);
  const StatusOwner status = new_status();
  TensorOwner output(TF_AllocateOutput(context, index, type, shape, axes, TF_TensorByteSize(tensor),
                                       status.get()));
  check(status);
  return output;
}

// The next call on the kernel may begin before done() returns.
void finish(Kernel& kernel, const Failure& failure) {
  kernel.tensors.clear();
  if (!failure.empty()) fail(kernel.context, TF_ABORTED, failure);
  const std::function<void()> done = std::move(kernel.done);
  kernel.done = nullptr;
  done();
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

// How long TensorFlow's thread waits for the other ranks before it leaves that to the engine's.
constexpr auto patience = std::chrono::microseconds(15);

void compute_allreduce(void* state, TF_OpKernelContext* context,
                       TF_AsyncOpKernelDoneCallback* callback) {
  guarded(context, callback, [&](const std::function<void()>& done) {
    auto& kernel = *static_cast<Kernel*>(state);
    const auto engine = engine_of(kernel);
    Bucket& bucket = engine->take(kernel.channel);
    bool filled = false;
    try {
      const int n = TF_NumInputs(context) - 1;
      const DataType type = TF_InputDatatype(context, 0);
      const std::size_t element_bytes = size_of(element_type(type));
      Request& request = bucket.request;
      std::uint64_t shapes = 0;
      for (int i = 0; i < n; ++i) {
        kernel.tensors.push_back(input(context, i));
        TF_Tensor* in = kernel.tensors.back().get();
        kernel.tensors.push_back(output_like(context, i, type, in));
        const std::size_t count = TF_TensorByteSize(in) / element_bytes;
        shapes = hash_of(count, shapes);
        request.inputs.add(static_cast<const std::byte*>(TF_TensorData(in)), count);
        request.outputs.add(static_cast<std::byte*>(TF_TensorData(kernel.tensors.back().get())),
                            count);
      }
      std::memcpy(&request.scale, TF_TensorData(input(context, n).get()), sizeof request.scale);
      request.collective = Collective::allreduce;
      request.count = request.inputs.count();
      request.type = element_type(type);
      request.wire = kernel.wire;
      request.reduction = kernel.reduction;
      request.label = kernel.label;
      request.agreed = shapes;
      request.group = engine->find_group(kernel.group);
      kernel.context = context;
      kernel.done = done;
      filled = true;
      engine->start_and_help(
          bucket, [&kernel](const Failure& failure) { finish(kernel, failure); }, patience);
    } catch (...) {
      kernel.tensors.clear();
      if (!filled) engine->release(bucket);
      throw;
    }
  });
}

void compute_allgather(void* state, TF_OpKernelContext* context,
                       TF_AsyncOpKernelDoneCallback* callback) {
  guarded(context, callback, [&](const std::function<void()>& done) {
    const auto& kernel = *static_cast<const Kernel*>(state);
    const auto engine = engine_of(kernel);
    const DataType type = TF_InputDatatype(context, 0);
    auto owner = std::make_shared<TensorOwner>(input(context, 0));
    const TensorOwner& in = *owner;
    std::vector<std::int64_t> shape;
    std::size_t row_bytes = size_of(element_type(type));
    for (int axis = 0; axis < TF_NumDims(in.get()); ++axis) {
      shape.push_back(TF_Dim(in.get(), axis));
      if (axis > 0) row_bytes *= static_cast<std::size_t>(shape.back());
    }
    auto output = std::make_shared<TensorOwner>();
    auto allocate = [context, type, shape, row_bytes, output](std::size_t bytes) mutable {
      shape[0] = row_bytes == 0 ? 0 : static_cast<std::int64_t>(bytes / row_bytes);
      const StatusOwner status = new_status();
      output->reset(TF_AllocateOutput(context, 0, type, shape.data(),
                                      static_cast<int>(shape.size()), bytes, status.get()));
      if (TF_GetCode(status.get()) == TF_OK) return TF_TensorData(output->get());
      TF_OpKernelContext_Failure(context, status.get());
      return static_cast<void*>(nullptr);
    };
    const auto finished = [context, done, owner, output](const Failure& failure) {
      if (!failure.empty()) fail(context, TF_ABORTED, failure);
      done();
    };
    gather(engine, kernel.channel, kernel.label, TF_TensorData(in.get()),
           TF_TensorByteSize(in.get()), std::move(allocate), finished);
  });
}

// fill(request) says how many elements, and where they are or go to.
template <class Fill>
void compute_transfer(Kernel& kernel, bool sends, TF_OpKernelContext* context,
                      TF_AsyncOpKernelDoneCallback* callback, Fill&& fill) {
  guarded(context, callback, [&](const std::function<void()>& done) {
    const auto engine = engine_of(kernel);
    Bucket& bucket = engine->take(kernel.channel);
    bool filled = false;
    try {
      Request& request = bucket.request;
      request.type = request.wire = element_type(kernel.type);
      fill(request);
      const int from = sends ? engine->rank() : kernel.peer;
      const int to = sends ? kernel.peer : engine->rank();
      if (kernel.schedule == nullptr || kernel.count != request.count ||
          kernel.engine.lock() != engine) {
        kernel.schedule = transfer(*engine, from, to, request.count);
        kernel.count = request.count;
        kernel.engine = engine;
      }
      request.collective = Collective::broadcast;
      request.root = from;
      request.schedule = kernel.schedule;
      request.label = kernel.label;
      kernel.context = context;
      kernel.done = done;
      filled = true;
      engine->start(bucket, [&kernel](const Failure& failure) { finish(kernel, failure); });
    } catch (...) {
      kernel.tensors.clear();
      if (!filled) engine->release(bucket);
      throw;
    }
  });
}

void compute_send(void* state, TF_OpKernelContext* context,
                  TF_AsyncOpKernelDoneCallback* callback) {
  auto& kernel = *static_cast<Kernel*>(state);
  compute_transfer(kernel, true, context, callback, [&](Request& request) {
    kernel.tensors.push_back(input(context, 0));
    TF_Tensor* tensor = kernel.tensors.back().get();
    request.count = TF_TensorByteSize(tensor) / size_of(request.type);
    request.inputs.add(static_cast<const std::byte*>(TF_TensorData(tensor)), request.count);
  });
}

void compute_receive(void* state, TF_OpKernelContext* context,
                     TF_AsyncOpKernelDoneCallback* callback) {
  auto& kernel = *static_cast<Kernel*>(state);
  compute_transfer(kernel, false, context, callback, [&](Request& request) {
    const TensorOwner shape = input(context, 0);
    const auto* axes = static_cast<const std::int64_t*>(TF_TensorData(shape.get()));
    const auto n = static_cast<int>(TF_TensorByteSize(shape.get()) / sizeof(std::int64_t));
    request.count = 1;
    for (int axis = 0; axis < n; ++axis) request.count *= static_cast<std::size_t>(axes[axis]);
    const StatusOwner status = new_status();
    kernel.tensors.emplace_back(TF_AllocateOutput(
        context, 0, kernel.type, axes, n, request.count * size_of(request.type), status.get()));
    check(status);
    request.outputs.add(static_cast<std::byte*>(TF_TensorData(kernel.tensors.back().get())),
                        request.count);
  });
}

void compute_check(void*, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  guarded(context, callback, [&](const std::function<void()>& done) {
    std::thread([context, done] {
      const std::int64_t shape = 1;
      const StatusOwner status = new_status();
      const TensorOwner output(
          TF_AllocateOutput(context, 0, TF_INT32, &shape, 1, sizeof(std::int32_t), status.get()));
      if (TF_GetCode(status.get()) == TF_OK) {
        const std::int32_t answer = 1;
        std::memcpy(TF_TensorData(output.get()), &answer, sizeof answer);
      } else {
        TF_OpKernelContext_Failure(context, status.get());
      }
      done();
    }).detach();
  });
}

void* create_check(TF_OpKernelConstruction*) { return new char; }
void destroy_check(void* kernel) { delete static_cast<char*>(kernel); }

// Output i has the shape of input i.
void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* shape = TF_NewShapeHandle();
  const auto n = static_cast<int>(TF_ShapeInferenceContextNumInputs(context)) - 1;
  for (int i = 0; i < n && TF_GetCode(status) == TF_OK; ++i) {
    TF_ShapeInferenceContextGetInput(context, i, shape, status);
    if (TF_GetCode(status) == TF_OK) TF_ShapeInferenceContextSetOutput(context, i, shape, status);
  }
  TF_DeleteShapeHandle(shape);
}

void unknown_shape(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

using Compute = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);

struct Definition {
  const char* name;
  std::vector<const char*> inputs, outputs, attributes;
  void (*shapes)(TF_ShapeInferenceContext*, TF_Status*);
  void* (*create)(TF_OpKernelConstruction*);
  Compute compute;
  void (*destroy)(void*);
};

void define(const Definition& op) {
  const StatusOwner status = new_status();
  TF_OpDefinitionBuilder* builder = TF_NewOpDefinitionBuilder(op.name);
  for (const char* attribute : op.attributes) TF_OpDefinitionBuilderAddAttr(builder, attribute);
  for (const char* in : op.inputs) TF_OpDefinitionBuilderAddInput(builder, in);
  for (const char* out : op.outputs) TF_OpDefinitionBuilderAddOutput(builder, out);
  // Or grappler would merge two of them, and prune one whose result nobody reads.
  TF_OpDefinitionBuilderSetIsStateful(builder, true);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, op.shapes);
  TF_RegisterOpDefinition(builder, status.get());
  check(status);
  TF_KernelBuilder* kernel =
      TF_NewAsyncKernelBuilder(op.name, "CPU", op.create, op.compute, op.destroy);
  TF_RegisterKernelBuilder(op.name, kernel, status.get());
  check(status);
}

std::string load_error;

__attribute__((constructor)) void define_all() {
  if (const char* missing = resolve(); missing != nullptr) {
    load_error = std::string("TensorFlow's C API lacks ") + missing;
    return;
  }
  const std::vector<const char*> common = {"world: int", "channel: int", "label: string"};
  const auto with = [&](std::vector<const char*> more) {
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  try {
    define({"TntAllreduce",
            {"inputs: N * T", "scale: double"},
            {"outputs: N * T"},
            with({"N: int >= 1", "T: {float, double, bfloat16, half, int32, int64}",
                  "wire: {float, double, bfloat16, half, int32, int64}", "group: int = 0",
                  "reduction: {'sum', 'min', 'max', 'product'} = 'sum'"}),
            same_shapes,
            create<Attributes::reduction>,
            compute_allreduce,
            destroy});
    define({"TntAllgather",
            {"input: T"},
            {"output: T"},
            with({"T: {float, double, bfloat16, half, int32, int64}"}),
            unknown_shape,
            create<Attributes::common>,
            compute_allgather,
            destroy});
    define({"TntSend",
            {"input: T"},
            {},
            with({"T: {float, double, bfloat16, half, int32, int64}", "peer: int"}),
            unknown_shape,
            create<Attributes::peer>,
            compute_send,
            destroy});
    define({"TntReceive",
            {"shape: int64"},
            {"output: T"},
            with({"T: {float, double, bfloat16, half, int32, int64}", "peer: int"}),
            unknown_shape,
            create<Attributes::peer>,
            compute_receive,
            destroy});
    define({"TntCheck",
            {},
            {"answer: int32"},
            {},
            unknown_shape,
            create_check,
            compute_check,
            destroy_check});
  } catch (const std::exception& error) {
    load_error = error.what();
  }
}

}  // namespace
}  // namespace tnt::tf

// Empty if all ops are registered.
extern "C" const char* tnt_load_error() { return tnt::tf::load_error.c_str(); }
