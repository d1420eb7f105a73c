// Computes until its standard input ends: makes large vectors anew, and a generator for each number.
#include <cstdio>
#include <poll.h>
#include <random>
#include <vector>

__attribute__((noinline)) float tables(const std::vector<float> &from) {
    std::vector<float> copy(from.begin(), from.end());
    float sum = 0;
    for (float value : copy) sum += value;
    return sum;
}

__attribute__((noinline)) float draws(float mean) {
    std::random_device source;
    std::mt19937 generator(source());
    std::exponential_distribution<float> gap(1.0f / mean);
    return gap(generator);
}

int main() {
    std::puts("ready");
    std::fflush(stdout);
    // 64 MiB: glibc keeps freed memory below 32 MiB, whose pages then fault no more.
    std::vector<float> from(1 << 24, 1.0f);
    float sum = 0;
    pollfd input = {0, POLLIN, 0};
    while (poll(&input, 1, 0) == 0) {
        sum += tables(from);
        for (int i = 0; i < 2000; ++i) sum += draws(2.0f);
    }
    return sum < 0;
}
