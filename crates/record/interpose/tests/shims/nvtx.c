/* Launches inside of NVTX ranges. NVTX is a header; what follows up to `connect` is what a copy of it does, as far as
 * this program needs it: it opens the library that NVTX_INJECTION64_PATH names and lets that fill in its functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

typedef void *pointer;
typedef void (*function)(void);

struct event {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *ascii;
        const wchar_t *wide;
        pointer registered;
    } message;
};

enum { CORE = 1, CORE2 = 5, SLOTS = 16 };
static function core[SLOTS], core2[SLOTS];
static function *core_places[SLOTS], *core2_places[SLOTS];

static int functions(int module, function ***table, unsigned *count) {
    *table = module == CORE ? core_places : module == CORE2 ? core2_places : 0;
    *count = *table ? SLOTS : 0;
    return *table != 0;
}

static struct {
    size_t size;
    int (*functions)(int, function ***, unsigned *);
} callbacks = {sizeof callbacks, functions};

static const void *export_table(uint32_t id) { return id == 1 ? &callbacks : 0; }

static int connect(void) {
    for (int i = 1; i < SLOTS; i++)
        core_places[i] = &core[i], core2_places[i] = &core2[i];
    const char *path = getenv("NVTX_INJECTION64_PATH");
    pointer library = path ? dlopen(path, RTLD_LAZY) : 0;
    int (*init)(const void *(*)(uint32_t)) = library ? (int (*)(const void *(*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2") : 0;
    return init && init(export_table);
}

#define CALL(table, id, result, ...) (table[id] ? ((result(*)())table[id])(__VA_ARGS__) : (result)-2)
static int push(const char *name) { return CALL(core, 9, int, name); }
static int pop(void) { return CALL(core, 11, int); }
static int push_in(pointer domain, const char *name) {
    struct event event = {3, sizeof event, 0, 0, 0, 0, 0, 0, 1, {.ascii = name}};
    return CALL(core2, 4, int, domain, &event);
}
static int pop_in(pointer domain) { return CALL(core2, 5, int, domain); }
static int push_registered(pointer domain, pointer text) {
    struct event event = {3, sizeof event, 0, 0, 0, 0, 0, 0, 3, {.registered = text}};
    return CALL(core2, 4, int, domain, &event);
}

/* ---- */

extern unsigned cuInit(unsigned), cuDevicePrimaryCtxRetain(pointer *, int), cuCtxSetCurrent(pointer),
    cuModuleLoadData(pointer *, const void *), cuModuleGetFunction(pointer *, pointer, const char *),
    cuLaunchKernel(pointer, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, pointer, pointer *, pointer *),
    cuMemAlloc_v2(uint64_t *, size_t), cuMemcpyDtoH_v2(void *, uint64_t, size_t), cuCtxSynchronize(void);

static pointer context, kernel;

static void begin(void) {
    pointer module;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry kernel() { ret; }") ||
        cuModuleGetFunction(&kernel, module, "kernel"))
        exit(3);
}

/* The grid tells launches apart. */
static void launch(unsigned grid) {
    if (cuLaunchKernel(kernel, grid, 1, 1, 1, 1, 1, 0, 0, 0, 0))
        exit(4);
}

static void nested(void) {
    printf("%d ", push("before the driver"));
    begin();
    launch(1);
    printf("%d ", push("outer"));
    launch(2);
    for (unsigned i = 0; i < 3; i++) {
        printf("%d ", push("inner"));
        launch(3);
        printf("%d ", pop());
    }
    launch(4);
    uint64_t memory;
    char host[64];
    if (cuMemAlloc_v2(&memory, 4096) || cuMemcpyDtoH_v2(host, memory, sizeof host))
        exit(5);
    printf("%d ", pop());
    launch(5);
    printf("%d ", pop());
    launch(6);
    /* Nothing is open. */
    printf("%d %d", pop(), pop_in((pointer)12345));
    launch(7);
    push("after");
    launch(8);
    pop();
}

static void domains(void) {
    begin();
    pointer one = CALL(core2, 12, pointer, "one"), two = CALL(core2, 13, pointer, L"two \u20ac");
    pointer text = CALL(core2, 10, pointer, one, "registered"), again = CALL(core2, 10, pointer, one, "registered");
    printf("%d %d ", one != two, text == again);
    push_in(one, "a");
    push_in(two, "b");
    push_registered(one, text);
    launch(1);
    /* The outermost range of `one` is under `b`. */
    pop_in(one);
    launch(2);
    pop_in(one);
    launch(3);
    pop_in(two);
    launch(4);
    uint64_t started = CALL(core, 5, uint64_t, "process");
    push("inside");
    launch(5);
    CALL(core, 7, int, started);
    launch(6);
    pop();
    CALL(core, 7, int, started);
    CALL(core, 7, int, (uint64_t)-1);
    launch(7);
}

