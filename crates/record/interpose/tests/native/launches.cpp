// Launches kernels in every way in which compiled code can come to a launch, each with a grid of its own, and prints by grid the
// user's functions that are active there, innermost first: lines of `GRID<tab>FUNCTION:LINE FUNCTION:LINE …`.
// A call of another function and HERE are on one line, so that its line is known.
#include <alloca.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <vector>

typedef void *pointer;
extern "C" unsigned cuInit(unsigned), cuCtxCreate_v2(pointer *, unsigned, int), cuCtxSetCurrent(pointer),
    cuModuleLoadData(pointer *, const void *), cuModuleGetFunction(pointer *, pointer, const char *),
    cuMemAlloc_v2(unsigned long long *, size_t), cuMemFree_v2(unsigned long long), cuCtxSynchronize(),
    cuLaunchKernel(pointer, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, pointer, pointer *, pointer *);

static pointer context, function;
static std::vector<std::string> callers;

struct Caller {
    explicit Caller(const std::string &name) { callers.push_back(name); }
    ~Caller() { callers.pop_back(); }
};
#define TEXT(line) #line
#define AT(line) TEXT(line)
#define HERE(name) Caller here(name ":" AT(__LINE__))

static void print(unsigned grid) {
    std::string text;
    for (auto caller = callers.rbegin(); caller != callers.rend(); ++caller)
        text += " " + *caller;
    std::printf("%u\t%s\n", grid, text.c_str() + 1);
}

// The call is no tail call: the result is looked at.
#define LAUNCH(grid) (print(grid), cuLaunchKernel(function, grid, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) == 0 ? void() : std::abort())

namespace model {
struct Step {
    virtual ~Step() = default;
    __attribute__((noinline)) virtual void run(unsigned grid) { HERE("model::Step::run"); LAUNCH(grid); }
};
static inline __attribute__((always_inline)) void inlined_twice(unsigned grid) { HERE("model::inlined_twice"); LAUNCH(grid); }
static inline __attribute__((always_inline)) void inlined(unsigned grid) { HERE("model::inlined"); inlined_twice(grid); }
} // namespace model

template <typename Value> __attribute__((noinline)) static void generic(Value grid) { HERE("generic<unsigned-int>"); LAUNCH(grid); }

__attribute__((noinline)) static void recursive(unsigned grid, unsigned depth) {
    if (depth > 0) { HERE("recursive"); recursive(grid, depth - 1); asm volatile(""); }
    else { HERE("recursive"); LAUNCH(grid); }
}

static unsigned compared;
static int compare(const void *, const void *) {
    if (compared++ == 0) { HERE("compare"); LAUNCH(5); }
    return 0;
}

__attribute__((noinline)) static void throws(unsigned grid) {
    HERE("throws"); LAUNCH(grid);
    throw std::runtime_error("expected");
}

// A frame whose size is known at run time only, and one that is realigned.
__attribute__((noinline)) static void variable(unsigned grid, size_t bytes) {
    char *room = static_cast<char *>(alloca(bytes));
    std::memset(room, 1, bytes);
    asm volatile("" : : "r"(room) : "memory");
    HERE("variable"); LAUNCH(grid);
}
__attribute__((noinline)) static void realigned(unsigned grid, size_t bytes) {
    alignas(128) char block[256];
    char *room = static_cast<char *>(alloca(bytes));
    asm volatile("" : : "r"(block), "r"(room) : "memory");
    HERE("realigned"); LAUNCH(grid);
}

static void handler(int) { HERE("handler"); LAUNCH(12); }

static void *thread(void *grid) {
    std::vector<std::string> none;
    callers.swap(none);
    cuCtxSetCurrent(context);
    { HERE("thread"); LAUNCH(*static_cast<unsigned *>(grid)); }
    callers.swap(none);
    return nullptr;
}

// A callee saves every register that callers keep.
__attribute__((noinline)) static void busy(unsigned grid) {
    asm volatile("" : : : "rbx", "r12", "r13", "r14", "r15", "memory");
    HERE("busy"); LAUNCH(grid);
}

// Compiled into a library too, which is loaded at run time.
extern "C" __attribute__((noinline)) void plugin_launch(pointer with, unsigned grid, void (*note)(unsigned, const char *)) {
    note(grid, "plugin_launch:" AT(__LINE__)), cuLaunchKernel(with, grid, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) == 0 ? void() : std::abort();
}

static void note(unsigned grid, const char *where) { Caller here(where); print(grid); }

static void copies_and_waits() {
    unsigned long long memory;
    for (int i = 0; i < 3; i++) {
        if (cuMemAlloc_v2(&memory, 1024) || cuMemFree_v2(memory)) std::abort();
        if (cuCtxSynchronize()) std::abort();
    }
}

int main(int count, char **arguments) {
    cuInit(0);
    cuCtxCreate_v2(&context, 0, 0);
    pointer module;
    cuModuleLoadData(&module, "kernel_5000");
    cuModuleGetFunction(&function, module, "kernel_5000");
    { HERE("main"); LAUNCH(1); }
    model::Step step;
    { HERE("main"); step.run(2); }
    { HERE("main"); model::inlined(3); }
    { HERE("main"); generic(4u); }
    int values[] = {3, 1, 2};
    { HERE("main"); std::qsort(values, 3, sizeof(int), compare); }
    { HERE("main"); recursive(6, 3); }
    try { HERE("main"); throws(7); } catch (const std::runtime_error &) {}
    { HERE("main"); LAUNCH(8); }
    { HERE("main"); variable(9, 100 * count); }
    { HERE("main"); realigned(10, 100 * count); }
    std::signal(SIGUSR1, handler);
    { HERE("main"); std::raise(SIGUSR1); }
    unsigned grid = 13;
    pthread_t other;
    pthread_create(&other, nullptr, thread, &grid);
    pthread_join(other, nullptr);
    { HERE("main"); busy(14); }
    if (count > 1) {
        pointer library = dlopen(arguments[1], RTLD_NOW);
        if (!library) std::abort();
        auto launch = reinterpret_cast<void (*)(pointer, unsigned, void (*)(unsigned, const char *))>(dlsym(library, "plugin_launch"));
        { HERE("main"); launch(function, 15, note); }
    }
    copies_and_waits();
    std::fflush(stdout);
    return 0;
}
