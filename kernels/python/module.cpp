// The Python module tnt_notebook.comm._kernels: engines, their collectives on raw memory, shared
// memory, and schedules as lists. The Python side (comm/) owns arrays, types and error classes.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "collective/algorithms.h"
#include "engine/engine.h"
#include "engine/registry.h"
#include "python/bindings.h"
#include "transport/gaspi.h"
#include "transport/local.h"
#include "transport/mpi.h"
#include "transport/paced.h"
#include "transport/router.h"
#include "transport/shared.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tnt {
namespace {

// A transport on its way into an engine.
struct TransportOwner {
  std::unique_ptr<Transport> transport;
};

std::shared_ptr<TransportOwner> own(std::unique_ptr<Transport> transport) {
  return std::make_shared<TransportOwner>(TransportOwner{std::move(transport)});
}

std::shared_ptr<TransportOwner> mpi_transport(const std::string& path, std::size_t handle_bytes,
                                              std::size_t status_bytes,
                                              std::size_t status_source_at,
                                              std::uintptr_t byte_type, std::uintptr_t null_request,
                                              int any_source, int tag_limit, bool multiple,
                                              std::uintptr_t communicator, int rank, int size) {
  const MpiLibrary library{path,         handle_bytes, status_bytes, status_source_at, byte_type,
                           null_request, any_source,   tag_limit,    multiple};
  return own(make_mpi_transport(library, communicator, rank, size));
}

GaspiOptions gaspi_job(std::string library, int rank, std::vector<std::string> hosts,
                       int port_base) {
  GaspiOptions options;
  options.library = std::move(library);
  options.rank = rank;
  options.hosts = std::move(hosts);
  options.port_base = port_base;
  return options;
}

bool gaspi_ports_free(std::string library, int rank, std::vector<std::string> hosts,
                      int port_base) {
  return gaspi_ports_are_free(gaspi_job(std::move(library), rank, std::move(hosts), port_base));
}

std::shared_ptr<TransportOwner> gaspi_transport(std::string library, int rank,
                                                std::vector<std::string> hosts, int port_base,
                                                std::vector<int> members, std::uint32_t epoch,
                                                int segment, double timeout_s) {
  GaspiOptions options = gaspi_job(std::move(library), rank, std::move(hosts), port_base);
  options.members = std::move(members);
  options.epoch = epoch;
  options.segment = segment;
  options.timeout_s = timeout_s;
  return own(make_gaspi_transport(options));
}

std::shared_ptr<TransportOwner> routed(const std::shared_ptr<SharedNode>& node, int lane,
                                       const std::shared_ptr<TransportOwner>& network) {
  const int rank = network->transport->rank(), size = network->transport->size();
  std::vector<bool> near(size);
  for (const int peer : node->ranks()) near[peer] = true;
  return own(make_router(make_shared_transport(node, lane, rank, size),
                         std::move(network->transport), std::move(near)));
}

// The lanes of a rank share its network card.
std::vector<std::shared_ptr<TransportOwner>> paced(
    const std::vector<std::shared_ptr<TransportOwner>>& networks, double mbit_per_s) {
  const auto card = std::make_shared<Card>(mbit_per_s);
  std::vector<std::shared_ptr<TransportOwner>> lanes;
  for (const auto& network : networks)
    lanes.push_back(own(make_paced_transport(std::move(network->transport), card)));
  return lanes;
}

std::shared_ptr<Engine> make_engine(const std::vector<std::shared_ptr<TransportOwner>>& owners,
                                    std::vector<int> node, double timeout_s) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (const auto& owner : owners) transports.push_back(std::move(owner->transport));
  return std::make_shared<Engine>(std::move(transports), std::move(node), timeout_s);
}

std::optional<std::tuple<int, std::uint32_t, nb::bytes>> take_notice(Engine& engine) {
  Notice notice;
  if (!engine.take_notice(notice)) return std::nullopt;
  return std::tuple(notice.source, notice.kind,
                    nb::bytes(notice.payload.data(), notice.payload.size()));
}

nb::bytes read_trace(Engine& engine, std::uint64_t since) {
  const std::vector<Event> events = engine.trace().read(since);
  return nb::bytes(events.data(), events.size() * sizeof(Event));
}

// What a segment's owner tells the other ranks.
using AddressTuple =
    std::tuple<std::string, std::int64_t, std::int32_t, std::uint64_t, std::uint64_t>;

AddressTuple address_of(const Segment& segment) {
  const SegmentAddress a = segment.address();
  return {a.host, a.pid, a.file, a.bytes, a.key};
}

// A segment until the node is joined.
struct SegmentOwner {
  std::unique_ptr<Segment> segment;
};

std::shared_ptr<SharedNode> join_node(SegmentOwner& own_segment, int rank, std::vector<int> ranks,
                                      const std::vector<AddressTuple>& tuples) {
  std::vector<SegmentAddress> addresses;
  for (const auto& [host, pid, file, bytes, key] : tuples)
    addresses.push_back({host, pid, file, bytes, key});
  return std::make_shared<SharedNode>(std::move(own_segment.segment), rank, std::move(ranks),
                                      addresses);
}

}  // namespace
}  // namespace tnt

