/* Launches where Python's interpreter does not know of it: in threads of others, and after its end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>

typedef void *pointer;
extern unsigned cuCtxSetCurrent(pointer),
    cuLaunchKernel(pointer, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, pointer, pointer *, pointer *);

static pointer context, function;
static unsigned last;

struct work {
    const char *name;
    unsigned grid;
    void (*callback)(void);
};

static void launch(unsigned grid) { cuLaunchKernel(function, grid, 1, 1, 32, 1, 1, 0, 0, 0, 0); }

static void *run(void *argument) {
    struct work *work = argument;
    pthread_setname_np(pthread_self(), work->name);
    cuCtxSetCurrent(context);
    launch(work->grid);
    if (work->callback) {
        work->callback();
        launch(work->grid + 1);
    }
    return 0;
}

static void launch_last(void) { launch(last); }

void use(pointer with_context, pointer with_function) {
    context = with_context;
    function = with_function;
}

/* Launches in a new thread of this name; if there is a callback, once before it and once after. */
void launch_in_thread(const char *name, unsigned grid, void (*callback)(void)) {
    struct work work = {name, grid, callback};
    pthread_t thread;
    if (pthread_create(&thread, 0, run, &work) == 0)
        pthread_join(thread, 0);
}

/* Launches when the process ends, after the interpreter. */
void launch_at_end(unsigned grid) {
    last = grid;
    atexit(launch_last);
}
