// MPI point to point, over whichever MPI library the process has already loaded.
//
// Nothing of MPI is needed to build: the functions are looked up in the loaded library, and what
// differs between the ABIs (handles are pointers in Open MPI and the MPI 5 ABI, ints in MPICH and
// Intel MPI) is a template parameter. So one binary serves every MPI that mpi4py can use.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "transport/transport.h"

namespace tnt {

// Facts about the loaded MPI library that mpi4py knows.
struct MpiLibrary {
  std::string path;                  // a shared object that depends on libmpi (mpi4py's own)
  std::size_t handle_bytes = 0;      // sizeof(MPI_Comm): 8 or 4
  std::size_t status_bytes = 0;      // sizeof(MPI_Status)
  std::size_t status_source_at = 0;  // offset of MPI_SOURCE in MPI_Status
  std::uintptr_t byte_type = 0;      // MPI_BYTE
  std::uintptr_t null_request = 0;   // MPI_REQUEST_NULL
  int any_source = 0;                // MPI_ANY_SOURCE
  int tag_limit = 0;                 // MPI_TAG_UB
  bool multiple = false;             // MPI_THREAD_MULTIPLE was given
};

// Without MPI_THREAD_MULTIPLE whoever calls MPI holds this: one thread at a time.
std::recursive_mutex& mpi_turn();

// `communicator` is a private duplicate, its error handler MPI_ERRORS_RETURN. Throws TransportError
// if a function is missing.
std::unique_ptr<Transport> make_mpi_transport(const MpiLibrary& library,
                                              std::uintptr_t communicator, int rank, int size);

}  // namespace tnt
