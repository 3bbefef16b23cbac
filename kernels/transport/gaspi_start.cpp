#include "transport/gaspi_start.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>

namespace tnt::gaspi {
namespace {

int local_rank(const GaspiOptions& options) {
  const auto own = options.hosts.begin() + options.rank;
  return static_cast<int>(std::count(options.hosts.begin(), own, *own));
}

// GPI-2 cuts off or skips what is beyond its limits, and then waits for ranks that are not there.
void check_job(const GaspiOptions& options) {
  constexpr std::size_t longest_host = 62;
  const auto ranks = options.hosts.size();
  const auto fail = [&](const std::string& why) {
    throw TransportError("rank " + std::to_string(options.rank) + ": GASPI cannot start: " + why);
  };
  if (ranks == 0 || ranks > std::numeric_limits<Rank>::max())
    fail("a job of " + std::to_string(ranks) + " ranks");
  if (options.rank < 0 || options.rank >= static_cast<int>(ranks))
    fail("it is not one of " + std::to_string(ranks) + " ranks");
  for (const std::string& host : options.hosts)
    if (host.empty() || host.size() > longest_host)
      fail("the name of host \"" + host + "\" is not of 1 to 62 characters");
  if (local_rank(options) >= Ports::topology_offset)
    fail("more than 256 ranks on host " + options.hosts[options.rank]);
  if (options.port_base != 0 &&
      (options.port_base < 1024 || options.port_base + gaspi_ports > 65536))
    fail("port base " + std::to_string(options.port_base));
  const auto slots = static_cast<std::size_t>(options.slots);
  if (options.slots < 4 || slots > 1024 || (slots & (slots - 1)) != 0 || options.slot_bytes < 64 ||
      options.slot_bytes % 64 != 0)
    fail("rings of " + std::to_string(options.slots) + " slots of " +
         std::to_string(options.slot_bytes) + " bytes");
}

Ports ports(const Library& library, const GaspiOptions& options) {
  Ports ports = Settings(library).ports();
  if (options.port_base == 0) return ports;
  ports.start = options.port_base;
  if (ports.device != 0) ports.device = options.port_base + 2 * Ports::topology_offset;
  return ports;
}

// In the same way as GPI-2 will: on all interfaces. If GPI-2 found a port taken it would talk to
// whoever has it: to another job, in whose memory it would write.
bool can_bind(int port) {
  const int socket_file = socket(AF_INET, SOCK_STREAM, 0);
  if (socket_file < 0) return false;
  const int reuse = 1;
  setsockopt(socket_file, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const bool bound =
      bind(socket_file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      listen(socket_file, 1) == 0;
  close(socket_file);
  return bound;
}

// A file of one host a line, for this user only; gone with the object.
class MachineFile {
 public:
  explicit MachineFile(const std::vector<std::string>& hosts)
      : path_((std::filesystem::temp_directory_path() / "tnt-gaspi-XXXXXX").string()) {
    const int file = mkstemp(path_.data());
    if (file < 0) throw TransportError("GASPI's machine file cannot be made: " + path_);
    std::string lines;
    for (const std::string& host : hosts) lines += host + "\n";
    const bool written =
        write(file, lines.data(), lines.size()) == static_cast<ssize_t>(lines.size());
    close(file);
    if (written) return;
    unlink(path_.c_str());
    throw TransportError("GASPI's machine file cannot be written: " + path_);
  }
  ~MachineFile() { unlink(path_.c_str()); }
  MachineFile(const MachineFile&) = delete;
  MachineFile& operator=(const MachineFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// An environment variable for as long as the object lives: GPI-2 reads it when it starts.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

}  // namespace

bool ports_are_free(const Library& library, const GaspiOptions& options) {
  check_job(options);
  const Ports own = ports(library, options);
  const int local = local_rank(options);
  for (const int port : {own.start, own.start + Ports::topology_offset, own.device})
    if (port != 0 && !can_bind(port + local)) return false;
  return true;
}

void start(const Library& library, const GaspiOptions& options) {
  check_job(options);
  const MachineFile machines(options.hosts);
  const Variable number("GASPI_RANK", std::to_string(options.rank));
  const Variable count("GASPI_NRANKS", std::to_string(options.hosts.size()));
  const Variable local("GASPI_SOCKET", std::to_string(local_rank(options)));
  const Variable file("GASPI_MFILE", machines.path());
  if (options.port_base != 0) Settings(library).set_ports(ports(library, options));
  const Return code = library.proc_init(static_cast<Timeout>(1000 * options.timeout_s) + 1);
  if (code != success) throw TransportError(library.describe(code));
  Rank rank = 0, ranks = 0;
  if (library.proc_rank(&rank) != success || rank != options.rank ||
      library.proc_num(&ranks) != success || ranks != options.hosts.size())
    throw TransportError("it is another job's");
}

}  // namespace tnt::gaspi
