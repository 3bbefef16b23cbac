// How GASPI starts: once in a process, together on all ranks of the job.
#pragma once

#include "transport/gaspi.h"
#include "transport/gaspi_library.h"

namespace tnt::gaspi {

// Both throw TransportError, also where the options make no sense. A start that has failed cannot
// be tried again.
bool ports_are_free(const Library& library, const GaspiOptions& options);
void start(const Library& library, const GaspiOptions& options);

}  // namespace tnt::gaspi
