// Ways in which a program can end while its launches may be queued (`apex run --fast`).
//
//     endings WAY N      launches N kernels that count in mapped host memory, then ends:
//
//     return             main returns
//     thread             main ends by pthread_exit; another thread launches, and ends last
//     _exit, quick_exit  without the handlers of exit
//     exec               the process becomes /bin/true
//     term               SIGTERM, with its default action
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t status = (call);                                                                                   \
        if (status != cudaSuccess) {                                                                                   \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(status));                                              \
            _exit(9);                                                                                                  \
        }                                                                                                              \
    } while (0)

__global__ void count(unsigned *counter) { atomicAdd(counter, 1); }

static long launches;
static unsigned *counter;

static void *launch(void *) {
    for (long i = 0; i < launches; i++) {
        count<<<1, 32>>>(counter);
        CUDA(cudaGetLastError());
    }
    return nullptr;
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: endings WAY N\n"), 2;
    const char *way = argv[1];
    launches = atol(argv[2]);
    CUDA(cudaMalloc(&counter, sizeof(*counter)));
    CUDA(cudaMemset(counter, 0, sizeof(*counter)));
    // The queue opens where a program launches more than the device takes.
    launch(nullptr);
    CUDA(cudaDeviceSynchronize());
    if (!strcmp(way, "thread")) {
        pthread_t thread;
        pthread_create(&thread, nullptr, launch, nullptr);
        pthread_exit(nullptr);
    }
    launch(nullptr);
    if (!strcmp(way, "_exit")) _exit(0);
    if (!strcmp(way, "quick_exit")) quick_exit(0);
    if (!strcmp(way, "exec")) execl("/bin/true", "true", (char *)nullptr);
    if (!strcmp(way, "term")) raise(SIGTERM);
    return 0;
}
