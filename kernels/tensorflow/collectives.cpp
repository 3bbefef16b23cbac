// TntAllreduce   N tensors in, N tensors out: one bucket. It runs when its last input is ready and
//                holds no thread while messages travel.
// TntAllgather   blocks of all ranks, concatenated along the first axis.
#include <cstring>

#include "engine/gather.h"
#include "engine/heading.h"
#include "tensorflow/kernel.h"

namespace tnt::tf {
namespace {

Reduction reduction_named(const std::string& name) {
  for (const Reduction reduction : {Reduction::min, Reduction::max, Reduction::product})
    if (name == name_of(reduction)) return reduction;
  return Reduction::sum;
}

// An op of a graph, and its call under way: the channel carries one at a time.
struct Allreduce {
  Address address;
  Reduction reduction;
  Type wire;

  TF_OpKernelContext* context = nullptr;
  std::function<void()> done;
  std::vector<TensorOwner> tensors;

  explicit Allreduce(TF_OpKernelConstruction* construction)
      : address(construction),
        reduction(reduction_named(string_attribute(construction, "reduction"))),
        wire(element_type(type_attribute(construction, "wire"))) {}
};

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
void finish(Allreduce& kernel, const Failure& failure) {
  kernel.tensors.clear();
  if (!failure.empty()) fail(kernel.context, TF_ABORTED, failure);
  const std::function<void()> done = std::move(kernel.done);
  kernel.done = nullptr;
  done();
}

// How long TensorFlow's thread waits for the other ranks before it leaves that to the engine's.
constexpr auto patience = std::chrono::microseconds(15);

void allreduce(Allreduce& kernel, TF_OpKernelContext* context, const Callback& done) {
  const auto engine = kernel.address.engine();
  Bucket& bucket = engine->take(kernel.address.channel);
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
    request.label = kernel.address.label;
    request.agreed = shapes;
    request.group = engine->find_group(kernel.address.group);
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
}

void allgather(Address& address, TF_OpKernelContext* context, const Callback& done) {
  const auto engine = address.engine();
  const DataType type = TF_InputDatatype(context, 0);
  auto owner = std::make_shared<TensorOwner>(input(context, 0));
  const TensorOwner& in = *owner;
  std::vector<std::int64_t> shape;
  std::size_t row_bytes = TF_DataTypeSize(type);
  for (int axis = 0; axis < TF_NumDims(in.get()); ++axis) {
    shape.push_back(TF_Dim(in.get(), axis));
    if (axis > 0) row_bytes *= shape.back();
  }
  auto output = std::make_shared<TensorOwner>();
  auto allocate = [context, type, shape, row_bytes, output](std::size_t bytes) mutable {
    shape[0] = row_bytes == 0 ? 0 : static_cast<std::int64_t>(bytes / row_bytes);
    const StatusOwner status = new_status();
    output->reset(TF_AllocateOutput(context, 0, type, shape.data(), static_cast<int>(shape.size()),
                                    bytes, status.get()));
    if (TF_GetCode(status.get()) == TF_OK) return TF_TensorData(output->get());
    TF_OpKernelContext_Failure(context, status.get());
    return static_cast<void*>(nullptr);
  };
  const auto finished = [context, done, owner, output](const Failure& failure) {
    if (!failure.empty()) fail(context, TF_ABORTED, failure);
    done();
  };
  gather(engine, engine->find_group(address.group), address.channel, address.label,
         TF_TensorData(in.get()), TF_TensorByteSize(in.get()), std::move(allocate), finished);
}

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

}  // namespace

void define_collectives() {
  const Words input{"input: T"}, inputs{"inputs: N * T", "scale: double"};
  const Words output{"output: T"}, outputs{"outputs: N * T"};
  const Words reduced =
      with_address({"N: int >= 1", "T: {" TNT_REDUCED "}", "wire: {" TNT_REDUCED "}",
                    "reduction: {'sum', 'min', 'max', 'product'} = 'sum'"});
  const Words moved = with_address({"T: {" TNT_MOVED "}"});
  define<Allreduce, allreduce>({"TntAllreduce", inputs, outputs, reduced, same_shapes});
  define<Address, allgather>({"TntAllgather", input, output, moved});
}

}  // namespace tnt::tf
