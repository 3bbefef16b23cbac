// The functions of MPI that are used, as they are found in the library that is loaded. A handle is
// a pointer or an int, whatever the library's ABI says.
#pragma once

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "transport/transport.h"

namespace tnt {

// What is found under MPI_..., with its arguments.
#define TNT_MPI_FUNCTIONS(F)                                        \
  F(Isend, (const void*, int, Handle, int, int, Handle, Handle*))   \
  F(Irecv, (void*, int, Handle, int, int, Handle, Handle*))         \
  F(Test, (Handle*, int*, void*))                                   \
  F(Wait, (Handle*, void*))                                         \
  F(Cancel, (Handle*))                                              \
  F(Test_cancelled, (const void*, int*))                            \
  F(Get_count, (const void*, Handle, int*))                         \
  F(Error_string, (int, char*, int*))                               \
  F(Iprobe, (int, int, Handle, int*, void*))                        \
  F(Comm_group, (Handle, Handle*))                                  \
  F(Group_size, (Handle, int*))                                     \
  F(Group_translate_ranks, (Handle, int, const int*, Handle, int*)) \
  F(Group_free, (Handle*))

template <class Handle>
struct MpiFunctions {
#define TNT_MPI_DECLARE(NAME, ARGUMENTS) int(*NAME) ARGUMENTS;
  TNT_MPI_FUNCTIONS(TNT_MPI_DECLARE)
#undef TNT_MPI_DECLARE
  // Of MPI libraries that outlive the death of a rank; null in others.
  int (*failure_ack)(Handle);
  int (*failure_get_acked)(Handle, Handle*);

  explicit MpiFunctions(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) throw TransportError("MPI is not loaded in this process: " + path);
    const auto look_up = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
#define TNT_MPI_FIND(NAME, ARGUMENTS) \
  if (!look_up(NAME, "MPI_" #NAME)) throw TransportError("MPI library without MPI_" #NAME);
    TNT_MPI_FUNCTIONS(TNT_MPI_FIND)
#undef TNT_MPI_FIND
    look_up(failure_ack, "MPIX_Comm_failure_ack");
    look_up(failure_get_acked, "MPIX_Comm_failure_get_acked");
    dlclose(library);  // only the reference taken here; mpi4py keeps its own
  }
};

}  // namespace tnt
