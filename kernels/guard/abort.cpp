// Keeps MPI_Abort of one rank, and errors that MPI takes for fatal there, from ending the others.
//
// Open MPI would tell its daemons, which let go of all ranks of the job: these live on, but can
// neither agree on who is left nor start others. Preloaded into ranks, this makes it one death
// among those that the other ranks outlive. Where they do not, the launcher ends them as for any
// other.
#include <unistd.h>

#include <cstddef>

extern "C" __attribute__((visibility("default"))) int PMIx_Abort(int status, const char*, void*,
                                                                 std::size_t) {
  const int told = status & 0xff;
  _exit(told == 0 ? 1 : told);
}
