// What an event pair around one kernel reads, against the time that the kernel itself counts.
//
//   event_pairs CUBIN         (CUBIN: kernels.cu)
//
// Prints CSV: for kernels that spin for a given time, on one block or on a full grid, the quantiles of 200 readings
//   idle   the stream had nothing to do before the pair;
//   busy   a kernel of 40 us was ahead of the pair;
//   stream pairs around each of 20 kernels queued one after the other.
// `spin_us` is 0 for an empty kernel and -1 for no kernel at all between the two events.
// `inside_us` is the spin's median by the multiprocessor's own clock: the shortest time the kernel can have taken.
#include "driver.h"

#define READINGS 200
#define STREAM 20

static CUfunction spin, empty;
static CUstream stream;
static CUdeviceptr device_elapsed;
static double cycles_per_us;

static void launch(double us, unsigned blocks, unsigned threads) {
  if (us < 0) return;
  long long cycles = (long long)(us * cycles_per_us);
  void *arguments[] = {&cycles, &device_elapsed};
  if (us > 0) CHECK(cuLaunchKernel(spin, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL));
  else CHECK(cuLaunchKernel(empty, blocks, 1, 1, threads, 1, 1, 0, stream, NULL, NULL));
}

static double reading_us(CUevent first, CUevent second) {
  float ms;
  CHECK(cuEventElapsedTime(&ms, first, second));
  return ms * 1e3;
}

static void report(const char *mode, double us, unsigned blocks, unsigned threads, double *reading, double *inside) {
  double middle = us > 0 ? quantile(sorted(inside, READINGS), 0.5) : 0;
  Sorted readings = sorted(reading, READINGS);
  printf("%s,%u,%u,%.1f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n", mode, blocks, threads, us, middle, quantile(readings, 0),
         quantile(readings, 0.05), quantile(readings, 0.5), quantile(readings, 0.95), quantile(readings, 1));
  fflush(stdout);
}

static double inside_us(void) {
  long long elapsed[2];
  CHECK(cuMemcpyDtoH(elapsed, device_elapsed, sizeof elapsed));
  return (double)elapsed[0] / cycles_per_us;
}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: event_pairs CUBIN\n"), 2;
  CUcontext context;
  CUmodule module;
  CUevent first[STREAM], second[STREAM];
  first_device(&context);
  CHECK(cuModuleLoad(&module, argv[1]));
  CHECK(cuModuleGetFunction(&spin, module, "spin"));
  CHECK(cuModuleGetFunction(&empty, module, "empty"));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAlloc(&device_elapsed, 16));
  for (int i = 0; i < STREAM; i++) {
    CHECK(cuEventCreate(&first[i], CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&second[i], CU_EVENT_DEFAULT));
  }

  // The clock's rate, from spins long enough for the clock to settle, by the events and by %globaltimer.
  cycles_per_us = 1000;
  for (int i = 0; i < 5; i++) {
    long long elapsed[2];
    CHECK(cuEventRecord(first[0], stream));
    launch(50000, 1, 1);
    CHECK(cuEventRecord(second[0], stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(elapsed, device_elapsed, sizeof elapsed));
    if (i == 4) {
      printf("# %lld cycles: %.1f us by events, %.1f us by %%globaltimer\n", elapsed[0], reading_us(first[0], second[0]), elapsed[1] / 1e3);
      cycles_per_us = (double)elapsed[0] / reading_us(first[0], second[0]);
    }
  }

  static const double spins[] = {-1, 0, 1, 2, 3, 5, 10, 20, 50, 200, 1000};
  static const unsigned grids[][2] = {{1, 1}, {132, 1024}, {4096, 256}};
  double reading[READINGS], inside[READINGS];
  printf("mode,blocks,threads,spin_us,inside_us,min_us,p5_us,median_us,p95_us,max_us\n");
  for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
    unsigned blocks = grids[g][0], threads = grids[g][1];
    for (size_t s = 0; s < sizeof spins / sizeof *spins; s++) {
      double us = spins[s];
      for (int mode = 0; mode < 2; mode++) {
        for (int i = -5; i < READINGS; i++) {
          if (mode) launch(40, 1, 1);
          CHECK(cuEventRecord(first[0], stream));
          launch(us, blocks, threads);
          CHECK(cuEventRecord(second[0], stream));
          CHECK(cuStreamSynchronize(stream));
          if (i >= 0) reading[i] = reading_us(first[0], second[0]), inside[i] = inside_us();
        }
        report(mode ? "busy" : "idle", us, blocks, threads, reading, inside);
      }
      for (int i = 0; i < READINGS; i += STREAM) {
        for (int k = 0; k < STREAM; k++) {
          CHECK(cuEventRecord(first[k], stream));
          launch(us, blocks, threads);
          CHECK(cuEventRecord(second[k], stream));
        }
        CHECK(cuStreamSynchronize(stream));
        for (int k = 0; k < STREAM; k++) reading[i + k] = reading_us(first[k], second[k]), inside[i + k] = inside_us();
      }
      report("stream", us, blocks, threads, reading, inside);
    }
  }
  return 0;
}
