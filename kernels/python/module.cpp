// The Python module tnt_notebook.comm._kernels: engines, their collectives on raw memory, and the
// schedules for the tests. The Python side (comm/world.py) owns arrays, types and error classes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <condition_variable>
#include <mutex>

#include "collective/algorithms.h"
#include "engine/collectives.h"
#include "engine/registry.h"
#include "transport/local.h"
#include "transport/mpi.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tnt {
namespace {

// A collective under way, as Python holds it.
class Pending {
 public:
  // False if it is not complete after timeout_s seconds.
  bool wait(double timeout_s) {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, std::chrono::duration<double>(timeout_s), [&] { return done_; });
  }
  Failure failure() {
    std::lock_guard lock(mutex_);
    return failure_;
  }
  void finish(const Failure& failure) {
    std::lock_guard lock(mutex_);
    failure_ = failure;
    done_ = true;
    wake_.notify_all();
  }

  std::string result;  // of an allgather; written before finish()

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  Failure failure_;
};

using SharedPending = std::shared_ptr<Pending>;

Done finisher(SharedPending pending) {
  return [pending](const Failure& failure) { pending->finish(failure); };
}

Type type_named(const std::string& name) {
  for (Type type : {Type::float32, Type::float64, Type::bfloat16, Type::float16, Type::int32,
                    Type::int64, Type::uint8})
    if (name == name_of(type)) return type;
  throw nb::type_error(("element type " + name + " cannot be exchanged").c_str());
}

Reduction reduction_named(const std::string& name) {
  if (name == "sum") return Reduction::sum;
  if (name == "min") return Reduction::min;
  if (name == "max") return Reduction::max;
  throw nb::value_error(("reduction " + name + " is not one of sum, min, max").c_str());
}

SharedPending start_allreduce(Engine& engine, std::uint32_t channel, std::string label,
                              std::uintptr_t address, std::size_t count, const std::string& type,
                              const std::string& reduction, double scale) {
  auto pending = std::make_shared<Pending>();
  void* memory = reinterpret_cast<void*>(address);
  allreduce(engine, {channel, std::move(label)}, type_named(type), reduction_named(reduction),
            {{memory, memory, count}}, scale, finisher(pending));
  return pending;
}

SharedPending start_broadcast(Engine& engine, std::uint32_t channel, std::string label,
                              std::uintptr_t address, std::size_t bytes, int root) {
  auto pending = std::make_shared<Pending>();
  broadcast(engine, {channel, std::move(label)}, reinterpret_cast<void*>(address), bytes, root,
            finisher(pending));
  return pending;
}

SharedPending start_allgather(Engine& engine, std::uint32_t channel, std::string label,
                              nb::bytes block) {
  auto pending = std::make_shared<Pending>();
  const auto allocate = [pending](std::size_t bytes) {
    pending->result.resize(bytes);
    return static_cast<void*>(pending->result.data());
  };
  allgather(engine, {channel, std::move(label)}, block.c_str(), block.size(), allocate,
            finisher(pending));
  return pending;
}

SharedPending start_barrier(Engine& engine, std::uint32_t channel, std::string label) {
  auto pending = std::make_shared<Pending>();
  barrier(engine, {channel, std::move(label)}, finisher(pending));
  return pending;
}

std::shared_ptr<Engine> mpi_engine(const std::string& path, std::size_t handle_bytes,
                                   std::size_t status_bytes, std::size_t status_source_at,
                                   std::uintptr_t byte_type, std::uintptr_t null_request,
                                   int any_source, int tag_limit, std::uintptr_t communicator,
                                   int rank, int size, double timeout_s) {
  const MpiLibrary library{path,      handle_bytes, status_bytes, status_source_at,
                           byte_type, null_request, any_source,   tag_limit};
  return std::make_shared<Engine>(make_mpi_transport(library, communicator, rank, size), timeout_s);
}

std::shared_ptr<Engine> local_engine(double timeout_s) {
  return std::make_shared<Engine>(make_local_transport(std::make_shared<LocalNetwork>(1), 0),
                                  timeout_s);
}

std::optional<std::tuple<int, std::uint32_t, nb::bytes>> take_notice(Engine& engine) {
  Notice notice;
  if (!engine.take_notice(notice)) return std::nullopt;
  return std::tuple(notice.source, notice.kind,
                    nb::bytes(notice.payload.data(), notice.payload.size()));
}

