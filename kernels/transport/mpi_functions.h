// The functions of MPI that are used, as they are found in the library that is loaded. A handle is
// a pointer or an int, whatever the library's ABI says.
#pragma once

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "transport/transport.h"

namespace tnt {

template <class Handle>
struct MpiFunctions {
  int (*isend)(const void*, int, Handle, int, int, Handle, Handle*);
  int (*irecv)(void*, int, Handle, int, int, Handle, Handle*);
  int (*test)(Handle*, int*, void*);
  int (*wait)(Handle*, void*);
  int (*cancel)(Handle*);
  int (*test_cancelled)(const void*, int*);
  int (*get_count)(const void*, Handle, int*);
  int (*error_string)(int, char*, int*);
  int (*iprobe)(int, int, Handle, int*, void*);
  // Of MPI libraries that outlive the death of a rank; null in others.
  int (*failure_ack)(Handle);
  int (*failure_get_acked)(Handle, Handle*);
  int (*comm_group)(Handle, Handle*);
  int (*group_size)(Handle, int*);
  int (*group_translate_ranks)(Handle, int, const int*, Handle, int*);
  int (*group_free)(Handle*);

  explicit MpiFunctions(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) throw TransportError("MPI is not loaded in this process: " + path);
    const auto look_up = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    };
    const auto find = [&](auto& function, const char* name) {
      look_up(function, name);
      if (function == nullptr) throw TransportError(std::string("MPI library without ") + name);
    };
    find(isend, "MPI_Isend");
    find(irecv, "MPI_Irecv");
    find(test, "MPI_Test");
    find(wait, "MPI_Wait");
    find(cancel, "MPI_Cancel");
    find(test_cancelled, "MPI_Test_cancelled");
    find(get_count, "MPI_Get_count");
    find(error_string, "MPI_Error_string");
    find(iprobe, "MPI_Iprobe");
    look_up(failure_ack, "MPIX_Comm_failure_ack");
    look_up(failure_get_acked, "MPIX_Comm_failure_get_acked");
    find(comm_group, "MPI_Comm_group");
    find(group_size, "MPI_Group_size");
    find(group_translate_ranks, "MPI_Group_translate_ranks");
    find(group_free, "MPI_Group_free");
    dlclose(library);  // only the reference taken here; mpi4py keeps its own
  }
};

}  // namespace tnt
