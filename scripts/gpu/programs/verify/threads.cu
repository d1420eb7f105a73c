// Sixteen threads launch at once: into the default stream (legacy or per thread, by how it is compiled), into streams of
// their own, while streams and events come and go, and while other threads end.
#include "output.h"
#include <atomic>
#include <thread>

int main() {
  const int n = 4096, workers = 16, rounds = 2000;
  std::vector<std::thread> threads;
  std::vector<uint32_t *> x(workers);
  uint32_t *y = random_device(n, 20);
  std::atomic<long> launches{0};
  for (int t = 0; t < workers; t++) x[t] = random_device(n, 100 + t);
  for (int t = 0; t < workers; t++)
    threads.emplace_back([&, t] {
      cudaStream_t own = nullptr;
      for (int k = 0; k < rounds; k++) {
        if (k % 100 == 0) {
          CHECK(cudaStreamSynchronize(own));
          if (own) CHECK(cudaStreamDestroy(own));
          if (t % 2) CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
          std::thread([&] {
            mix<<<n / 256, 256>>>(x[t], y, 1, n), launches++;
            CHECK(cudaStreamSynchronize(cudaStreamPerThread));
            CHECK(cudaStreamSynchronize(nullptr));
          }).join();
        }
        mix<<<n / 128, 128, 0, own>>>(x[t], y, 2 * k + 1, n), launches++;
      }
      CHECK(cudaStreamSynchronize(own));
    });
  for (auto &t : threads) t.join();
  CHECK(cudaDeviceSynchronize());
  for (auto *p : x) write_words(p, n);
  say_launches(launches);
}
