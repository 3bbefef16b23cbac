// For each peer the transport that is best for it: shared memory on the node, messages beyond.
#pragma once

#include <memory>
#include <vector>

#include "transport/transport.h"

namespace tnt {

// near[r]: rank r is reached through `node`; all others, and notices to all, go by `network`.
std::unique_ptr<Transport> make_router(std::unique_ptr<Transport> node,
                                       std::unique_ptr<Transport> network, std::vector<bool> near);

}  // namespace tnt
