#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "engine/engine.h"
#include "python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tnt {
namespace {

// How long a call works before it looks whether Ctrl-C was pressed.
constexpr auto signals_every = std::chrono::milliseconds(50);

// Waits for a request that has been filled. Raises what a signal handler raises; the operation is
// then still under way. What it gives is empty, or says what failed.
std::string wait(Engine& engine, Bucket& bucket) {
  engine.begin(bucket);
  while (true) {
    {
      nb::gil_scoped_release release;
      if (engine.help(bucket, signals_every)) break;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return engine.finish(bucket).reason;
}

// The memory of an array, or none for None. It is contiguous, or a ValueError says whose is not.
class Memory {
 public:
  Memory(nb::handle array, bool writable, const char* whose) {
    if (array.is_none()) return;
    if (PyObject_GetBuffer(array.ptr(), &view_, writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO) != 0) {
      PyErr_Clear();
      const std::string must = std::string("the ") + whose + " must be contiguous";
      throw nb::value_error((must + (writable ? " and writeable" : "")).c_str());
    }
    held_ = true;
  }
  ~Memory() {
    if (held_) PyBuffer_Release(&view_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* begin() const { return static_cast<std::byte*>(view_.buf); }
  std::byte* end() const { return begin() + view_.len; }
  std::size_t bytes() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_ = {};
  bool held_ = false;
};

// A collective that is called again and again, on arrays of the same sizes. It keeps no engine
// alive: an engine goes, and its links with it, when its world has another.
class Operation {
 public:
  Operation(const Engine& engine, std::uint32_t channel, int collective, int type, int reduction,
            double scale, std::size_t count, std::vector<std::size_t> offsets, int root, int group,
            std::string algorithm, std::shared_ptr<Schedule> schedule, std::uint64_t agreed,
            std::string label)
      : channel_(channel) {
    request_.collective = static_cast<Collective>(collective);
    request_.type = request_.wire = static_cast<Type>(type);
    request_.reduction = static_cast<Reduction>(reduction);
    request_.scale = scale;
    request_.count = count;
    request_.offsets = std::move(offsets);
    request_.root = root;
    request_.group = engine.find_group(group);
    request_.algorithm = std::move(algorithm);
    request_.schedule = std::move(schedule);
    request_.agreed = agreed;
    request_.label = std::move(label);
  }

  bool is_busy(const Engine& engine) const { return engine.is_busy(channel_); }

  std::string run(Engine& engine, nb::handle input, nb::handle output) const {
    const Memory from(input, false, "input"), to(output, true, "output");
    if (from.begin() != to.begin() && from.begin() < to.end() && to.begin() < from.end())
      throw nb::value_error("the output overlaps the input without being the same memory");
    const std::size_t element_bytes = size_of(request_.type);
    Bucket& bucket = engine.take(channel_);
    bucket.request = request_;
    bucket.request.inputs.add(from.begin(), from.bytes() / element_bytes);
    bucket.request.outputs.add(to.begin(), to.bytes() / element_bytes);
    return wait(engine, bucket);
  }

 private:
  const std::uint32_t channel_;
  Request request_;
};

// Memory that the ranks of a node reach, and a channel for it.
class SharedBucket {
 public:
  SharedBucket(std::shared_ptr<Engine> engine, int group, std::uint32_t channel, int type,
               std::size_t count, std::string label)
      : engine_(std::move(engine)),
        group_(engine_->find_group(group)),
        channel_(channel),
        type_(static_cast<Type>(type)),
        count_(count),
        label_(std::move(label)) {
    Bucket& bucket = engine_->take(channel);
    memory_ = engine_->memory(bucket, std::max<std::size_t>(count * size_of(type_), 1));
    engine_->release(bucket);
  }
  ~SharedBucket() { engine_->forget(channel_); }
  SharedBucket(const SharedBucket&) = delete;
  SharedBucket& operator=(const SharedBucket&) = delete;

  bool is_busy() const { return engine_->is_busy(channel_); }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory_); }

  std::string allreduce(int reduction, double scale, const std::string& algorithm) {
    Bucket& bucket = engine_->take(channel_);
    Request& request = bucket.request;
    request.type = request.wire = type_;
    request.reduction = static_cast<Reduction>(reduction);
    request.scale = scale;
    request.count = count_;
    request.in_place = true;
    request.group = group_;
    request.algorithm = algorithm;
    request.label = label_;
    return wait(*engine_, bucket);
  }

 private:
  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<const Group> group_;
  const std::uint32_t channel_;
  const Type type_;
  const std::size_t count_;
  const std::string label_;
  std::byte* memory_ = nullptr;
};

}  // namespace

void bind_operations(nb::module_& m) {
  nb::class_<Operation>(m, "Operation")
      .def(nb::init<const Engine&, std::uint32_t, int, int, int, double, std::size_t,
                    std::vector<std::size_t>, int, int, std::string, std::shared_ptr<Schedule>,
                    std::uint64_t, std::string>(),
           "engine"_a, "channel"_a, "collective"_a, "type"_a, "reduction"_a, "scale"_a, "count"_a,
           "offsets"_a, "root"_a, "group"_a, "algorithm"_a, "schedule"_a.none(), "agreed"_a,
           "label"_a)
      .def("is_busy", &Operation::is_busy, "engine"_a)
      .def("__call__", &Operation::run, "engine"_a, "input"_a, "output"_a.none());

  nb::class_<SharedBucket>(m, "SharedBucket")
      .def(nb::init<std::shared_ptr<Engine>, int, std::uint32_t, int, std::size_t, std::string>(),
           "engine"_a, "group"_a, "channel"_a, "type"_a, "count"_a, "label"_a)
      .def_prop_ro("address", &SharedBucket::address)
      .def_prop_ro("is_busy", &SharedBucket::is_busy)
      .def("allreduce", &SharedBucket::allreduce, "reduction"_a, "scale"_a, "algorithm"_a);
}

}  // namespace tnt
