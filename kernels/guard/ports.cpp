// Keeps other users of a host away from the ports of Open MPI's daemons.
//
// prterun and prted listen on all interfaces, and take the word of whoever connects for who it is:
// another user can have them start programs. Preloaded into them, this looks up in the kernel's
// table who holds the other end of each connection, and drops those of other users. Where all ranks
// are on one host (TNT_PORTS=here) they listen on the loopback only, and hear nobody from
// elsewhere.
//
// In ranks it does the same for what Open MPI itself opens there, and in any other process nothing:
// the launcher is reached through wrappers.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

bool daemon_ = false;
bool armed = false;
bool here = false;

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool is_daemon() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (size <= 0) return false;
  path[size] = '\0';
  const char* slash = std::strrchr(path, '/');
  const char* name = slash == nullptr ? path : slash + 1;
  for (const char* known : {"prterun", "prte", "prted", "orterun", "orted"}) {
    if (std::strcmp(name, known) == 0) return true;
  }
  return false;
}

__attribute__((constructor)) void begin() {
  const char* ports = std::getenv("TNT_PORTS");
  if (ports == nullptr || access("/proc/net/tcp", R_OK) != 0) return;
  here = std::strcmp(ports, "here") == 0;
  daemon_ = is_daemon();
  armed = daemon_ || here;
}

// Whether a call is Open MPI's: in a daemon any is, in a rank only that of its libraries.
bool is_guarded(const void* caller) {
  if (!armed || daemon_) return armed;
  Dl_info library{};
  if (dladdr(caller, &library) == 0 || library.dli_fname == nullptr) return false;
  for (const char* known : {"libopen-pal", "libmpi", "mca_btl", "libpmix"}) {
    if (std::strstr(library.dli_fname, known) != nullptr) return true;
  }
  return false;
}

// An end of a connection as the kernel's table writes it; false for what is not of the internet.
bool written(const sockaddr_storage& end, char (&text)[64]) {
  if (end.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(end);
    std::snprintf(text, sizeof(text), "%08X:%04X", v4.sin_addr.s_addr, ntohs(v4.sin_port));
    return true;
  }
  if (end.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(end);
    std::uint32_t words[4];
    std::memcpy(words, &v6.sin6_addr, sizeof(words));
    std::snprintf(text, sizeof(text), "%08X%08X%08X%08X:%04X", words[0], words[1], words[2],
                  words[3], ntohs(v6.sin6_port));
    return true;
  }
  return false;
}

enum class Holder { own, other, not_here };

// Who on this host holds the socket whose address is `peer` and whose peer is `own`.
Holder holder(const sockaddr_storage& peer, const sockaddr_storage& own) {
  char from[64], to[64];
  if (!written(peer, from) || !written(own, to)) return Holder::own;  // a Unix socket
  const char* path = peer.ss_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6";
  std::FILE* table = std::fopen(path, "re");
  if (table == nullptr) return Holder::other;
  Holder found = Holder::not_here;
  char line[512], local[64], remote[64];
  unsigned long uid = 0;
  while (std::fgets(line, sizeof(line), table) != nullptr) {
    if (std::sscanf(line, " %*s %63s %63s %*s %*s %*s %*s %lu", local, remote, &uid) == 3 &&
        std::strcmp(local, from) == 0 && std::strcmp(remote, to) == 0) {
      found = uid == geteuid() ? Holder::own : Holder::other;
      break;
    }
  }
  std::fclose(table);
  return found;
}

int checked(int connection, const void* caller) {
  if (connection < 0 || !is_guarded(caller)) return connection;
  sockaddr_storage peer{}, own{};
  socklen_t peer_size = sizeof(peer), own_size = sizeof(own);
  if (getpeername(connection, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
      getsockname(connection, reinterpret_cast<sockaddr*>(&own), &own_size) == 0) {
    const Holder found = holder(peer, own);
    if (found == Holder::own || (found == Holder::not_here && !here)) return connection;
  }
  close(connection);
  errno = EAGAIN;  // the one that daemons take for "nobody was there"
  return -1;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int accept(int listener, sockaddr* peer, socklen_t* size) {
  static const auto real = next<int (*)(int, sockaddr*, socklen_t*)>("accept");
  return checked(real(listener, peer, size), __builtin_return_address(0));
}

__attribute__((visibility("default"))) int accept4(int listener, sockaddr* peer, socklen_t* size,
                                                   int flags) {
  static const auto real = next<int (*)(int, sockaddr*, socklen_t*, int)>("accept4");
  return checked(real(listener, peer, size, flags), __builtin_return_address(0));
}

__attribute__((visibility("default"))) int bind(int listener, const sockaddr* address,
                                                socklen_t size) {
  static const auto real = next<int (*)(int, const sockaddr*, socklen_t)>("bind");
  const bool inside = here && is_guarded(__builtin_return_address(0));
  if (inside && address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in loopback = *reinterpret_cast<const sockaddr_in*>(address);
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return real(listener, reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback));
  }
  if (inside && address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 loopback = *reinterpret_cast<const sockaddr_in6*>(address);
    loopback.sin6_addr = in6addr_loopback;
    return real(listener, reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback));
  }
  return real(listener, address, size);
}

}  // extern "C"