NB_MODULE(_kernels, m) {
  // A process that dies of an exception keeps objects alive; that is no leak worth a warning.
  nb::set_leak_warnings(false);

  using namespace tnt;
  using release_gil = nb::call_guard<nb::gil_scoped_release>;

  nb::class_<TransportOwner>(m, "Transport");
  nb::class_<SegmentOwner>(m, "Segment")
      .def("__init__",
           [](SegmentOwner* self, std::size_t bytes) {
             new (self) SegmentOwner{std::make_unique<Segment>(bytes)};
           })
      .def_prop_ro("address", [](SegmentOwner& self) { return address_of(*self.segment); });
  nb::class_<SharedNode>(m, "SharedNode");

  nb::class_<Engine>(m, "Engine")
      .def_prop_ro("rank", &Engine::rank)
      .def_prop_ro("size", &Engine::size)
      .def_prop_ro("lanes", &Engine::lanes)
      .def_prop_ro("failure", [](const Engine& engine) { return engine.failure().reason; })
      .def_prop_ro("stalled", [](const Engine& engine) { return engine.failure().stalled; })
      .def("add_group", &Engine::add_group, "number"_a, "ranks"_a)
      .def("set_rules", &Engine::set_rules, "rules"_a)
      .def("set_timeout", &Engine::set_timeout, "timeout_s"_a)
      .def("set_places", &Engine::set_places, "places"_a)
      .def("abort", &Engine::abort, "reason"_a)
      .def(
          "notify",
          [](Engine& engine, int peer, std::uint32_t kind, nb::bytes payload) {
            engine.notify(peer, kind, std::string(payload.c_str(), payload.size()));
          },
          "peer"_a, "kind"_a, "payload"_a)
      .def("take_notice", &take_notice)
      .def("close", &Engine::close, release_gil())
      // For draining after close(), of each lane:
      .def("sent", [](Engine& engine, int lane) { return engine.transport(lane).sent(); })
      .def("received", [](Engine& engine, int lane) { return engine.transport(lane).received(); })
      .def("sends_done",
           [](Engine& engine, int lane) { return engine.transport(lane).sends_done(); })
      .def("trace", &read_trace, "since"_a = 0)
      .def("traced", [](Engine& engine) { return engine.trace().count(); })
      .def(
          "record_step",
          [](Engine& engine, std::uint64_t begin_ns, std::uint64_t end_ns, std::uint32_t phase) {
            engine.trace().record(EventKind::step, phase, begin_ns, end_ns);
          },
          "begin_ns"_a, "end_ns"_a, "phase"_a = 0);

  m.def("mpi_transport", &mpi_transport, "path"_a, "handle_bytes"_a, "status_bytes"_a,
        "status_source_at"_a, "byte_type"_a, "null_request"_a, "any_source"_a, "tag_limit"_a,
        "multiple"_a, "communicator"_a, "rank"_a, "size"_a);
  m.def("gaspi_ports_are_free", &gaspi_ports_free, "library"_a, "rank"_a, "hosts"_a, "port_base"_a);
  m.def("gaspi_use", [] {
    GaspiUse use = gaspi_use();
    return std::tuple(use.last_epoch, std::move(use.free_segments));
  });
  m.def("gaspi_transport", &gaspi_transport, "library"_a, "rank"_a, "hosts"_a, "port_base"_a,
        "members"_a, "epoch"_a, "segment"_a, "timeout_s"_a, release_gil());
  m.attr("gaspi_ports") = gaspi_ports;
  m.def("lonely_transport",
        [] { return own(make_local_transport(std::make_shared<LocalNetwork>(1), 0)); });
  m.def("join_node", &join_node, "segment"_a, "rank"_a, "ranks"_a, "addresses"_a);
  m.def("route", &routed, "node"_a, "lane"_a, "network"_a);
  m.def("pace", &paced, "networks"_a, "mbit_per_s"_a);
  m.def("engine", &make_engine, "transports"_a, "node"_a, "timeout_s"_a);
  m.def("register_engine", &register_engine, "world"_a, "engine"_a.none(), release_gil());
  m.def("take_mpi_turn", [] { mpi_turn().lock(); }, release_gil());
  m.def("give_mpi_turn", [] { mpi_turn().unlock(); });
  nb::list event_names;
  for (const char* name : event_kinds) event_names.append(name);
  m.attr("event_kinds") = nb::tuple(event_names);
  m.attr("first_user_kind") = Engine::first_user_kind;
  m.attr("max_notice_bytes") = Transport::max_notice_bytes;
  m.attr("max_channels") = Transport::max_channels;
  m.attr("max_lanes") = SharedNode::max_lanes;

  bind_operations(m);
  bind_schedules(m);
}