nb::bytes read_trace(Engine& engine) {
  const std::vector<Event> events = engine.trace().read();
  return nb::bytes(events.data(), events.size() * sizeof(Event));
}

nb::tuple describe(const Schedule& schedule) {
  static const char* const actions[] = {"send", "receive", "reduce", "copy"};
  const auto range = [](const Range& r) {
    return nb::make_tuple(r.memory == Memory::data ? "data" : "scratch", r.begin, r.count);
  };
  nb::list steps;
  for (const Step& step : schedule.steps)
    steps.append(nb::make_tuple(step.round, actions[static_cast<int>(step.action)], step.peer,
                                range(step.from), range(step.to)));
  return nb::make_tuple(steps, schedule.scratch_count);
}

}  // namespace
}  // namespace tnt

NB_MODULE(_kernels, m) {
  // A process that dies of an exception keeps objects alive; that is no leak worth a warning.
  nb::set_leak_warnings(false);

  using namespace tnt;
  using release_gil = nb::call_guard<nb::gil_scoped_release>;

  nb::class_<Pending>(m, "Pending")
      .def("wait", &Pending::wait, "timeout_s"_a, release_gil())
      .def_prop_ro("failure", &Pending::failure)
      .def_prop_ro("result",
                   [](Pending& p) { return nb::bytes(p.result.data(), p.result.size()); });

  nb::class_<Engine>(m, "Engine")
      .def_prop_ro("rank", &Engine::rank)
      .def_prop_ro("size", &Engine::size)
      .def_prop_ro("failure", &Engine::failure)
      .def("allreduce", &start_allreduce, "channel"_a, "label"_a, "address"_a, "count"_a, "type"_a,
           "reduction"_a, "scale"_a)
      .def("broadcast", &start_broadcast, "channel"_a, "label"_a, "address"_a, "bytes"_a, "root"_a)
      .def("allgather", &start_allgather, "channel"_a, "label"_a, "block"_a)
      .def("set_timeout", &Engine::set_timeout, "timeout_s"_a)
      .def("barrier", &start_barrier, "channel"_a, "label"_a)
      .def("abort", &Engine::abort, "reason"_a)
      .def(
          "notify",
          [](Engine& engine, int peer, std::uint32_t kind, nb::bytes payload) {
            engine.notify(peer, kind, std::string(payload.c_str(), payload.size()));
          },
          "peer"_a, "kind"_a, "payload"_a)
      .def("take_notice", &take_notice)
      .def("close", &Engine::close, release_gil())
      // For draining after close():
      .def("sent", [](Engine& engine) { return engine.transport().sent(); })
      .def("received", [](Engine& engine) { return engine.transport().received(); })
      .def("sends_done", [](Engine& engine) { return engine.transport().sends_done(); })
      .def("trace", &read_trace)
      .def(
          "record_step",
          [](Engine& engine, std::uint64_t begin_ns, std::uint64_t end_ns) {
            engine.trace().record(EventKind::step, 0, begin_ns, end_ns);
          },
          "begin_ns"_a, "end_ns"_a);

  m.def("mpi_engine", &mpi_engine, "path"_a, "handle_bytes"_a, "status_bytes"_a,
        "status_source_at"_a, "byte_type"_a, "null_request"_a, "any_source"_a, "tag_limit"_a,
        "communicator"_a, "rank"_a, "size"_a, "timeout_s"_a);
  m.def("local_engine", &local_engine, "timeout_s"_a);
  m.def("register_engine", &register_engine, "world"_a, "engine"_a.none(), release_gil());
  m.attr("first_user_kind") = Engine::first_user_kind;
  m.attr("max_notice_bytes") = Transport::max_notice_bytes;

  m.def("allreduce_recursive_doubling", [](int rank, int size, std::size_t count) {
    return describe(allreduce_recursive_doubling(rank, size, count));
  });
  m.def("allreduce_ring", [](int rank, int size, std::size_t count) {
    return describe(allreduce_ring(rank, size, count));
  });
  m.def("allgather_ring", [](int rank, int size, const std::vector<std::size_t>& offsets) {
    return describe(allgather_ring(rank, size, offsets));
  });
  m.def("broadcast_binomial", [](int rank, int size, std::size_t count, int root) {
    return describe(broadcast_binomial(rank, size, count, root));
  });
  m.def("barrier_dissemination",
        [](int rank, int size) { return describe(barrier_dissemination(rank, size)); });
}
