// Ranks that are threads of one process: what one rank alone, and the C++ tests, run on.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "transport/transport.h"

namespace tnt {

class LocalNetwork {
 public:
  explicit LocalNetwork(int size) : size_(size), notices_(size) {}
  int size() const { return size_; }

 private:
  friend class LocalTransport;
  using Address = std::tuple<int, int, std::uint32_t>;  // source, target, channel
  struct Message {
    Heading heading;
    std::vector<std::byte> bytes;
  };

  const int size_;
  std::mutex mutex_;
  std::map<Address, std::deque<Message>> mail_;
  std::vector<std::deque<Notice>> notices_;
};

std::unique_ptr<Transport> make_local_transport(std::shared_ptr<LocalNetwork> network, int rank);

}  // namespace tnt