static void *in_thread(void *argument) {
    unsigned number = (unsigned)(uintptr_t)argument;
    char name[32];
    snprintf(name, sizeof name, "thread %c", 'a' + number);
    cuCtxSetCurrent(context);
    push(name);
    for (unsigned i = 0; i < 2000; i++) {
        push(i % 2 ? "odd" : "even");
        launch(10 * number + 1 + i % 2);
        pop();
    }
    launch(10 * number + 3);
    return 0; /* and the range stays open */
}

static void threads(void) {
    pthread_t all[4];
    begin();
    push("main");
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&all[i], 0, in_thread, (pointer)(i + 1));
    for (unsigned i = 0; i < 4; i++)
        pthread_join(all[i], 0);
    launch(1);
}

struct payload {
    uint64_t schema;
    size_t size;
    const void *data;
};

/* A collective of NCCL: `size` bytes of its parameters, of which the first 8 are the communicator. */
static void collective(pointer nccl, const char *name, uint64_t communicator, size_t size, unsigned grid) {
    uint64_t parameters[3] = {communicator, 4096, 0};
    struct payload payload = {1 << 24, size, parameters};
    struct event event = {3, sizeof event, 0, 0, 0, (int32_t)0xDFBD0009, 1, (uint64_t)&payload, 1, {.ascii = name}};
    CALL(core2, 4, int, nccl, &event);
    launch(grid);
    pop_in(nccl);
}

static void collectives(void) {
    begin();
    pointer nccl = CALL(core2, 12, pointer, "NCCL"), other = CALL(core2, 12, pointer, "other");
    collective(nccl, "ncclAllReduce", 0xc0ffee, 24, 1);
    collective(nccl, "ncclAllGather", 0xbeef, 16, 2);
    /* Of a version that does not tell the communicator. */
    collective(nccl, "ncclAllReduce", 4096, 16, 3);
    collective(nccl, "ncclSend", 0xc0ffee, 24, 4);
    /* Of a function that moves nothing, and of another domain. */
    collective(nccl, "ncclGroupStart", 0xc0ffee, 24, 5);
    collective(other, "ncclAllReduce", 0xc0ffee, 24, 6);
    push_in(nccl, "ncclAllReduce");
    launch(7);
    pop_in(nccl);
}

static void hostile(void) {
    begin();
    char *large = malloc(1 << 20);
    memset(large, 'x', (1 << 20) - 1);
    large[(1 << 20) - 1] = 0;
    const char *names[] = {"", "\xff\xfe\x80", "\x1b[31mred\x1b[0m\n", "100%s%n", large, 0};
    for (unsigned i = 0; i < 6; i++) {
        push(names[i]);
        launch(i + 1);
        pop();
    }
    const wchar_t wide[] = {L'w', 0x7fffffff, 0xd800, 0};
    CALL(core, 10, int, wide);
    launch(7);
    pop();
    push_registered((pointer)-1, (pointer)-1);
    launch(8);
    pop_in((pointer)-1);
    struct event cut = {3, 8};
    CALL(core, 8, int, &cut);
    CALL(core, 8, int, (pointer)0);
    pop();
    pop();
    for (unsigned i = 0; i < 200; i++)
        push("deep");
    launch(9);
    for (unsigned i = 0; i < 200; i++)
        pop();
    launch(10);
    char number[64];
    for (unsigned i = 0; i < 100000; i++) {
        snprintf(number, sizeof number, "step %u", i);
        push(number);
        pop();
    }
    push("step 99999999");
    launch(11);
    pop();
}

static void forks(void) {
    push("parent");
    begin();
    launch(1);
    pid_t child = fork();
    if (child == 0) {
        begin();
        launch(2);
        push("child");
        launch(3);
        pop();
        pop();
        launch(4);
        exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        exit(6);
    launch(5);
    pop();
    launch(6);
}

/* More than a chunk of records in one range. */
static void many(void) {
    begin();
    push("all");
    for (unsigned i = 0; i < 30000; i++)
        launch(1);
}

int main(int count, char **arguments) {
    const char *program = count > 1 ? arguments[1] : "";
    printf("%d: ", connect());
    fflush(stdout);
    if (!strcmp(program, "nested"))
        nested();
    else if (!strcmp(program, "domains"))
        domains();
    else if (!strcmp(program, "threads"))
        threads();
    else if (!strcmp(program, "collectives"))
        collectives();
    else if (!strcmp(program, "hostile"))
        hostile();
    else if (!strcmp(program, "forks"))
        forks();
    else if (!strcmp(program, "many"))
        many();
    else if (!strcmp(program, "no-driver"))
        push("alone"), pop();
    return 0;
}
