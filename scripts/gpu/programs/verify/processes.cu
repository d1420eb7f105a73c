// A tree of processes: the first forks before it uses CUDA, one child replaces itself by exec, and all launch.
#include "output.h"
#include <sys/wait.h>
#include <unistd.h>

static void work(int seed, int rounds) {
  const int n = 10000;
  uint32_t *x = random_device(n, seed), *y = random_device(n, seed + 1);
  for (int k = 0; k < rounds; k++) mix<<<(n + 255) / 256, 256>>>(x, y, 2 * k + 1, n);
  CHECK(cudaDeviceSynchronize());
  write_words(x, n);
  std::fflush(stdout);
}

static void wait_for(pid_t child) {
  int status;
  if (waitpid(child, &status, 0) != child || status != 0) std::exit(1);
}

int main(int argc, char **argv) {
  if (argc > 1) return work(30, 300), 0;
  pid_t plain = fork();
  if (plain == 0) return work(40, 200), 0;
  wait_for(plain);
  pid_t replaced = fork();
  if (replaced == 0) return execl("/proc/self/exe", argv[0], "again", nullptr), 1;
  wait_for(replaced);
  work(50, 100);
  say_launches(600);
}
