// What fails over GPI-2, and what it leaves.
#include <arpa/inet.h>

#include <filesystem>

#include "gaspi_job.h"

using namespace tnt;
using namespace tnt::test;

namespace {

// A folder for temporary files, while it lives.
class TemporaryFiles {
 public:
  TemporaryFiles() {
    if (mkdtemp(folder_.data()) == nullptr) throw CheckFailed("mkdtemp");
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    setenv("TMPDIR", folder_.c_str(), 1);
  }
  ~TemporaryFiles() {
    before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  TemporaryFiles(const TemporaryFiles&) = delete;
  TemporaryFiles& operator=(const TemporaryFiles&) = delete;

  bool is_empty() const { return std::filesystem::is_empty(folder_); }

 private:
  std::string folder_ = (std::filesystem::temp_directory_path() / "test-gaspi-XXXXXX").string();
  std::string before_;
};

}  // namespace

TEST(a_rank_that_dies_is_named_to_those_who_wait_for_it_and_the_others_go_on) {
  Job job(3);
  const auto body = [](Member& member) {
    const auto transport = member.open();
    meet(*transport);
    if (transport->rank() == 2) {
      leave(*transport);
      raise(SIGKILL);
    }
    const auto begin = Clock::now();
    Bytes data(1000000);
    const auto wait = [&] {
      if (transport->rank() == 0)
        finish(*transport, transport->receive(2, 0, heading, data.data(), data.size()));
      else  // it may still have taken some
        while (Clock::now() - begin < limit)
          finish(*transport, transport->send(2, 0, heading, data.data(), data.size()));
    };
    CHECK_CONTAINS(thrown_by<TransportError>(wait), "rank 2 cannot be reached any more");
    CHECK(Clock::now() - begin < seconds(5));
    CHECK_THROWS(transport->check_alive(2), TransportError);
    CHECK_THROWS(transport->notify(2, 0, ""), TransportError);

    const int other = 1 - transport->rank();
    transport->check_alive(other);
    exchange(*transport, {other}, 1, {data.size()}, heading);
    leave(*transport);

    member.options.members = {0, 1};
    const auto rest = member.open();
    meet(*rest);
    leave(*rest);
  };
  job.run(body, 2);
}

TEST(a_rank_that_does_not_come_to_the_start_is_an_error_after_the_time_out) {
  Job job(2);
  job.start(0, [](Member& member) {
    member.options.timeout_s = 1;
    const auto begin = Clock::now();
    CHECK_THROWS(member.open(), TransportError);
    CHECK(Clock::now() - begin < limit);
    const auto again = thrown_by<TransportError>([&] { member.open(); });
    CHECK_CONTAINS(again, "rank 0: GASPI did not start");
    CHECK_CONTAINS(again, "restart the ranks");
  });
  CHECK_EQUAL(job.wait(0), "");
}

TEST(a_rank_that_does_not_open_a_transport_is_named_and_a_later_one_opens) {
  Job job(2);  // no segment has been opened in it
  job.run([](Member& member) {
    const auto first = member.open();
    GaspiOptions second = member.options;
    second.epoch += 1;
    second.segment += 1;
    if (second.rank == 0) {
      second.segment += 1;
      second.timeout_s = 0.5;
      CHECK_CONTAINS(thrown_by<TransportError>([&] { make_gaspi_transport(second); }),
                     "rank 0: rank 1 did not open");
    }
    second = member.options;
    second.epoch += 2;
    second.segment += 1;
    const auto transport = make_gaspi_transport(second);
    meet(*transport);
    leave(*transport);
    second.segment += 1;
    CHECK_THROWS(make_gaspi_transport(second), TransportError);  // the epoch is taken
    second.epoch += 1;
    second.segment -= 1;
    CHECK_THROWS(make_gaspi_transport(second), TransportError);  // the segment is taken
  });
}

TEST(a_port_in_use_is_an_error_and_another_port_base_works) {
  Job job(1);
  job.run([](Member& member) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    CHECK(listen(listener, 1) == 0);
    socklen_t bytes = sizeof address;
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes);
    GaspiOptions options = member.options;
    options.port_base = ntohs(address.sin_port);
    CHECK(!gaspi_ports_are_free(options));
    const std::string ports = "ports from " + std::to_string(options.port_base);
    CHECK_CONTAINS(thrown_by<TransportError>([&] { make_gaspi_transport(options); }),
                   ports.c_str());
    close(listener);
    const auto transport = member.open();
    meet(*transport);
    leave(*transport);
  });
}

TEST(nothing_is_left_behind) {
  const TemporaryFiles files;
  const auto shared_memory = [] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename().string();
      count += name.find("gaspi") != name.npos || name.find("gpi") != name.npos;
    }
    return count;
  };
  const int segments = shared_memory();
  {
    Job job(2);
    job.run([](Member& member) {
      const auto transport = member.open();
      meet(*transport);
      leave(*transport);
      for (const char* name : {"GASPI_RANK", "GASPI_NRANKS", "GASPI_SOCKET", "GASPI_MFILE"})
        CHECK(std::getenv(name) == nullptr);
    });
    CHECK(files.is_empty());
  }
  CHECK_EQUAL(shared_memory(), segments);
}
