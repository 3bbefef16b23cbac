// TntMove   what a rank has of an array becomes what it needs of it: a gather, a halo exchange, an
//           all-to-all of blocks, or the way back, where pieces that overlap are added up.
//
// The array is known by its indices along some of its dimensions; along the others every rank has
// all of it, however many they are. A piece is a box that one rank has and another, or the same,
// needs. Pieces are copied between the tensors and what travels run by run, without a copy of each
// in between:
//
//   input  = [from, ...)   -- pieces of which this rank is the source -->   alltoallv
//   output = [to,   ...)   <-- those of which it is the target        --
//
// Where no piece comes to the output there is `fill`. Of pieces that overlap there the first is
// written into it, this rank's own if there is one; the others come apart, and are added at the end
// in the order of the pieces.
#include <cstring>

#include "elements/boxes.h"
#include "engine/heading.h"
#include "tensorflow/kernel.h"

namespace tnt::tf {
namespace {

// How long TensorFlow's thread waits for the other ranks before it leaves that to the engine's,
// which takes 30 us.
constexpr auto patience = std::chrono::microseconds(400);

// A box by indices of the whole array, and in some dimensions only.
struct Part {
  std::vector<std::int64_t> begin, end;
};

struct Piece {
  int source, target;
  Part part;
};

// One of the tensors.
struct Tensor {
  Part part;                       // of the array, that it has
  std::vector<std::size_t> sizes;  // of all its dimensions
  std::byte* memory = nullptr;

  // A part of the array as a box of this tensor.
  Box box_of(const std::vector<std::int64_t>& dims, const Part& of) const {
    Box box;
    for (const std::size_t size : sizes) box.push_back({0, size});
    for (std::size_t i = 0; i < dims.size(); ++i)
      box[dims[i]] = {static_cast<std::size_t>(of.begin[i] - part.begin[i]),
                      static_cast<std::size_t>(of.end[i] - part.begin[i])};
    return box;
  }
};

// A piece that comes apart, to be added to the output.
struct Summand {
  Box box;
  std::vector<std::byte> memory;
};

struct Move {
  Address address;
  DataType type;
  Type moved;  // as what the engine moves it
  std::vector<std::int64_t> dims;
  std::vector<Piece> pieces;
  Part from, to;

  // The call under way: the channel carries one at a time.
  TF_OpKernelContext* context = nullptr;
  Callback done;
  TensorOwner in, out;
  Tensor given, wanted;
  std::vector<Summand> summands;

  explicit Move(TF_OpKernelConstruction* construction)
      : address(construction),
        type(type_attribute(construction, "T")),
        moved(reduced_type(type).value_or(Type::uint8)),
        dims(int_attributes(construction, "dims")) {
    const auto ends = int_attributes(construction, "pieces");
    const std::size_t width = 2 + 2 * dims.size();
    if (ends.size() % width != 0) throw std::runtime_error("pieces are not of so many dimensions");
    for (std::size_t at = 0; at < ends.size(); at += width)
      pieces.push_back({static_cast<int>(ends[at]), static_cast<int>(ends[at + 1]),
                        part_of(ends.data() + at + 2)});
    from = part_of(int_attributes(construction, "given").data());
    to = part_of(int_attributes(construction, "wanted").data());
  }

  Part part_of(const std::int64_t* ends) const {
    const auto n = static_cast<std::ptrdiff_t>(dims.size());
    return {{ends, ends + n}, {ends + n, ends + 2 * n}};
  }

