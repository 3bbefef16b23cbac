// A bucket of N tensors in, N tensors out. The op runs when its last input is ready and holds no
// thread while messages travel.
//   TntAllreduce      all ranks get the sums of all tensors
//   TntReduceToOwner  each tensor has an owner, the only rank that gets its sum; others get nothing
//   TntShareOwned     all ranks get all tensors as their owners have them
// TntAllgather        blocks of all ranks, concatenated along the first axis.
#include <cstring>
#include <numeric>
#include <optional>

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
struct OfBucket {
  Collective collective;
  Address address;
  Reduction reduction = Reduction::sum;
  std::optional<Type> wire;          // by default that of the tensors
  std::vector<std::int64_t> owners;  // of each tensor, ascending; empty: it is all ranks'

  TF_OpKernelContext* context = nullptr;
  std::function<void()> done;
  std::vector<TensorOwner> tensors;

  OfBucket(Collective of, TF_OpKernelConstruction* construction)
      : collective(of), address(construction) {}
};

struct Allreduce : OfBucket {
  explicit Allreduce(TF_OpKernelConstruction* construction)
      : OfBucket(Collective::allreduce, construction) {
    reduction = reduction_named(string_attribute(construction, "reduction"));
    wire = element_type(type_attribute(construction, "wire"));
  }
};

struct ReduceToOwner : OfBucket {
  explicit ReduceToOwner(TF_OpKernelConstruction* construction)
      : OfBucket(Collective::reduce_scatter, construction) {
    wire = element_type(type_attribute(construction, "wire"));
    owners = int_attributes(construction, "owners");
  }
};

struct ShareOwned : OfBucket {
  explicit ShareOwned(TF_OpKernelConstruction* construction)
      : OfBucket(Collective::allgather, construction) {
    owners = int_attributes(construction, "owners");
  }
};

TensorOwner empty_output(TF_OpKernelContext* context, int index, DataType type) {
  const std::int64_t none = 0;
  return output(context, index, type, &none, 1);
}

// The next call on the kernel may begin before done() returns.
void finish(OfBucket& kernel, const Failure& failure) {
  kernel.tensors.clear();
  if (!failure.empty()) fail(kernel.context, failure);
  const std::function<void()> done = std::move(kernel.done);
  kernel.done = nullptr;
  done();
}

// How long TensorFlow's thread waits for the other ranks before it leaves that to the engine's.
constexpr auto patience = std::chrono::microseconds(15);

// Where the tensors of each of so many owners begin, in elements, and where the last ones end.
std::vector<std::size_t> offsets_of(const std::vector<std::int64_t>& owners,
                                    const std::vector<std::size_t>& counts, int size) {
  std::vector<std::size_t> offsets(size + 1);
  for (std::size_t i = 0; i < owners.size(); ++i) offsets.at(owners[i] + 1) += counts[i];
  for (int rank = 0; rank < size; ++rank) offsets[rank + 1] += offsets[rank];
  return offsets;
}

void exchange(OfBucket& kernel, TF_OpKernelContext* context, const Callback& done) {
  const auto engine = kernel.address.engine();
  Bucket& bucket = engine->take(kernel.address.channel);
  bool filled = false;
  try {
    const bool reduces = kernel.collective != Collective::allgather;
    const int n = TF_NumInputs(context) - (reduces ? 1 : 0);
    const DataType type = TF_InputDatatype(context, 0);
    const std::size_t element_bytes = size_of(element_type(type));
    Request& request = bucket.request;
    request.group = engine->find_group(kernel.address.group);
    const int own = request.group ? request.group->index : engine->rank();
    std::uint64_t shapes = 0;
    std::vector<std::size_t> counts;
    for (int i = 0; i < n; ++i) {
      TensorOwner in = input(context, i);
      const std::size_t count = TF_TensorByteSize(in.get()) / element_bytes;
      counts.push_back(count);
      shapes = hash_of(count, shapes);
      const bool is_own = kernel.owners.empty() || kernel.owners.at(i) == own;
      const bool gives = reduces || is_own;
      const bool gets = kernel.collective != Collective::reduce_scatter || is_own;
      const bool both = gives && gets;  // algorithms are proved to work in the same memory
      TensorOwner out = both   ? output_for(context, i, in)
                        : gets ? output_like(context, i, type, in.get())
                               : empty_output(context, i, type);
      if (gives) request.inputs.add(static_cast<const std::byte*>(TF_TensorData(in.get())), count);
      if (gets) request.outputs.add(static_cast<std::byte*>(TF_TensorData(out.get())), count);
      kernel.tensors.push_back(std::move(in));
      kernel.tensors.push_back(std::move(out));
    }
    if (reduces)
      std::memcpy(&request.scale, TF_TensorData(input(context, n).get()), sizeof request.scale);
    request.collective = kernel.collective;
    if (!kernel.owners.empty()) {
      const int size = request.group ? request.group->size() : engine->size();
      request.offsets = offsets_of(kernel.owners, counts, size);
    }
    request.count = std::accumulate(counts.begin(), counts.end(), std::size_t{});
    request.type = element_type(type);
    request.wire = kernel.wire.value_or(request.type);
    request.reduction = kernel.reduction;
    request.label = kernel.address.label;
    request.agreed = shapes;
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

template <class Op>
void exchange_of(Op& kernel, TF_OpKernelContext* context, const Callback& done) {
  exchange(kernel, context, done);
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
    if (!failure.empty()) fail(context, failure);
    done();
  };
  gather(engine, engine->find_group(address.group), address.channel, address.label,
         TF_TensorData(in.get()), TF_TensorByteSize(in.get()), std::move(allocate), finished);
}

// Output i has the shape of input i; so many inputs have no output.
template <int more>
void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* shape = TF_NewShapeHandle();
  const auto n = static_cast<int>(TF_ShapeInferenceContextNumInputs(context)) - more;
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
  const Words to_owner = with_address(
      {"N: int >= 1", "T: {" TNT_REDUCED "}", "wire: {" TNT_REDUCED "}", "owners: list(int)"});
  const Words owned = with_address({"N: int >= 1", "T: {" TNT_REDUCED "}", "owners: list(int)"});
  const Words moved = with_address({"T: {" TNT_MOVED "}"});
  define<Allreduce, exchange_of<Allreduce>>(
      {"TntAllreduce", inputs, outputs, reduced, same_shapes<1>});
  define<ReduceToOwner, exchange_of<ReduceToOwner>>(
      {"TntReduceToOwner", inputs, outputs, to_owner});
  define<ShareOwned, exchange_of<ShareOwned>>(
      {"TntShareOwned", {"inputs: N * T"}, outputs, owned, same_shapes<0>});
  define<Address, allgather>({"TntAllgather", input, output, moved});
}

}  // namespace tnt::tf
