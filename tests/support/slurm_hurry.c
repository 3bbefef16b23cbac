// Makes slurmctld look at time limits every second while a test waits for one, instead of every 30 s.
//
// Preloaded into slurmctld, which compares the time since it last did something with a period by
// difftime(). Until the modification time of the file that SLURM_HURRY names, 30 s more have passed.

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

double difftime(time_t end, time_t beginning) {
  static const double kLongestPeriod = 30;
  const char* until = getenv("SLURM_HURRY");
  struct stat file;
  const int hurry = until && stat(until, &file) == 0 && file.st_mtime >= time(NULL);
  return (double)(end - beginning) + (hurry ? kLongestPeriod : 0);
}