  // Elements of what the engine moves, in one of the tensor's.
  std::size_t scale() const { return TF_DataTypeSize(type) / size_of(moved); }
};

// Puts an element everywhere in a box.
void fill(const Move& kernel, const Box& box, const std::byte* element) {
  const std::size_t bytes = TF_DataTypeSize(kernel.type);
  const bool zero =
      std::all_of(element, element + bytes, [](std::byte b) { return b == std::byte{}; });
  runs(kernel.wanted.sizes, box, [&](std::size_t first, std::size_t count) {
    std::byte* to = kernel.wanted.memory + first * bytes;
    if (zero)
      std::memset(to, 0, count * bytes);
    else
      for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * bytes, element, bytes);
  });
}

// Fills what of the output no box covers; the boxes do not overlap.
void fill_rest(const Move& kernel, const std::vector<Box>& boxes, const std::byte* element) {
  Box whole;
  for (const std::size_t size : kernel.wanted.sizes) whole.push_back({0, size});
  if (boxes.empty()) return fill(kernel, whole, element);
  Box inner = boxes.front();
  std::size_t covered = 0;
  for (const Box& box : boxes) {
    covered += volume(box);
    for (std::size_t dim = 0; dim < box.size(); ++dim) {
      inner[dim].begin = std::min(inner[dim].begin, box[dim].begin);
      inner[dim].end = std::max(inner[dim].end, box[dim].end);
    }
  }
  if (covered != volume(inner)) return fill(kernel, whole, element);
  around(whole, inner, [&](const Box& rest) { fill(kernel, rest, element); });
}

// Of the pieces that come here, those that are written into the output at once: none of which
// overlaps another, the own one first.
std::vector<bool> chosen(const std::vector<const Piece*>& coming, const std::vector<Box>& boxes) {
  std::vector<bool> at_once(coming.size());
  for (const bool own : {true, false})
    for (std::size_t i = 0; i < coming.size(); ++i) {
      if ((coming[i]->source == coming[i]->target) != own) continue;
      at_once[i] = true;
      for (std::size_t j = 0; j < coming.size(); ++j)
        if (j != i && at_once[j] && overlap(boxes[i], boxes[j])) at_once[i] = false;
    }
  return at_once;
}

// The input; and room for the output.
void open(Move& kernel) {
  kernel.in = input(kernel.context, 0);
  const TF_Tensor* in = kernel.in.get();
  std::vector<std::int64_t> axes;
  for (int axis = 0; axis < TF_NumDims(in); ++axis) axes.push_back(TF_Dim(in, axis));
  const Part &from = kernel.from, &to = kernel.to;
  kernel.given = {from, {axes.begin(), axes.end()}, static_cast<std::byte*>(TF_TensorData(in))};
  for (std::size_t i = 0; i < kernel.dims.size(); ++i) {
    auto& rows = axes.at(kernel.dims[i]);
    if (rows != from.end[i] - from.begin[i])
      throw std::runtime_error("the tensor has " + std::to_string(rows) + " rows in dimension " +
                               std::to_string(kernel.dims[i]) + ", not " +
                               std::to_string(from.end[i] - from.begin[i]));
    rows = to.end[i] - to.begin[i];
  }
  kernel.out = output(kernel.context, 0, kernel.type, axes.data(), static_cast<int>(axes.size()));
  kernel.wanted = {
      to, {axes.begin(), axes.end()}, static_cast<std::byte*>(TF_TensorData(kernel.out.get()))};
}

// What each piece has, in elements of what the engine moves.
std::vector<Flow> flows_of(const Move& kernel) {
  std::size_t unit = kernel.scale();  // of one index along `dims`
  for (std::size_t dim = 0; dim < kernel.given.sizes.size(); ++dim)
    if (std::find(kernel.dims.begin(), kernel.dims.end(), dim) == kernel.dims.end())
      unit *= kernel.given.sizes[dim];
  std::vector<Flow> flows;
  for (const Piece& piece : kernel.pieces) {
    std::size_t count = unit;
    for (std::size_t i = 0; i < kernel.dims.size(); ++i)
      count *= static_cast<std::size_t>(piece.part.end[i] - piece.part.begin[i]);
    flows.push_back({piece.source, piece.target, count});
  }
  return flows;
}

void describe_input(Move& kernel, Request& request, int rank) {
  const std::size_t bytes = TF_DataTypeSize(kernel.type), scale = kernel.scale();
  for (const Piece& piece : kernel.pieces)
    if (piece.source == rank)
      runs(kernel.given.sizes, kernel.given.box_of(kernel.dims, piece.part),
           [&](std::size_t first, std::size_t count) {
             request.inputs.add(kernel.given.memory + first * bytes, count * scale);
           });
}

void describe_output(Move& kernel, Request& request, int rank) {
  const std::size_t bytes = TF_DataTypeSize(kernel.type), scale = kernel.scale();
  std::vector<const Piece*> coming;
  std::vector<Box> boxes;
  for (const Piece& piece : kernel.pieces)
    if (piece.target == rank) {
      coming.push_back(&piece);
      boxes.push_back(kernel.wanted.box_of(kernel.dims, piece.part));
    }
  const std::vector<bool> at_once = chosen(coming, boxes);
  std::vector<Box> written;
  for (std::size_t i = 0; i < boxes.size(); ++i)
    if (at_once[i]) {
      written.push_back(boxes[i]);
      runs(kernel.wanted.sizes, boxes[i], [&](std::size_t first, std::size_t count) {
        request.outputs.add(kernel.wanted.memory + first * bytes, count * scale);
      });
    } else {
      kernel.summands.push_back({boxes[i], std::vector<std::byte>(volume(boxes[i]) * bytes)});
      auto& memory = kernel.summands.back().memory;
      request.outputs.add(memory.data(), volume(boxes[i]) * scale);
    }
  const TensorOwner element = input(kernel.context, 1);
  fill_rest(kernel, written, static_cast<const std::byte*>(TF_TensorData(element.get())));
}

void add_summands(Move& kernel) {
  const std::size_t bytes = TF_DataTypeSize(kernel.type);
  for (const Summand& summand : kernel.summands) {
    const std::byte* from = summand.memory.data();
    runs(kernel.wanted.sizes, summand.box, [&](std::size_t first, std::size_t count) {
      std::byte* to = kernel.wanted.memory + first * bytes;
      reduce(kernel.moved, Reduction::sum, to, to, from, count);
      from += count * bytes;
    });
  }
}

void clear(Move& kernel) {
  kernel.summands.clear();
  kernel.in.reset();
  kernel.out.reset();
  kernel.done = nullptr;
}

// The next call on the kernel may begin before done() returns.
void finish(Move& kernel, const Failure& failure) {
  if (failure.empty())
    add_summands(kernel);
  else
    fail(kernel.context, failure);
  const Callback done = std::move(kernel.done);
  clear(kernel);
  done();
}

void move(Move& kernel, TF_OpKernelContext* context, const Callback& done) {
  const auto engine = kernel.address.engine();
  Bucket& bucket = engine->take(kernel.address.channel);
  bool filled = false;
  try {
    Request& request = bucket.request;
    request.group = engine->find_group(kernel.address.group);
    const int rank = request.group ? request.group->index : engine->rank();
    kernel.context = context;
    kernel.done = done;
    open(kernel);
    request.collective = Collective::alltoallv;
    request.type = request.wire = kernel.moved;
    request.flows = flows_of(kernel);
    for (const Flow& flow : request.flows) request.count += flow.count;
    request.label = kernel.address.label;
    request.agreed =
        static_cast<std::uint64_t>(kernel.type);  // what moves as bytes may be anything
    describe_input(kernel, request, rank);
    describe_output(kernel, request, rank);
    filled = true;
    engine->start_and_help(
        bucket, [&kernel](const Failure& failure) { finish(kernel, failure); }, patience);
  } catch (const std::exception& error) {
    clear(kernel);
    if (!filled) engine->release(bucket);
    // The other ranks wait in it.
    const std::string reason = "rank " + std::to_string(engine->rank()) + ": " +
                               kernel.address.label + ": " + error.what();
    engine->abort(reason);
    throw std::runtime_error(reason);
  }
}

}  // namespace

void define_moves() {
  const Words inputs{"input: T", "fill: T"}, output{"output: T"};
  define<Move, move>({"TntMove", inputs, output,
                      with_address({"T: {" TNT_MOVED "}", "dims: list(int)", "pieces: list(int)",
                                    "given: list(int)", "wanted: list(int)"})});
}

}  // namespace tnt::tf
