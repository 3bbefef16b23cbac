// The trace ring: what it keeps, and that readers never see half an event.
#include <atomic>
#include <thread>

#include "check.h"
#include "engine/trace.h"
#include "ranks.h"

using namespace tnt;
using namespace tnt::test;

TEST(events_come_back_in_order) {
  Trace trace;
  CHECK(trace.read().empty());
  trace.record(EventKind::ready, 3, 10, 11, 12);
  trace.record(EventKind::step, 4, 20, 21);
  const auto events = trace.read();
  CHECK_EQUAL(events.size(), 2U);
  CHECK_EQUAL(events[0].kind, static_cast<std::uint32_t>(EventKind::ready));
  CHECK_EQUAL(events[0].channel, 3U);
  CHECK_EQUAL(events[0].begin_ns, 10U);
  CHECK_EQUAL(events[0].end_ns, 11U);
  CHECK_EQUAL(events[0].bytes, 12U);
  CHECK_EQUAL(events[1].kind, static_cast<std::uint32_t>(EventKind::step));
  CHECK_EQUAL(events[1].channel, 4U);
}

TEST(the_newest_events_overwrite_the_oldest) {
  Trace trace;
  constexpr std::uint64_t more = 1000;
  for (std::uint64_t i = 0; i < Trace::capacity + more; ++i) trace.record(EventKind::step, 0, i, i);
  const auto events = trace.read();
  CHECK_EQUAL(events.size(), Trace::capacity);
  for (std::size_t i = 0; i < events.size(); ++i) CHECK_EQUAL(events[i].begin_ns, more + i);
}

TEST(what_has_been_read_need_not_be_read_again) {
  Trace trace;
  for (std::uint64_t i = 0; i < 5; ++i) trace.record(EventKind::step, 0, i, i);
  CHECK_EQUAL(trace.count(), 5U);
  CHECK_EQUAL(trace.read(3).size(), 2U);
  CHECK_EQUAL(trace.read(3)[0].begin_ns, 3U);
  CHECK(trace.read(5).empty());
  CHECK(trace.read(99).empty());
  for (std::uint64_t i = 5; i < Trace::capacity + 100; ++i) trace.record(EventKind::step, 0, i, i);
  CHECK_EQUAL(trace.read(3).size(), Trace::capacity);  // what was overwritten does not come back
}

TEST(readers_never_see_half_an_event_while_threads_write) {
  Trace trace;
  constexpr std::uint32_t writers = 3;
  std::atomic<std::uint32_t> writing{writers};
  std::vector<std::thread> threads;
  for (std::uint32_t channel = 0; channel < writers; ++channel)
    threads.emplace_back([&, channel] {
      for (std::uint64_t i = 0; i < 3 * Trace::capacity; ++i)
        trace.record(EventKind::exchange, channel, i, 2 * i + channel, 3 * i);
      --writing;
    });
  int reads = 0;
  std::string error;
  while (writing > 0 || reads == 0) {
    std::vector<std::uint64_t> next(writers);
    for (const Event& event : trace.read()) {
      const bool whole = event.channel < writers && event.bytes == 3 * event.begin_ns &&
                         event.end_ns == 2 * event.begin_ns + event.channel;
      if (!whole) error = "half an event";
      if (whole && event.begin_ns < next[event.channel]) error = "events out of order";
      if (whole) next[event.channel] = event.begin_ns + 1;
    }
    ++reads;
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQUAL(error, "");
}

TEST(an_allreduce_leaves_its_phases_in_the_trace) {
  on_ranks(2, [](Engine& engine) {
    std::vector<float> values(1000);
    CHECK_EQUAL(allreduce_in_place(engine, Type::float32, Reduction::sum, values, 9), "");
    std::vector<EventKind> kinds;
    std::uint64_t before = 0;
    for (const Event& event : engine.trace().read()) {
      CHECK_EQUAL(event.channel, 9U);
      CHECK(event.begin_ns <= event.end_ns);
      CHECK(before <= event.end_ns);
      before = event.end_ns;
      kinds.push_back(static_cast<EventKind>(event.kind));
    }
    CHECK(kinds == std::vector<EventKind>({EventKind::ready, EventKind::copy_in,
                                           EventKind::exchange, EventKind::copy_out}));
  });
}
