#include "transport/gaspi_process.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "transport/gaspi_start.h"

namespace tnt::gaspi {
namespace {

using Clock = std::chrono::steady_clock;

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

void check_members(const GaspiOptions& options) {
  for (const int member : options.members)
    if (member < 0 || member >= static_cast<int>(options.hosts.size()))
      throw TransportError(rank_name(options.rank) + ": there is no GASPI rank " +
                           std::to_string(member));
  if (std::find(options.members.begin(), options.members.end(), options.rank) ==
      options.members.end())
    throw TransportError(rank_name(options.rank) + " is not a member of its GASPI transport");
}

class Deadline {
 public:
  explicit Deadline(double timeout_s)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(timeout_s))) {}

  bool passed() const { return Clock::now() > end_; }
  Timeout rest_ms() const {
    const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now());
    return static_cast<Timeout>(std::max<std::int64_t>(rest.count(), 1));
  }

 private:
  const Clock::time_point end_;
};

}  // namespace

Process& Process::get() {
  static Process* const process = new Process;  // outlives all static objects: GPI-2's threads run
  return *process;
}

void Process::load(const GaspiOptions& options) {
  if (library_ == nullptr) library_ = std::make_unique<Library>(options.library);
}

bool Process::ports_are_free(const GaspiOptions& options) {
  std::lock_guard lock(mutex_);
  load(options);
  return gaspi::ports_are_free(*library_, options);
}

GaspiUse Process::use() {
  std::lock_guard lock(mutex_);
  GaspiUse use{last_epoch_, {}};
  for (std::size_t id = 0; id < segment_count; ++id)
    if (!memory_[id].busy) use.free_segments.push_back(static_cast<int>(id));
  return use;
}

Segment Process::borrow(const GaspiOptions& options) {
  std::lock_guard lock(mutex_);
  check_members(options);
  if (!started_) start(options);
  if (options.rank != rank_ || options.hosts != hosts_)
    throw TransportError(rank_name(options.rank) + ": GASPI has started in this process as " +
                         rank_name(rank_) + " of " + std::to_string(hosts_.size()) +
                         ", and cannot start again");
  const auto segment = static_cast<std::size_t>(options.segment);
  if (options.epoch <= last_epoch_ || segment >= segment_count || memory_[segment].busy)
    throw TransportError(rank_name(rank_) + ": GASPI epoch " + std::to_string(options.epoch) +
                         " or segment " + std::to_string(options.segment) +
                         " is taken; ask gaspi_use()");
  last_epoch_ = options.epoch;
  const auto id = static_cast<SegmentId>(segment);
  allocate(id);
  join(id, options.members, options.timeout_s);
  memory_[id].busy = true;
  return Segment(*library_, limits_, rank_, id, options.epoch, memory_[id].data);
}

// With libfabric, GPI-2 reads what it sends, notifications too, some time later: what an earlier
// transport has left under way would go out as the next one's. So a segment is free only when all
// has been sent; one for which that takes too long, as its peer is stopped, is not used again.
void Process::give_back(int segment) {
  constexpr Timeout limit_ms = 1000;
  std::lock_guard lock(mutex_);
  const Queue queue = limits_.queue_of(static_cast<SegmentId>(segment));
  Return code = success;
  Number failed = 0;  // each write to a dead peer is an error of its own
  do code = library_->wait(queue, limit_ms);
  while (code != success && code != timed_out && ++failed < limits_.queue_limit);
  memory_.at(segment).busy = code != success;
}

void Process::start(const GaspiOptions& options) {
  if (!failure_.empty()) throw TransportError(failure_);
  load(options);
  if (!gaspi::ports_are_free(*library_, options))
    throw TransportError(rank_name(options.rank) + ": GASPI's ports from " +
                         std::to_string(options.port_base) +
                         " on are in use; choose another port_base");
  try {
    gaspi::start(*library_, options);
    Number notifications = 0;
    check(library_->notification_num(&notifications), "ask", options.rank);
    check(library_->queue_num(&limits_.queues), "ask", options.rank);
    check(library_->queue_size_max(&limits_.queue_limit), "ask", options.rank);
    const Number each = notifications / segment_count;
    limits_.layout = Layout::fit(options, each);
    const std::size_t wanted = limits_.layout.notifications();
    if (wanted > notifications) throw TransportError("too few notifications for so many ranks");
    limits_.notification_stride = wanted <= each ? each : 0;
  } catch (const TransportError& error) {
    failure_ = rank_name(options.rank) + ": GASPI did not start: " + error.what() +
               ". It can be tried once in a process: restart the ranks";
    throw TransportError(failure_);
  }
  rank_ = options.rank;
  hosts_ = options.hosts;
  started_ = true;
}

void Process::allocate(SegmentId id) {
  Memory& memory = memory_[id];
  if (memory.data != nullptr) return;
  check(library_->segment_alloc(id, limits_.layout.bytes(), uninitialized_memory),
        "make a segment of", rank_);
  Pointer data = nullptr;
  check(library_->segment_ptr(id, &data), "find the segment of", rank_);
  memory.data = static_cast<std::byte*>(data);
  memory.registered.resize(limits_.layout.ranks);
}

// Makes the segment known to the members, and waits until theirs are known here.
void Process::join(SegmentId id, const std::vector<int>& members, double timeout_s) {
  const Deadline deadline(timeout_s);
  std::vector<bool>& registered = memory_[id].registered;
  std::vector<int> fresh;
  for (const int member : members)
    if (!registered[member]) fresh.push_back(member);
  if (fresh.empty()) return;

  for (const int member : fresh)
    check(library_->segment_register(id, static_cast<Rank>(member), deadline.rest_ms()),
          "open a segment to", member);
  for (const int member : fresh) {
    Size size = 0;
    while (library_->segment_size(id, static_cast<Rank>(member), &size) != success || size == 0) {
      if (deadline.passed())
        throw TransportError(rank_name(rank_) + ": " + rank_name(member) +
                             " did not open its GASPI segment in time");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (size != limits_.layout.bytes())
      throw TransportError(rank_name(rank_) + ": " + rank_name(member) +
                           " has other GASPI slots; they must be the same on all ranks");
  }
  // GPI-2's own thread may be in the middle of writing down the last one. It answers afterwards.
  check(library_->proc_ping(static_cast<Rank>(rank_), deadline.rest_ms()), "reach", rank_);
  for (const int member : fresh) registered[member] = true;
}

void Process::check(Return code, const char* what, int rank) const {
  if (code != success)
    throw TransportError(rank_name(rank_) + ": GASPI could not " + what + " " + rank_name(rank) +
                         ": " + library_->describe(code));
}

}  // namespace tnt::gaspi
