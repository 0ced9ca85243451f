#include "base/cores.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

int32_t cores_share(void) {
  cpu_set_t cores;
  long available = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : sysconf(_SC_NPROCESSORS_ONLN);
  const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  long processes = text != NULL ? strtol(text, NULL, 10) : 1;
  long share = available / (processes > 0 ? processes : 1);
  return share < 1 ? 1 : share > INT32_MAX ? INT32_MAX : (int32_t)share;
}
